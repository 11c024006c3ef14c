"""What is new against the history: failures, what is mended, what is not executed any more, what is gone."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field, replace

from narrowgauge.ci.findings import KINDS, Finding
from narrowgauge.ci.gate.cells import EXECUTED, FAILING, Told
from narrowgauge.ci.gate.night import Night, Place
from narrowgauge.ci.gate.waiving import bracket
from narrowgauge.ci.history import NIGHTS, History, Known, Past, State
from narrowgauge.ci.records import RunRecord
from narrowgauge.ci.waivers import Waiver

#: what the history keeps of a result: a crash is a failure, a stale waiver's test passes; of others nothing is known
KEPT = {
    "passed": "passed", "stale": "passed", "failed": "failed", "crashed": "failed", "disputed": "disputed",
    "waived": "waived", "not_executed": "not_executed",
}  # fmt: skip
#: letters of a commit that tell it
SHORT = 8
#: how a commit ends whose files were changed: two such are not known to be the same
CHANGED = "+changed"


@dataclass(frozen=True)
class Change:
    """A test, with what the history knows of it after this night."""

    test: Told
    state: State

    @property
    def new(self) -> bool:
        return self.state.nights == 1


@dataclass
class Changes:
    """This night beside the ones before."""

    night: str  #: as the history tells it
    known: bool  #: whether there was a history
    last_green: str
    each: list[Change] = field(default_factory=list)
    gone: dict[str, list[str]] = field(default_factory=dict)  #: by place: ids that the last plan had
    same: dict[str, bool] = field(default_factory=dict)  #: by place: whether commit and depth are the last plan's

    @property
    def failing(self) -> list[Change]:
        return [c for c in self.each if c.test.result in FAILING]

    @property
    def fixed(self) -> list[Change]:
        return [c for c in self.each if c.state.result == "passed" and c.state.before == "failed" and c.new]

    @property
    def lost(self) -> list[Change]:
        """Not executed, and was once."""
        return [c for c in self.each if c.test.result == "not_executed" and c.state.executed]


def name_of(day: datetime.date, runs: Sequence[RunRecord]) -> str:
    """A night as the history tells it: its date and the suite's commit, or its version where there is none."""
    commit = next((run.commit[:SHORT] or run.narrowgauge for run in runs if run.commit or run.narrowgauge), "")
    return f"{day} {commit}".strip()


def changes(
    night: Night, tests: Sequence[Told], history: History | None, day: datetime.date, waivers: Sequence[Waiver]
) -> Changes:
    """This night's tests, each with its state; and what is gone from the plans."""
    past = history or History()
    found = Changes(name_of(day, night.runs), history is not None, past.last_green)
    taken = {(run.place, f"{run.shard}/{run.shards}") for run in night.runs if past.has(run)}
    for test in tests:
        known = past.places.get(test.place, Known()).cells.get(test.cell.id)
        again = known is not None and (test.place, test.shard) in taken
        if test.result in KEPT:
            state = known if again and known is not None else _next(known, KEPT[test.result], found.night, test.result)
            found.each.append(Change(test, state))
    for place in night.places.values():
        known_place = past.places.get(place.name)
        if known_place is None or place.plan is None or any(run.narrowed_by for run in place.runs):
            continue
        found.same[place.name] = _same(known_place, place)
        found.gone[place.name] = sorted(
            i for i in known_place.cells.keys() - place.cells.keys() if not any(_names(w, i) for w in waivers)
        )
    return found


def _next(known: State | None, result: str, night: str, became: str) -> State:
    """A test's state after this night."""
    before = known or State("", "", "", 0, "", "")
    good = night if result == "passed" else before.good
    executed = night if became in EXECUTED else before.executed
    if before.result == result:
        return replace(before, nights=before.nights + 1, good=good, executed=executed)
    return State(result, before.result, night, 1, good, executed)


def _same(known: Known, place: Place) -> bool:
    run = place.runs[0]
    if run.commit.endswith(CHANGED):
        return False
    return (known.narrowgauge, known.commit, known.depth) == (run.narrowgauge, run.commit, run.depth)


