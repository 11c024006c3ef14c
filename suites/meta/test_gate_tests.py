"""The gate on tests: each planned one must have run once, and ended as its verdict says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from narrowgauge.contracts.verdict import Exit
from narrowgauge.suites.meta.night_sets import WAIVER, files_of, night, red, said

pytestmark = pytest.mark.meta

TWO = "cuda/sm_90 2"


@pytest.mark.parametrize(
    ("outcome", "result", "kind"),
    [
        ("failed", None, "crashed"),  # a worker that died leaves no verdict
        ("error", None, "crashed"),
        ("error", "passed", "crashed"),  # a verdict, and then a broken end
        ("failed", "waived", "crashed"),
        ("skipped", None, "no_verdict"),
        ("xfailed", None, "no_verdict"),
        ("skipped", "passed", "no_verdict"),
        ("passed", "not_executed", "no_verdict"),
        ("passed", "disputed", "no_verdict"),
        ("passed", "failed", "new_failure"),  # the verdict counts
        ("error", "failed", "new_failure"),
    ],
)
def test_an_end_that_is_not_what_its_verdict_is(outcome: str, result: str | None, kind: str, tmp_path: Path) -> None:
    case = night()
    files = case.shards[TWO]
    files.end(files.ids[0], outcome, result)
    files.run = replace(files.run, exit_code=int(outcome in ("failed", "error")))
    report = case.judge(tmp_path)
    assert red(report) == [(kind, "cuda/sm_90 2/3")]
    assert report.exit == Exit.FAILED


@pytest.mark.parametrize("code", [0, 2, 3, 4, 5, 139, -11, None])
def test_an_exit_code_that_hides_a_failure(code: int | None, tmp_path: Path) -> None:
    case = night()
    case.shards[TWO].fail(case.shards[TWO].ids[0])
    case.shards[TWO].run = replace(case.shards[TWO].run, exit_code=code)
    assert {kind for kind, _ in red(case.judge(tmp_path))} == {"exit_code", "new_failure"}


@pytest.mark.parametrize("code", [2, 3, 4, 5, 139, -11, None])
def test_an_exit_code_of_a_run_that_did_not_come_to_its_end(code: int | None, tmp_path: Path) -> None:
    case = night()
    case.shards[TWO].run = replace(case.shards[TWO].run, exit_code=code)
    assert red(case.judge(tmp_path)) == [("exit_code", "cuda/sm_90 2/3")]


def test_an_exit_code_that_knows_of_a_failure_that_the_journal_does_not(tmp_path: Path) -> None:
    case = night()
    case.shards[TWO].run = replace(case.shards[TWO].run, exit_code=1)
    assert red(case.judge(tmp_path)) == [("exit_code", "cuda/sm_90 2/3")]


def test_a_verdict_under_another_tests_name(tmp_path: Path) -> None:
    case = night()
    files = case.shards[TWO]
    files.event("end", files.ids[0])["row"]["id"] = files.ids[1]
    assert red(case.judge(tmp_path)) == [("foreign_id", "cuda/sm_90 2/3")]


@pytest.mark.parametrize("events", [["begin"], ["end"], ["begin", "end"]])
def test_a_test_that_is_there_twice(events: list[str], tmp_path: Path) -> None:
    case = night()
    files = case.shards[TWO]
    files.events += [files.event(event, files.ids[0]) for event in events]
    assert red(case.judge(tmp_path)) == [("duplicate_id", "cuda/sm_90 2/3")]


def test_a_test_that_is_planned_twice(tmp_path: Path) -> None:
    """In two shards: each runs it, and neither is told of the other."""
    case = night()
    plans = [files.plan for files in case.shards.values() if files.run.place == "cuda/sm_90"]
    first = plans[0].of_shard(1)[0] if plans[0] is not None else None
    assert first is not None
    for files in case.shards.values():
        if files.run.place == "cuda/sm_90" and files.plan is not None:
            files.plan = replace(files.plan, cells=(*files.plan.cells, replace(first, shard=2)))
            files.run = replace(files.run, plan=files.plan.digest)
    one, two = case.shards["cuda/sm_90 1"], case.shards[TWO]
    two.events += [one.event("begin", first.id), one.event("end", first.id)]
    found = case.judge(tmp_path)
    assert {kind for kind, _ in red(found)} == {"duplicate_id"}
    assert [f.said for f in found.red if f.shard == "2/3"] == [
        f"{first.id} is there twice", f"{first.id} ran in shard 1/3 too",
    ]  # fmt: skip


def test_a_failure_is_not_hidden_by_a_second_directory_of_its_shard(tmp_path: Path) -> None:
    for number, failing in enumerate(("cuda/sm_90 2", "cuda/sm_90 2 again")):
        case = night()
        case.shards["cuda/sm_90 2 again"] = files_of("cuda/sm_90", 2, 3)
        case.shards[failing].fail(case.shards[failing].ids[0])
        kinds = {kind for kind, _ in red(case.judge(tmp_path / str(number)))}
        assert kinds == {"duplicate_shard", "new_failure"}


def test_a_test_that_is_twice_in_the_plan_of_one_shard(tmp_path: Path) -> None:
    case = night()
    for files in case.shards.values():
        if files.run.place == "cuda/sm_90" and files.plan is not None:
            files.plan = replace(files.plan, cells=(*files.plan.cells, files.plan.of_shard(2)[0]))
            files.run = replace(files.run, plan=files.plan.digest)
    assert {kind for kind, _ in red(case.judge(tmp_path))} == {"duplicate_id"}


def test_a_crash_is_not_hidden_by_a_second_directory_of_its_shard(tmp_path: Path) -> None:
    for number, crashing in enumerate(("cuda/sm_90 2", "cuda/sm_90 2 again")):
        case = night()
        case.shards["cuda/sm_90 2 again"] = files_of("cuda/sm_90", 2, 3)
        case.shards[crashing].drop(case.shards[crashing].ids[0], "end")
        report = case.judge(tmp_path / str(number))
        assert {kind for kind, _ in red(report)} == {"duplicate_shard", "crashed"}
        assert [c.test.result for c in report.changes.failing] == ["crashed"]


def test_a_lost_shard_does_not_hide_what_another_did_not_run(tmp_path: Path) -> None:
    case = night()
    lost = case.shards["cuda/sm_90 1"]
    lost.run, lost.seal = replace(lost.run, state="started", exit_code=None, ended=""), False
    lost.drop(lost.ids[-1], "begin", "end")
    two = case.shards[TWO]
    two.drop(two.ids[0], "begin", "end")
    assert red(case.judge(tmp_path)) == [("lost", "cuda/sm_90 1/3"), ("unrun", "cuda/sm_90 2/3")]


@pytest.mark.parametrize("result", ["waived", "disputed"])
def test_an_operation_that_is_known_to_be_wrong_was_executed_all_the_same(result: str, tmp_path: Path) -> None:
    case = night(places=["cpu/cpu"])
    (files,) = case.shards.values()
    for nodeid in files.ids:
        if "-matmul_" in nodeid:
            files.end(nodeid, "xfailed", result, waiver=WAIVER.link if result == "waived" else "")
    case.expects, case.waivers = [], [replace(WAIVER, test="*")]
    assert case.judge(tmp_path).exit == Exit.OK


def test_a_test_of_another_shard_that_only_began(tmp_path: Path) -> None:
    case = night()
    other = case.shards["cuda/sm_90 1"].ids[0]
    case.shards[TWO].events.append({"event": "begin", "id": other})
    assert red(case.judge(tmp_path)) == [("foreign_id", "cuda/sm_90 2/3")]


@pytest.mark.parametrize("came", [True, False])
def test_what_a_lost_shard_may_have_executed_is_not_called_skipped(came: bool, tmp_path: Path) -> None:
    """Of an operation one test is not executed in a shard that came, and the other is owed by one that did not end."""
    case = night()
    two = case.shards[TWO]
    (owed,) = [i for i in two.ids if "-attend_" in i]
    two.drop(owed, "begin", "end")
    two.run, two.seal = replace(two.run, state="started", exit_code=None, ended=""), False
    if not came:
        del case.shards[TWO]
    one = case.shards["cuda/sm_90 1"]
    one.end(next(i for i in one.ids if "-attend_" in i), "skipped", "not_executed", reason="no triton")
    assert red(case.judge(tmp_path)) == [("lost" if came else "missing_shard", "cuda/sm_90 2/3")]


def test_an_operation_of_which_nothing_was_executed_anywhere_on_a_place(tmp_path: Path) -> None:
    case = night()
    for files in case.shards.values():
        for nodeid in files.ids:
            if "-attend_" in nodeid and files.run.lane == "cuda":
                files.end(nodeid, "skipped", "not_executed", reason="no triton")
    report = case.judge(tmp_path)
    assert red(report) == [("skipped_path", "cuda/sm_90")]
    assert said(report, "skipped_path") == "attend: no triton"
    one = next(f for f in case.shards.values() if any("-attend_0" in i for i in f.ids))
    one.end(next(i for i in one.ids if "-attend_0" in i), "passed", "passed")
    assert case.judge(tmp_path / "one").exit == Exit.OK


def test_an_operation_that_a_lost_shard_may_have_executed_is_not_skipped(tmp_path: Path) -> None:
    """Of its two tests one is not executed, and the other belongs to the lost shard."""
    case = night()
    for name in ("cuda/sm_90 1", "cuda/sm_90 3"):
        for nodeid in case.shards[name].ids:
            if "-attend_" in nodeid:
                case.shards[name].end(nodeid, "skipped", "not_executed", reason="no triton")
    assert sum("-attend_" in nodeid for nodeid in case.shards[TWO].ids) == 1
    del case.shards[TWO]
    assert red(case.judge(tmp_path)) == [("missing_shard", "cuda/sm_90 2/3")]
