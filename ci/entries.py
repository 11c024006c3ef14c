"""TOML files, strict in form: what lanes, waivers and the quarantine share."""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from narrowgauge.contracts.errors import BadInput


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """A TOML file of ``what``. Raises ``BadInput`` for one that cannot be read, or is none."""
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise BadInput(f"cannot read {what} {path}: {error.strerror}") from error
    except ValueError as error:  # not TOML, or not UTF-8
        raise BadInput(f"{what} {path} are not TOML: {error}") from error


def tables(path: Path, name: str, what: str) -> Iterator[tuple[Mapping[str, object], str]]:
    """The tables [[name]] of a file of ``what``, each with where it stands. Raises ``BadInput``."""
    data = read_toml(path, what)
    if unknown := set(data) - {name}:
        raise BadInput(f"{what} {path}: unknown table {sorted(unknown)}; expected [[{name}]]")
    entries = data.get(name, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise BadInput(f"{what} {path}: {name!r} is no list of tables; expected [[{name}]]")
    for number, entry in enumerate(entries, 1):
        yield entry, f"{path}, {name} {number}"


def listed(value: object) -> list[object]:
    """The values of a list; any other value, and an empty list, by itself."""
    return value if isinstance(value, list) and value else [value]


def check(entry: Mapping[str, object], names: Set[str], texts: Sequence[str], where: str) -> None:
    """Raise ``BadInput`` unless an entry has these fields alone, a text in each of ``texts``, a link and a date."""
    if missing := names - entry.keys():
        raise BadInput(f"{where}: {', '.join(sorted(missing))} missing")
    if extra := entry.keys() - names:
        raise BadInput(f"{where}: unknown field {', '.join(sorted(extra))}; fields are {', '.join(sorted(names))}")
    for name in texts:
        if not isinstance(entry[name], str) or not entry[name]:
            raise BadInput(f"{where}: {name} = {entry[name]!r}; expected a text")
    if not str(entry["link"]).startswith(("https://", "docs/")):
        raise BadInput(f"{where}: link = {entry['link']!r}; expected an https address or a page in docs/")
    if type(entry["expires"]) is not datetime.date:  # a datetime is a date too, but does not compare with one
        raise BadInput(f"{where}: expires = {entry['expires']!r}; expected a date such as 2027-06-30")
