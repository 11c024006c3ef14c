"""For each kind of finding a way to spoil the second of two clean nights, so that nothing else is found of it."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from narrowgauge.ci.gate.night import Expect
from narrowgauge.ci.records import JOURNAL, LEDGER, Plan, State
from narrowgauge.ci.waivers import STALE
from narrowgauge.suites.meta.night_sets import DAY, QUARANTINE, WAIVER, Case, Files, files_of, waived_id

ONE_DAY = datetime.timedelta(days=1)
TWO = "cuda/sm_90 2"

#: by kind: what is done to the second of two clean nights
SPOILED: dict[str, Callable[[Case], None]] = {}


def spoils(kind: str) -> Callable[[Callable[[Case], None]], Callable[[Case], None]]:
    def keep(change: Callable[[Case], None]) -> Callable[[Case], None]:
        assert kind not in SPOILED
        SPOILED[kind] = change
        return change

    return keep


@spoils("new_failure")
def _(case: Case) -> None:
    case.shards[TWO].fail(case.shards[TWO].ids[0])


@spoils("still_failing")
def _(case: Case) -> None:
    case.shards[TWO].fail(case.shards[TWO].ids[0])


@spoils("crashed")
def _(case: Case) -> None:
    case.shards[TWO].drop(case.shards[TWO].ids[0], "end")


@spoils("no_verdict")
def _(case: Case) -> None:
    case.shards[TWO].end(case.shards[TWO].ids[0], "passed", None)


@spoils("unrun")
def _(case: Case) -> None:
    case.shards[TWO].drop(case.shards[TWO].ids[0], "begin", "end")


@spoils("not_executed_now")
def _(case: Case) -> None:
    case.shards[TWO].end(case.shards[TWO].ids[0], "skipped", "not_executed", reason="no triton")


def _without(case: Case, place: str, part: str) -> None:
    """Take the tests whose ids have ``part`` out of the plan and the journals of a place."""
    for files in case.shards.values():
        if files.run.place != place or files.plan is None:
            continue
        for cell in files.plan.cells:
            if part in cell.id:
                files.drop(cell.id, "begin", "end")
        files.plan = replace(files.plan, cells=tuple(c for c in files.plan.cells if part not in c.id))
        files.run = replace(files.run, plan=files.plan.digest)


@spoils("gone")
def _(case: Case) -> None:
    _without(case, "cuda/sm_90", "cast_1")


@spoils("plan_changed")
def _(case: Case) -> None:
    _without(case, "cuda/sm_90", "cast_1")
    for files in case.shards.values():
        files.run = replace(files.run, commit="d" * 40)


@spoils("accepted")
def _(case: Case) -> None:
    case.accept = True
    case.shards[TWO].end(case.shards[TWO].ids[0], "skipped", "not_executed", reason="no triton")


@spoils("stale_waiver")
def _(case: Case) -> None:
    files = case.shards["cpu/cpu 1"]
    reason = f"the waiver for theirs on host ({WAIVER.link}) {STALE}"
    files.fail(waived_id(files), reason=reason, faults=[], differences={}, waiver="")


@spoils("expired_waiver")
def _(case: Case) -> None:
    case.waivers = [replace(WAIVER, expires=DAY)]


@spoils("unknown_waiver")
def _(case: Case) -> None:
    case.waivers = []


@spoils("missing_lane")
def _(case: Case) -> None:
    del case.shards["cpu/cpu 1"]
    case.waivers = []


@spoils("missing_shard")
def _(case: Case) -> None:
    del case.shards[TWO]


@spoils("preflight")
def _(case: Case) -> None:
    files = case.shards[TWO]
    files.run = replace(files.run, state="infra", exit_code=None, plan="", reason="the machine is not fit: no GPU")
    files.plan, files.events, files.seal = None, [], False
    case.spoil = _unfinished


def _unfinished(folder: Path) -> None:
    """What a run does not write whose preflight failed."""
    for name in (JOURNAL, LEDGER):
        (folder / TWO.replace("/", "-") / name).unlink()


def _broken_off(files: Files, state: State) -> None:
    """Half of the tests ran, and one was running."""
    half = files.ids[len(files.ids) // 2 :]
    for nodeid in half[1:]:
        files.drop(nodeid, "begin", "end")
    files.drop(half[0], "end")
    files.run = replace(files.run, state=state, exit_code=None, ended="")


@spoils("lost")
def _(case: Case) -> None:
    _broken_off(case.shards[TWO], "started")
    case.shards[TWO].seal = False


@spoils("stopped")
def _(case: Case) -> None:
    _broken_off(case.shards[TWO], "stopped")


@spoils("damaged")
def _(case: Case) -> None:
    case.spoil = lambda folder: (folder / "cuda-sm_90 2" / LEDGER).unlink()


@spoils("duplicate_shard")
def _(case: Case) -> None:
    case.shards["cuda/sm_90 2 again"] = files_of("cuda/sm_90", 2, 3, DAY + ONE_DAY)


@spoils("zero_tests")
def _(case: Case) -> None:
    """A fourth shard of a plan that gives it nothing."""
    for files in case.shards.values():
        if files.run.place == "cuda/sm_90" and files.plan is not None:
            files.plan = replace(files.plan, shards=4)
            files.run = replace(files.run, shards=4, plan=files.plan.digest)
    three = case.shards["cuda/sm_90 3"]
    case.shards["cuda/sm_90 4"] = Files(replace(three.run, shard=4, exit_code=5), three.plan, [])
    case.expects = [Expect("cuda", "sm_90", 4), Expect("cpu", "cpu", 1)]


@spoils("exit_code")
def _(case: Case) -> None:
    case.shards[TWO].run = replace(case.shards[TWO].run, exit_code=3)


@spoils("mixed")
def _(case: Case) -> None:
    case.shards[TWO].run = replace(case.shards[TWO].run, golden="h" * 64)


@spoils("duplicate_id")
def _(case: Case) -> None:
    files = case.shards[TWO]
    files.events += [files.event("begin", files.ids[0]), files.event("end", files.ids[0])]


@spoils("foreign_id")
def _(case: Case) -> None:
    other = case.shards["cuda/sm_90 1"]
    case.shards[TWO].events += [other.event("begin", other.ids[0]), other.event("end", other.ids[0])]


@spoils("skipped_path")
def _(case: Case) -> None:
    """All of an operation's tests are gone, with a waiver that says why they are not planned."""
    _without(case, "cuda/sm_90", "-attend_")
    case.waivers.append(replace(WAIVER, kernel="ours", target="sm_90", test="*-attend_*", versions={"torch": "<2"}))


