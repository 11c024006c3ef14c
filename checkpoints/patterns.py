"""Entries of a configuration that name modules: whole, as paths, with ``*``, or as regular expressions."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

#: longer patterns are taken literally: nobody writes them, and a regular expression can take forever
_LONGEST_PATTERN = 500


class Patterns:
    """Entries that name modules. A whole model is looked up at once, so plain entries are found by their paths."""

    def __init__(self, entries: tuple[str, ...], parts: bool = False) -> None:
        self.plain: dict[str, int] = {}
        self.others: list[tuple[int, str]] = []
        self.parts = parts
        for number, entry in enumerate(entries):
            if entry.startswith("re:") or "*" in entry or parts:
                self.others.append((number, entry))
            else:
                self.plain.setdefault(entry, number)

    def first(self, module: str) -> int | None:
        """The number of the first entry that names a module."""
        words = module.split(".")
        paths = (".".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1))
        found = [self.plain[path] for path in paths if path in self.plain] if self.plain else []
        best = min(found) if found else None
        for number, entry in self.others:
            if best is not None and number > best:
                break
            if matches(entry, module, self.parts):
                return number
        return best


def matches(pattern: str, module: str, parts: bool = False) -> bool:
    """Whether an entry names a module: as ``re:``, with ``*``, whole, as a path above it, or as components of it."""
    if pattern.startswith("re:"):
        return _regular(pattern[3:], module)
    if "*" in pattern:
        return fnmatchcase(module, pattern) or fnmatchcase(module, f"{pattern}.*")
    return f".{pattern}." in f".{module}." or (parts and bool(pattern) and pattern in module)


def _regular(pattern: str, module: str) -> bool:
    if len(pattern) > _LONGEST_PATTERN:
        return pattern == module
    try:
        return re.match(pattern, module) is not None
    except (re.error, RecursionError, OverflowError):
        return False


def is_regular(pattern: str) -> bool:
    """Whether an entry that begins with ``re:`` can be compiled. True for every other entry."""
    try:
        re.compile(pattern[3:] if pattern.startswith("re:") else "")
    except (re.error, RecursionError, OverflowError):
        return False
    return True
