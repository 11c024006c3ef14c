"""Hold the rules to files, and take back what a comment with a reason ignores."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from narrowgauge.contracts.errors import BadInput
from narrowgauge.lint import c_source, python_source
from narrowgauge.lint.rules import RULES
from narrowgauge.lint.site import Comment, Source

C_FAMILY = (".cu", ".cuh", ".hip", ".cpp", ".cc", ".cxx", ".c", ".h", ".hpp")
SUFFIXES = (".py", *C_FAMILY)
IGNORE = re.compile(r"narrowgauge:\s*ignore\[([^\]]*)\]\s*(.*)", re.IGNORECASE)
#: under which an ignore comment that does not hold is found
COMMENT = "ignore"


@dataclass(frozen=True)
class Finding:
    """One place. ``text`` is what stands there; of an ignore comment, what is wrong with it."""

    path: str
    line: int
    rule: str
    text: str


def files(given: Iterable[str]) -> list[Path]:
    """The files, and of folders all sources in them. Raises ``BadInput`` for what cannot be read by any front end."""
    found: list[Path] = []
    for name in given:
        path = Path(name)
        if path.is_dir():
            found += sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES and p.is_file())
        elif not path.is_file():
            raise BadInput(f"no file {name}; give sources ({', '.join(SUFFIXES)}), or folders of them")
        elif path.suffix not in SUFFIXES:
            raise BadInput(f"{name} has the suffix {path.suffix!r}; sources are read by suffix: {', '.join(SUFFIXES)}")
        else:
            found.append(path)
    if not found:
        raise BadInput(f"no source in {', '.join(given)}; sources are {', '.join(SUFFIXES)}")
    return list(dict.fromkeys(found))


def lint(path: Path) -> list[Finding]:
    """What the rules find in a file, by line. Raises ``BadInput`` if it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from None
    source = python_source.read(path, text) if path.suffix == ".py" else c_source.read(path, text)
    return findings(str(path), source)


def findings(path: str, source: Source) -> list[Finding]:
    """One finding a line and rule, less those that are ignored; ignore comments that do not hold are findings too."""
    hits: dict[tuple[int, str], Finding] = {}
    for site in source.sites:
        for rule in RULES.values():
            if rule.kind == site.kind and rule.finds(site):
                hits.setdefault((site.line, rule.name), Finding(path, site.line, rule.name, site.text))
    for comment in source.comments:
        for finding in _ignored(path, comment, hits):
            hits[finding.line, f"{COMMENT} {finding.text}"] = finding
    return sorted(hits.values(), key=lambda f: (f.line, f.rule))


def _ignored(path: str, comment: Comment, hits: dict[tuple[int, str], Finding]) -> Iterator[Finding]:
    """Take back what a comment ignores on its line (on the next one, if it stands alone); what is wrong with it."""
    match = IGNORE.search(comment.text)
    if match is None:
        return
    line = comment.line + comment.alone
    for name in (word.strip() for word in match[1].split(",")):
        wrong = ""
        if name not in RULES:
            wrong = f"no rule {name!r}; there are {', '.join(RULES)}"
        elif not match[2].strip(" :-*/"):
            wrong = f"ignore[{name}] gives no reason"
        elif hits.pop((line, name), None) is None:
            wrong = f"ignore[{name}] hides nothing"
        if wrong:
            yield Finding(path, comment.line, COMMENT, wrong)
