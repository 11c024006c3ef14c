"""Quarantine: machines that are known to fail, as data. Never a test: only kinds of findings that are about machines.

In a file ``target`` and ``kind`` may each be a list: that is one entry for each pair.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from narrowgauge.ci.entries import check, listed, tables
from narrowgauge.ci.findings import KINDS, Finding
from narrowgauge.ci.lanes import Lane
from narrowgauge.contracts.errors import BadInput, unknown

#: the suite's own list
OWN = Path(__file__).parent / "quarantine.toml"


@dataclass(frozen=True)
class Quarantine:
    """One kind of finding that is expected of one place."""

    lane: str
    target: str
    kind: str
    link: str
    reason: str
    expires: datetime.date

    @property
    def place(self) -> str:
        return f"{self.lane}/{self.target}"

    def covers(self, finding: Finding) -> bool:
        return finding.kind == self.kind and finding.place == self.place

    def expired(self, today: datetime.date) -> bool:
        return today > self.expires


def load(path: Path, lanes: Mapping[str, Lane]) -> list[Quarantine]:
    """The entries of a file. Raises ``BadInput`` for a key or value that is not as it must be."""
    return [q for entry, where in tables(path, "quarantine", "quarantines") for q in _each(entry, lanes, where)]


def _each(entry: Mapping[str, object], lanes: Mapping[str, Lane], where: str) -> list[Quarantine]:
    lists = [[(name, one) for one in listed(entry[name])] for name in ("target", "kind") if name in entry]
    return [_checked({**entry, **dict(pairs)}, lanes, where) for pairs in itertools.product(*lists)]


def _checked(entry: Mapping[str, object], lanes: Mapping[str, Lane], where: str) -> Quarantine:
    check(entry, {f.name for f in fields(Quarantine)}, ("lane", "target", "kind", "link", "reason"), where)
    made = Quarantine(**entry)  # type: ignore[arg-type]
    if made.lane not in lanes:
        raise unknown("lane", made.lane, lanes, where)
    if made.target not in lanes[made.lane].targets:
        raise unknown(f"target of lane {made.lane}", made.target, lanes[made.lane].targets, where)
    if made.kind not in KINDS:
        raise unknown("kind of finding", made.kind, KINDS, where)
    if not KINDS[made.kind].quarantine:
        allowed = ", ".join(name for name, kind in KINDS.items() if kind.quarantine)
        raise BadInput(f"{where}: kind = {made.kind!r} cannot be quarantined; only {allowed} can: they are of machines")
    return made
