"""Findings about shards: whether all came, whole, of one kind, and to their end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from narrowgauge.ci.findings import Finding
from narrowgauge.ci.gate.night import Night, Place
from narrowgauge.ci.records import JOURNAL, LEDGER, PLAN, RunRecord, Shard

#: files that a run which came to its end has sealed with their sha256
SEALED = (PLAN, JOURNAL, LEDGER)
#: pytest's exit codes when it came to its own end: all well, something failed
ENDED = (0, 1)
#: what must be one in all shards of a place, besides these versions
ONE = ("shards", "depth", "plan", "golden", "narrowgauge", "commit")
ONE_VERSION = ("torch", "triton")
#: ids that a message names
NAMED = 3


def findings(night: Night) -> Iterator[Finding]:
    """Of all places, and of what belongs to none."""
    for shard in night.strays:
        yield Finding("damaged", f"{shard.directory}: {'; '.join(shard.problems) or 'no results are there'}")
    if not night.shards and not night.places:
        yield Finding("zero_tests", "there are no results at all")
    if not night.expected:
        yield Finding("nothing_expected", "no --expect: only what came could be looked at")
    for place in night.places.values():
        yield from _of_place(place, night.expected)
    yield from _differing(night)


def _of_place(place: Place, expected: bool) -> Iterator[Finding]:
    if place.lane is None:
        yield Finding("unknown_lane", f"lane {place.name.partition('/')[0]} is not in the lanes' file", place.name)
    if expected and not place.expected:
        yield Finding("unexpected_place", "nobody expected these results", place.name)
    yield from _missing(place)
    yield from _twice(place)
    for shard in place.shards:
        assert shard.run is not None
        yield from _of_shard(place, shard, shard.run)
    yield from _mixed(place)


def _missing(place: Place) -> Iterator[Finding]:
    if not place.shards:
        yield Finding("missing_lane", f"nothing came of {place.name}: {place.count} shards were expected", place.name)
        return
    for k in place.missing:
        lost = [cell.id for cell in place.plan.of_shard(k)] if place.plan is not None else []
        tests = f": {len(lost):,} planned tests have no result" if lost else ""
        yield Finding("missing_shard", f"shard {k} of {place.count} left nothing{tests}", place.name, _part(k, place))


def _part(k: int, place: Place) -> str:
    return f"{k}/{place.count}"


def _twice(place: Place) -> Iterator[Finding]:
    counts = Counter(run.shard for run in place.runs)
    for k, count in sorted(counts.items()):
        if count > 1:
            where = ", ".join(str(s.directory) for s in place.shards if s.run is not None and s.run.shard == k)
            yield Finding("duplicate_shard", f"{count} directories are this shard: {where}", place.name, _own(k, place))


def _own(k: int, place: Place) -> str:
    """How that shard calls itself."""
    return next(f"{run.shard}/{run.shards}" for run in place.runs if run.shard == k)


def _of_shard(place: Place, shard: Shard, run: RunRecord) -> Iterator[Finding]:
    def found(kind: str, said: str) -> Finding:
        return Finding(kind, said, place.name, f"{run.shard}/{run.shards}")

    problems = problems_of(shard)
    if problems:
        yield found("damaged", f"{shard.directory}: {'; '.join(problems)}{_unanswered(shard, run)}")
    if run.state == "infra":
        yield found("preflight", run.reason or "the preflight failed")
    elif run.state in ("started", "stopped"):
        kind = "lost" if run.state == "started" else "stopped"
        yield found(kind, _broken(shard, run))
    elif not problems:
        yield from (found(*one) for one in _ended(shard, run))
    if run.narrowed_by:
        yield found("narrowed", f"it was run with {' '.join(run.narrowed_by)}")
    if run.attempt > 1:
        yield found("retried", f"this is attempt {run.attempt}")


def problems_of(shard: Shard) -> list[str]:
    """What is damaged, but for what follows by itself of a run that did not come to its end."""
    run = shard.run
    if run is None:
        return shard.problems
    if run.state in ("infra", "started", "stopped"):
        follows = {f"{name} is missing" for name in SEALED} | {f"{JOURNAL} ends in the middle of a line"}
        return [problem for problem in shard.problems if problem not in follows]
    owed = SEALED if shard.ends else (PLAN, JOURNAL)  # where no test ran, there is no ledger
    unsealed = [f"{name} is not sealed in run.json" for name in owed if name not in run.files]
    plan = shard.plan
    if plan is None:
        return [*shard.problems, *unsealed]
    names = [n for n in ("lane", "target", "depth", "shards") if getattr(plan, n) != getattr(run, n)]
    foreign = [f"{PLAN} is of another {' and '.join(names)} than run.json"] if names else []
    changed = [f"{PLAN} is not the plan that run.json names"] if plan.digest != run.plan else []
    nowhere = sum(not 1 <= cell.shard <= plan.shards for cell in plan.cells)
    lost = [f"{PLAN} gives {nowhere:,} tests to shards that are none"] if nowhere else []
    return [*shard.problems, *unsealed, *foreign, *changed, *lost]


def is_whole(shard: Shard) -> bool:
    """Whether it came to its end and nothing of it is damaged: then every planned test must have an end."""
    return shard.run is not None and shard.run.state == "finished" and not problems_of(shard)


def _broken(shard: Shard, run: RunRecord) -> str:
    said = run.reason or "the record says that it began, and not that it ended"
    named = shard.unended and shard.unended[0] not in said
    running = f"; running were {', '.join(shard.unended[:NAMED])}" if named else ""
    return f"{said}{_unanswered(shard, run)}{running}"


def _unanswered(shard: Shard, run: RunRecord) -> str:
    """How many planned tests are without an end."""
    planned = shard.plan.of_shard(run.shard) if shard.plan is not None else []
    never = sum(cell.id not in shard.ends for cell in planned)
    return f"; {never:,} of {len(planned):,} planned tests have no result" if never else ""


def _ended(shard: Shard, run: RunRecord) -> Iterator[tuple[str, str]]:
    """Of a run that says that it came to its end."""
    failed = sum(end.outcome in ("failed", "error") for end in shard.ends.values())
    if not shard.ends:
        yield "zero_tests", "no test of this shard has ended"
    elif run.exit_code not in ENDED:
        yield "exit_code", f"pytest ended with {run.exit_code}: it did not come to its own end"
    elif bool(failed) != (run.exit_code == 1):
        yield "exit_code", f"pytest ended with {run.exit_code}, and {failed} tests failed"


def _mixed(place: Place) -> Iterator[Finding]:
    """Of all runs that got so far as to say it: one without a plan says nothing of plans."""
    for name in ONE:
        known = {run.name: str(getattr(run, name)) for run in place.runs if name != "plan" or run.plan}
        yield from _one(place, name, known)
    for name in ONE_VERSION:
        yield from _one(place, name, {run.name: run.versions.get(name, "none") for run in place.runs if run.versions})
    if place.asked is not None and any(run.shards != place.asked for run in place.runs):
        yield Finding(
            "mixed", f"{place.asked} shards were expected, the runs are of {place.runs[0].shards}", place.name
        )


def _one(place: Place, name: str, values: dict[str, str]) -> Iterator[Finding]:
    if len(set(values.values())) > 1:
        said = ", ".join(f"{value[:16]} in {run.rpartition(' ')[2]}" for run, value in values.items())
        yield Finding("mixed", f"{name} differs: {said}", place.name)


def _differing(night: Night) -> Iterator[Finding]:
    """What places should have in common, and need not."""
    for name in ("narrowgauge", "commit", "golden"):
        found = {place.name: str(getattr(place.runs[0], name)) for place in night.places.values() if place.runs}
        if len(set(found.values())) > 1:
            said = ", ".join(f"{value[:16] or 'none'} on {place}" for place, value in found.items())
            yield Finding("lanes_differ", f"{name} differs: {said}")