@spoils("unknown_lane")
def _(case: Case) -> None:
    files = files_of("cuda/sm_90", 1, 1, DAY + ONE_DAY)
    plan = Plan("mine", "sm_90", "standard", 1, files.plan.cells if files.plan else ())
    files.run = replace(files.run, lane="mine", plan=plan.digest)
    case.expects.append(Expect("mine", "sm_90", 1))
    case.shards["mine 1"] = Files(files.run, plan, files.events)


@spoils("clock_back")
def _(case: Case) -> None:
    case.shards[TWO].run = replace(case.shards[TWO].run, started=f"{DAY}T02:00:30+00:00", ended="")


@spoils("clock_apart")
def _(case: Case) -> None:
    case.today += 3 * ONE_DAY


@spoils("expired_quarantine")
def _(case: Case) -> None:
    case.quarantine = [replace(QUARANTINE, expires=DAY)]


@spoils("disputed")
def _(case: Case) -> None:
    case.shards[TWO].end(case.shards[TWO].ids[0], "xfailed", "disputed", models={"cvt.rn": True})


@spoils("unused_quarantine")
def _(case: Case) -> None:
    case.quarantine = [QUARANTINE]


@spoils("nothing_expected")
def _(case: Case) -> None:
    case.expects = []


@spoils("unexpected_place")
def _(case: Case) -> None:
    case.shards["rocm/gfx942 1"] = files_of("rocm/gfx942", 1, 1, DAY + ONE_DAY)


@spoils("place_dropped")
def _(case: Case) -> None:
    case.expects = [e for e in case.expects if e.lane != "cpu"]
    del case.shards["cpu/cpu 1"]


@spoils("no_history")
def _(case: Case) -> None:
    """Nothing is wrong: it is the first night."""


@spoils("narrowed")
def _(case: Case) -> None:
    case.shards["cpu/cpu 1"].run = replace(case.shards["cpu/cpu 1"].run, options=("-k", "cast"))


@spoils("retried")
def _(case: Case) -> None:
    case.shards[TWO].run = replace(case.shards[TWO].run, attempt=2)


@spoils("lanes_differ")
def _(case: Case) -> None:
    case.shards["cpu/cpu 1"].run = replace(case.shards["cpu/cpu 1"].run, commit="d" * 40)


@spoils("clock_moved")
def _(case: Case) -> None:
    case.shards[TWO].run = replace(case.shards[TWO].run, clock_moved=-61.0)