def _names(waiver: Waiver, nodeid: str) -> bool:
    """Whether a waiver names a test that is in no plan: no drawn inputs are planned for what a waiver names."""
    inside = bracket(nodeid)
    return inside.endswith(f"-{waiver.kernel}-{waiver.target}") and waiver.names(inside, waiver.kernel, waiver.target)


def findings(found: Changes, accepted: bool) -> Iterator[Finding]:
    for change in found.failing:
        if change.test.result == "failed":  # a crash is a finding of its own, however old
            yield change.test.finding("new_failure" if change.new else "still_failing", _said(change))
    gone = [(place, i) for place, ids in found.gone.items() for i in ids]
    if accepted:
        if gone or found.lost:
            yield Finding("accepted", f"{len(found.lost):,} not executed any more, {len(gone):,} gone from the plan")
        return
    for change in found.lost:
        said = f"executed last in the night {change.state.executed}; now: {change.test.said}"
        yield change.test.finding("not_executed_now", said)
    for place, ids in found.gone.items():
        if ids and not found.same[place]:
            yield Finding("plan_changed", f"{len(ids):,} tests are gone from the plan, first {ids[0]}", place)
        else:
            yield from (Finding("gone", f"{i} was in the plan of the last night", place, id=i) for i in ids)


def _said(change: Change) -> str:
    state = change.state
    good = f"passed last in the night {state.good}" if state.good else "has not passed in a night that is known"
    if change.new:
        return f"{change.test.said}; {good}"
    return f"{change.test.said}; since the night {state.since}, {state.nights} nights; {good}"


def recorded(
    found: Changes, night: Night, history: History | None, day: datetime.date, told: Sequence[Finding], accepted: bool
) -> History:
    """The history after this night. What is found of a shard, or of a whole place, that spoils its results keeps them
    out; a clock that cannot be trusted keeps the night out."""
    past = history or History()
    if any(f.kind in ("clock_back", "clock_apart") for f in told):
        return past
    spoiled = {(f.place, f.shard) for f in told if KINDS[f.kind].spoils}
    places = dict(past.places)
    for place in night.places.values():
        whole = [r for r in place.runs if not spoiled & {(place.name, f"{r.shard}/{r.shards}"), (place.name, "")}]
        if whole:
            places[place.name] = _taken(found, place, whole, past.places.get(place.name, Known()), accepted)
    green = not any(f.red for f in told)
    this = Past(found.night, green, tuple(night.places))
    nights = [one for one in past.nights if one.night != this.night] + [this]
    return History(max(day, past.latest), tuple(nights[-NIGHTS:]), places)


def _taken(found: Changes, place: Place, whole: Sequence[RunRecord], known: Known, accepted: bool) -> Known:
    parts = {f"{run.shard}/{run.shards}" for run in whole}
    cells = dict(known.cells)
    if accepted or not found.same.get(place.name, True):
        for i in found.gone.get(place.name, ()):
            del cells[i]
    for change in found.each:
        if change.test.place == place.name and change.test.shard in parts:
            lost = accepted and change.state.result == "not_executed"
            cells[change.test.cell.id] = replace(change.state, executed="") if lost else change.state
    runs = {**_of_this_cut(known.runs, parts), **{f"{r.shard}/{r.shards}": r.started for r in whole}}
    narrowed = any(run.narrowed_by for run in place.runs)
    of = (known.narrowgauge, known.commit, known.depth) if narrowed else (
        whole[0].narrowgauge, whole[0].commit, whole[0].depth)  # fmt: skip
    return Known(*of, runs, cells)


def _of_this_cut(runs: dict[str, str], parts: Set[str]) -> dict[str, str]:
    """Earlier runs of shards that are still cut so: "1/2" says nothing once there are three."""
    counts = {part.partition("/")[2] for part in parts}
    return {part: started for part, started in runs.items() if part.partition("/")[2] in counts}
