"""What day it is, and whether the clocks agree: a clock that is set back must not keep a waiver alive."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

from narrowgauge.ci.findings import Finding
from narrowgauge.ci.gate.night import Night, moment
from narrowgauge.ci.history import History
from narrowgauge.ci.records import RunRecord

#: days between a run and the gate: a night may begin before midnight, and be judged a weekend's job queue later
APART = 2
#: seconds by which a clock may be set during a run; time services correct steps of less without being asked
MOVED = 60.0


def day(night: Night, history: History | None, today: datetime.date) -> datetime.date:
    """The latest date that the gate's own clock, a run or the history proves: expiry is judged by it.

    A run whose clock was set on the way proves no date by its end.
    """
    texts = [t for run in night.runs for t in (run.started, run.ended if abs(run.clock_moved) <= MOVED else "")]
    proved = [at.date() for at in map(moment, texts) if at is not None]
    return max([today, *proved, *([history.latest] if history is not None else [])])


def findings(night: Night, history: History | None, today: datetime.date) -> Iterator[Finding]:
    if history is not None and today < history.latest:
        yield Finding("clock_back", f"the gate's date is {today}, and the history knows a night of {history.latest}")
    for run in night.runs:
        what = {"place": run.place, "shard": f"{run.shard}/{run.shards}"}
        yield from (Finding(kind, said, **what) for kind, said in _of_run(run, history, today))


def _of_run(run: RunRecord, history: History | None, today: datetime.date) -> Iterator[tuple[str, str]]:
    started, ended = moment(run.started), moment(run.ended)
    assert started is not None, "a run whose start cannot be read is a stray"
    if ended is not None and ended < started:
        yield "clock_back", f"it ended at {run.ended}, before it started at {run.started}"
    if history is not None and (before := history.later_than(run)):
        yield "clock_back", f"it started at {run.started}; the history has a run of {run.place} from {before}"
    if abs((started.date() - today).days) > APART:
        yield "clock_apart", f"it started on {started.date()}, and the gate's date is {today}"
    if abs(run.clock_moved) > MOVED:
        yield "clock_moved", f"its clock was set by {run.clock_moved:+,.0f} s on the way"
