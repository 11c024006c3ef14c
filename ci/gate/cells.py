"""Findings about tests: each that was planned must have run once, ended, and left a verdict that fits its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from narrowgauge.ci.findings import Finding
from narrowgauge.ci.gate.night import Night, Place
from narrowgauge.ci.gate.places import is_whole
from narrowgauge.ci.ledger import Row
from narrowgauge.ci.records import Cell, End, RunRecord, Shard
from narrowgauge.ci.waivers import STALE

#: what became of a test
Result = Literal["passed", "failed", "disputed", "waived", "not_executed", "stale", "crashed", "no_verdict", "unrun"]
#: how pytest must have ended a test that has this verdict
OUTCOMES = {
    "passed": "passed", "failed": "failed", "disputed": "xfailed", "waived": "xfailed", "not_executed": "skipped",
}  # fmt: skip
#: those in which a kernel was tried
EXECUTED = ("passed", "failed", "disputed", "waived", "stale", "crashed")
#: those in which it is wrong, or killed the test
FAILING = ("failed", "crashed")
#: what a verdict says again of its planned test
OF_CELL = ("operation", "source", "format", "case", "kernel", "target")
#: letters of a message in a finding
LONGEST = 300


@dataclass(frozen=True)
class Told:
    """One planned test, and what became of it. ``said`` is why, where it is not well."""

    cell: Cell
    place: str
    shard: str
    result: Result
    said: str = ""
    row: Row | None = None

    def finding(self, kind: str, said: str) -> Finding:
        return Finding(kind, said, self.place, self.shard, self.cell.id, self.cell.kernel, self.cell.owner)


def told(night: Night) -> list[Told]:
    """What became of the planned tests of every shard that came; a shard that did not says nothing of its tests."""
    found: dict[tuple[str, str], Told] = {}
    for place in night.places.values():
        for shard in place.shards:
            if shard.run is None or shard.plan is None:
                continue
            whole = is_whole(shard)
            for cell in shard.plan.of_shard(shard.run.shard):
                one = _told(cell, shard, shard.run, whole)
                known = found.get((place.name, cell.id))
                found[place.name, cell.id] = one if known is None else _worse(known, one)
    return list(found.values())


def _worse(one: Told, other: Told) -> Told:
    """Of two answers for one test the bad one: two directories of one shard must not hide a failure."""
    return one if one.result in FAILING else other


def _told(cell: Cell, shard: Shard, run: RunRecord, whole: bool) -> Told:
    def so(result: Result, said: str = "", row: Row | None = None) -> Told:
        return Told(cell, run.place, f"{run.shard}/{run.shards}", result, said, row)

    end = shard.ends.get(cell.id)
    if end is None:
        if shard.begun[cell.id] and whole:
            return so("crashed", "it began and never ended")
        return so("unrun", "its end is not known" if shard.begun[cell.id] else "it never began")
    if end.row is None:
        bad = end.outcome in ("failed", "error")
        return so("crashed" if bad else "no_verdict", end.message or f"it ended as {end.outcome!r}")
    return so(*_of_row(end, end.row), end.row)


def _of_row(end: End, row: Row) -> tuple[Result, str]:
    if row.result == "failed":
        stale = row.reason.endswith(STALE)
        return ("stale", row.reason) if stale else ("failed", why(row))
    if end.outcome in ("failed", "error"):
        return "crashed", f"it ended as {end.outcome!r} after the verdict {row.result!r}: {end.message}"
    if OUTCOMES.get(row.result) != end.outcome:
        return "no_verdict", f"its verdict is {row.result!r}, and it ended as {end.outcome!r}"
    return row.result, row.reason


def why(row: Row) -> str:
    """A failure in a line: which mistake, how much of it, what it breaks."""
    faults = " or ".join(row.faults)
    counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(row.differences.items()))
    differing = f"{sum(row.differences.values()):,} of {row.elements:,} elements differ ({counts})" if counts else ""
    breaks = f"breaks {row.breaks}" if row.breaks else ""
    return "; ".join(filter(None, (faults, differing, row.reason, breaks)))


def findings(night: Night, tests: list[Told]) -> Iterator[Finding]:
    """Of all tests but failures, which the history is asked about first."""
    whole = {(s.run.place, f"{s.run.shard}/{s.run.shards}") for s in night.shards if s.run and is_whole(s)}
    for test in tests:
        if test.result in ("crashed", "no_verdict"):
            yield test.finding(test.result, test.said[:LONGEST])
        elif test.result == "unrun" and (test.place, test.shard) in whole:
            yield test.finding("unrun", test.said)
        elif test.result == "stale":
            yield test.finding("stale_waiver", test.said)
        elif test.result == "disputed":
            yield test.finding("disputed", _disputed(test))
    for place in night.places.values():
        yield from _ids(place)
        yield from _paths(place, [test for test in tests if test.place == place.name])


def _disputed(test: Told) -> str:
    row = test.row
    open_models = ", ".join(name for name, was_open in row.models.items() if was_open) if row is not None else ""
    return "; ".join(filter(None, (why(row) if row else "", f"open: {open_models}" if open_models else "")))


def _ids(place: Place) -> Iterator[Finding]:
    """Each id once, in the shard that its plan gives it to."""
    seen: dict[str, str] = {}
    numbers: set[int] = set()
    for shard in place.shards:
        if shard.run is None or shard.plan is None:
            continue
        part = f"{shard.run.shard}/{shard.run.shards}"
        own = {cell.id for cell in shard.plan.of_shard(shard.run.shard)}
        ids = {*shard.begun, *shard.ends}
        for i in _doubled(shard):
            yield Finding("duplicate_id", f"{i} is there twice", place.name, part, i)
        for i in sorted(ids - own):
            elsewhere = f"; shard {seen[i]} has it too" if i in seen else ""
            yield Finding("foreign_id", f"{i} is not of this shard's plan{elsewhere}", place.name, part, i)
        for i in sorted(i for i, row in shard.rows.items() if row.id != i):
            yield Finding("foreign_id", f"{i} has the verdict of {shard.rows[i].id}", place.name, part, i)
        for cell in shard.plan.of_shard(shard.run.shard):
            if other := _other(cell, shard.rows.get(cell.id)):
                yield Finding("foreign_id", f"{cell.id} has the verdict of {other}", place.name, part, cell.id)
        if shard.run.shard not in numbers:  # two directories of one shard are one finding, not one for each test
            for i in sorted(ids & own & seen.keys()):
                yield Finding("duplicate_id", f"{i} ran in shard {seen[i]} too", place.name, part, i)
        numbers.add(shard.run.shard)
        seen |= dict.fromkeys(ids, part)


def _other(cell: Cell, row: Row | None) -> str:
    """In what a verdict under the right id is not of what was planned; "" where it is."""
    values = {name: getattr(row, name) for name in OF_CELL} if row is not None else {}
    return ", ".join(f"another {name}, {value}" for name, value in values.items() if value != getattr(cell, name))


def _doubled(shard: Shard) -> list[str]:
    """Ids that began, ended or were planned more than once."""
    planned = Counter(cell.id for cell in shard.plan.cells) if shard.plan is not None else Counter[str]()
    counted = [*shard.begun.items(), *planned.items()]
    return sorted({*shard.twice, *(i for i, count in counted if count > 1)})


def _paths(place: Place, tests: list[Told]) -> Iterator[Finding]:
    """Operations of the lane of which nothing was executed, unless tests of it have no answer at all."""
    if place.lane is None or place.plan is None:
        return
    executed = {test.cell.operation for test in tests if test.result in EXECUTED}
    answered = {test.cell.id for test in tests if test.result != "unrun"}
    owed = {cell.operation for cell in place.cells.values() if cell.id not in answered}
    for path in place.lane.paths:
        if path in executed or path in owed:
            continue
        reasons = Counter(test.said for test in tests if test.cell.operation == path)
        why_not = reasons.most_common(1)[0][0][:LONGEST] if reasons else "none was planned"
        yield Finding("skipped_path", f"{path}: {why_not}", place.name)
