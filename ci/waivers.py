"""Waivers: known failures as data. Strict in form, and strict in effect: one that no longer fails is an error.

In a file ``target`` and ``test`` may each be a list: that is one waiver for each pair.
"""

from __future__ import annotations

import datetime
import fnmatch
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from narrowgauge.ci.entries import check, listed, tables
from narrowgauge.contracts.errors import BadInput

#: the suite's own list
OWN = Path(__file__).parent / "waivers.toml"
#: how the reason of a row ends whose test passes although a waiver covers it
STALE = "is stale: this case passes now"


@dataclass(frozen=True)
class Waiver:
    """A failure that is known, with its link and the range of versions in which it is."""

    kernel: str
    target: str
    test: str  #: a pattern of test ids
    versions: dict[str, str]
    link: str
    reason: str
    expires: datetime.date

    def covers(self, test: str, kernel: str, target: str, versions: Mapping[str, str]) -> bool:
        """Whether this waiver is about that test, with the versions of this machine."""
        return self.names(test, kernel, target) and self.within(versions)

    def within(self, versions: Mapping[str, str]) -> bool:
        """Whether these are versions that it holds for."""
        return all(_within(versions.get(name, ""), specifier) for name, specifier in self.versions.items())

    def names(self, test: str, kernel: str, target: str) -> bool:
        """Whether this waiver is about that test, whatever is installed. Brackets of an id stand for themselves."""
        if self.kernel != kernel or self.target != target:
            return False
        return fnmatch.fnmatchcase(test, self.test.replace("[", "[[]"))

    def expired(self, today: datetime.date) -> bool:
        return today > self.expires

    @property
    def stale(self) -> str:
        """What a test says that passes although this waiver covers it."""
        return f"the waiver for {self.kernel} on {self.target} ({self.link}) {STALE}"


def _within(version: str, specifier: str) -> bool:
    number = re.match(r"\d+(\.\d+)*", version)
    return number is not None and SpecifierSet(specifier).contains(number.group(), prereleases=True)


def _is_range(specifier: object) -> bool:
    """Whether it is a text that bounds a version; the empty one would hold for every version for ever."""
    try:
        return isinstance(specifier, str) and len(SpecifierSet(specifier)) > 0
    except InvalidSpecifier:
        return False


def load(paths: Sequence[Path]) -> list[Waiver]:
    """The waivers of several files. Raises ``BadInput`` for a file, key or value that is not as it must be."""
    return [w for path in paths for entry, where in tables(path, "waiver", "waivers") for w in _each(entry, where)]


def _each(entry: Mapping[str, object], where: str) -> list[Waiver]:
    """The waivers that one table stands for: one for each of its targets and tests."""
    lists = [[(name, one) for one in listed(entry[name])] for name in ("target", "test") if name in entry]
    return [_checked({**entry, **dict(pairs)}, where) for pairs in itertools.product(*lists)]


def _checked(entry: Mapping[str, object], where: str) -> Waiver:
    check(entry, {f.name for f in fields(Waiver)}, ("kernel", "target", "test", "link", "reason"), where)
    versions = entry["versions"]
    if not isinstance(versions, dict) or not versions:
        raise BadInput(f"{where}: versions = {versions!r}; expected a table such as {{ triton = '<3.10' }}")
    for name, specifier in versions.items():
        if not _is_range(specifier):
            raise BadInput(f"{where}: versions.{name} = {specifier!r}; expected a range such as '>=3.0,<3.10'")
    return Waiver(**entry)  # type: ignore[arg-type]
