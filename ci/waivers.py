"""Waivers: known failures as data. Strict in form, and strict in effect: one that no longer fails is an error.

In a file ``target`` and ``test`` may each be a list: that is one waiver for each pair.
"""

from __future__ import annotations

import datetime
import fnmatch
import itertools
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from narrowgauge.contracts.errors import BadInput

#: the suite's own list
OWN = Path(__file__).parent / "waivers.toml"


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
        return self.names(test, kernel, target) and all(
            _within(versions.get(name, ""), specifier) for name, specifier in self.versions.items()
        )

    def names(self, test: str, kernel: str, target: str) -> bool:
        """Whether this waiver is about that test, whatever is installed. Brackets of an id stand for themselves."""
        if self.kernel != kernel or self.target != target:
            return False
        return fnmatch.fnmatchcase(test, self.test.replace("[", "[[]"))

    def expired(self, today: datetime.date) -> bool:
        return today > self.expires


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
    return [waiver for path in paths for waiver in _load_one(path)]


def _load_one(path: Path) -> list[Waiver]:
    try:
        data = tomllib.loads(path.read_text())
    except OSError as error:
        raise BadInput(f"cannot read waivers {path}: {error.strerror}") from error
    except ValueError as error:  # not TOML, or not UTF-8
        raise BadInput(f"waivers {path} are not TOML: {error}") from error
    if unknown := set(data) - {"waiver"}:
        raise BadInput(f"waivers {path}: unknown table {sorted(unknown)}; expected [[waiver]]")
    entries = data.get("waiver", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise BadInput(f"waivers {path}: 'waiver' is no list of tables; expected [[waiver]]")
    return [w for number, entry in enumerate(entries, 1) for w in _each(entry, f"{path}, waiver {number}")]


def _each(entry: Mapping[str, object], where: str) -> list[Waiver]:
    """The waivers that one table stands for: one for each of its targets and tests."""
    lists = [[(name, one) for one in _listed(entry[name])] for name in ("target", "test") if name in entry]
    return [_checked({**entry, **dict(pairs)}, where) for pairs in itertools.product(*lists)]


def _listed(value: object) -> list[object]:
    """The values of a list; any other value, and an empty list, by itself."""
    return value if isinstance(value, list) and value else [value]


def _checked(entry: Mapping[str, object], where: str) -> Waiver:
    names = {f.name for f in fields(Waiver)}
    if missing := names - entry.keys():
        raise BadInput(f"{where}: {', '.join(sorted(missing))} missing")
    if extra := entry.keys() - names:
        raise BadInput(f"{where}: unknown field {', '.join(sorted(extra))}; fields are {', '.join(sorted(names))}")
    for name in ("kernel", "target", "test", "link", "reason"):
        if not isinstance(entry[name], str) or not entry[name]:
            raise BadInput(f"{where}: {name} = {entry[name]!r}; expected a text")
    if not str(entry["link"]).startswith(("https://", "docs/")):
        raise BadInput(f"{where}: link = {entry['link']!r}; expected an https address or a page in docs/")
    if type(entry["expires"]) is not datetime.date:  # a datetime is a date too, but does not compare with one
        raise BadInput(f"{where}: expires = {entry['expires']!r}; expected a date such as 2027-06-30")
    versions = entry["versions"]
    if not isinstance(versions, dict) or not versions:
        raise BadInput(f"{where}: versions = {versions!r}; expected a table such as {{ triton = '<3.10' }}")
    for name, specifier in versions.items():
        if not _is_range(specifier):
            raise BadInput(f"{where}: versions.{name} = {specifier!r}; expected a range such as '>=3.0,<3.10'")
    return Waiver(**entry)  # type: ignore[arg-type]
