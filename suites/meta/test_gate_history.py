"""Several nights: since when, last good, mended; what broken nights must not change; and the file itself."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

import pytest

from narrowgauge.ci.gate import Report
from narrowgauge.ci.history import State
from narrowgauge.ci.waivers import STALE
from narrowgauge.contracts.verdict import Exit
from narrowgauge.suites.meta.night_sets import DAY, Case, files_of, night

pytestmark = pytest.mark.meta

TWO = "cuda/sm_90 2"


def day(number: int) -> datetime.date:
    return DAY + datetime.timedelta(days=number)


def name(number: int) -> str:
    return f"{day(number)} cccccccc"


def failing(number: int) -> Case:
    """A night in which the first test of the second shard fails."""
    case = night(day(number))
    case.shards[TWO].fail(case.shards[TWO].ids[0])
    return case


def first_of(case: Case) -> str:
    return case.shards[TWO].ids[0]


def nights(folder: Path, *cases: Case) -> list[Report]:
    """Their reports, each with the history of those before it."""
    reports: list[Report] = []
    for number, case in enumerate(cases):
        case.history = reports[-1].history if reports else None
        reports.append(case.judge(folder / f"night-{number}"))
    return reports


def state(report: Report, case: Case) -> State:
    return report.history.places["cuda/sm_90"].cells[first_of(case)]


def kinds(report: Report) -> list[str]:
    return [finding.kind for finding in report.red]


def test_since_when_and_last_good(tmp_path: Path) -> None:
    cases = [night(day(0)), failing(1), failing(2), failing(3), night(day(4)), night(day(5))]
    reports = nights(tmp_path, *cases)
    assert [kinds(r) for r in reports] == [
        [], ["new_failure"], ["still_failing"], ["still_failing"], [], [],
    ]  # fmt: skip
    assert [state(r, cases[0]) for r in reports] == [
        State("passed", "", name(0), 1, name(0), name(0)),
        State("failed", "passed", name(1), 1, name(0), name(1)),
        State("failed", "passed", name(1), 2, name(0), name(2)),
        State("failed", "passed", name(1), 3, name(0), name(3)),
        State("passed", "failed", name(4), 1, name(4), name(4)),
        State("passed", "failed", name(4), 2, name(5), name(5)),
    ]
    assert [[c.test.cell.id for c in r.changes.fixed] for r in reports] == [
        [], [], [], [], [first_of(cases[0])], [],
    ]  # fmt: skip
    assert [r.changes.last_green for r in reports] == ["", name(0), name(0), name(0), name(0), name(4)]
    said = reports[3].red[0]
    assert f"since the night {name(1)}, 3 nights; passed last in the night {name(0)}" in said.said
    assert (said.kernel, said.owner, said.where) == ("ours", "owner-of-ours", "cuda/sm_90 2/3")
    assert said.said.startswith("cast.ties_away; 3 of 100 elements differ (3 value)")


def test_a_failure_that_was_never_well_says_so(tmp_path: Path) -> None:
    report = nights(tmp_path, failing(0))[0]
    assert kinds(report) == ["new_failure"]
    assert report.red[0].said.endswith("has not passed in a night that is known")


def test_a_crash_counts_as_a_failure_of_its_test(tmp_path: Path) -> None:
    crashed = night(day(1))
    crashed.shards[TWO].end(first_of(crashed), "error", None)
    crashed.shards[TWO].run = replace(crashed.shards[TWO].run, exit_code=1)
    reports = nights(tmp_path, night(day(0)), crashed, failing(2), night(day(3)))
    assert [kinds(r) for r in reports] == [[], ["crashed"], ["still_failing"], []]
    assert len(reports[3].changes.fixed) == 1


def test_a_test_whose_waiver_is_stale_passes(tmp_path: Path) -> None:
    case = night(day(1))
    case.shards[TWO].fail(first_of(case), reason=f"the waiver for it {STALE}", faults=[], differences={})
    reports = nights(tmp_path, night(day(0)), case)
    assert kinds(reports[1]) == ["stale_waiver"]
    assert state(reports[1], case) == State("passed", "", name(0), 2, name(1), name(1))


def broken(how: str, number: int) -> Case:
    """A night whose second shard says nothing, or nothing that can be believed; its first test fails there."""
    case = failing(number)
    files = case.shards[TWO]
    match how:
        case "missing":
            del case.shards[TWO]
        case "stopped" | "started":
            files.run = replace(files.run, state=how)
            files.drop(files.ids[-1], "begin", "end")
        case "cut":
            case.spoil = lambda folder: (folder / "cuda-sm_90 2" / "ledger.json").unlink()
        case "golden":
            files.run = replace(files.run, golden="h" * 64)
        case "clock":
            files.run = replace(files.run, ended=f"{day(number)}T01:00:00+00:00")
        case "today":
            case.today = day(number - 3)
        case "exit":
            files.run = replace(files.run, exit_code=3)
    return case


@pytest.mark.parametrize("how", ["missing", "stopped", "started", "cut", "golden", "clock", "today", "exit"])
def test_a_broken_night_is_not_good_and_takes_nothing_away(how: str, tmp_path: Path) -> None:
    cases = [night(day(0)), broken(how, 1), failing(2), broken(how, 3), failing(4), night(day(5))]
    reports = nights(tmp_path, *cases)
    assert all(r.exit != Exit.OK for r in reports[1:5])
    assert [state(r, cases[0]) for r in reports] == [
        State("passed", "", name(0), 1, name(0), name(0)),
        State("passed", "", name(0), 1, name(0), name(0)),
        State("failed", "passed", name(2), 1, name(0), name(2)),
        State("failed", "passed", name(2), 1, name(0), name(2)),
        State("failed", "passed", name(2), 2, name(0), name(4)),
        State("passed", "failed", name(5), 1, name(5), name(5)),
    ]
    assert [r.changes.last_green for r in reports] == ["", *[name(0)] * 5]
    whole = {i for place in reports[0].history.places.values() for i in place.cells}
    for report in reports:
        assert {i for place in report.history.places.values() for i in place.cells} == whole


def test_the_other_shards_of_a_broken_night_are_known(tmp_path: Path) -> None:
    case = broken("missing", 1)
    one = case.shards["cuda/sm_90 1"]
    one.fail(one.ids[0])
    report = nights(tmp_path, night(day(0)), case)[1]
    assert sorted(kinds(report)) == ["missing_shard", "new_failure"]
    assert report.exit == Exit.FAILED, "what was judged weighs more than the machines"
    assert report.history.places["cuda/sm_90"].cells[one.ids[0]].result == "failed"


def test_the_gate_may_be_asked_twice_about_a_night(tmp_path: Path) -> None:
    reports = nights(tmp_path, night(day(0)), failing(1), failing(1), failing(1))
    assert [kinds(r) for r in reports] == [[], *[["new_failure"]] * 3]
    assert reports[1].history == reports[2].history == reports[3].history
    reports = nights(tmp_path / "mended", failing(0), night(day(1)), night(day(1)))
    assert [len(r.changes.fixed) for r in reports] == [0, 1, 1]


def test_a_second_attempt_completes_a_night(tmp_path: Path) -> None:
    lost, again = failing(1), failing(1)
    del lost.shards[TWO]
    again.shards[TWO].run = replace(again.shards[TWO].run, attempt=2, started=f"{day(1)}T05:00:00+00:00")
    again.shards[TWO].run = replace(again.shards[TWO].run, ended=f"{day(1)}T05:30:00+00:00")
    reports = nights(tmp_path, night(day(0)), lost, again)
    assert [kinds(r) for r in reports] == [[], ["missing_shard"], ["new_failure"]]
    assert {s.nights for s in reports[2].history.places["cuda/sm_90"].cells.values()} == {1, 2}
    assert max(s.nights for s in reports[2].history.places["cpu/cpu"].cells.values()) == 2


def test_a_shard_that_is_uploaded_late_is_no_old_one(tmp_path: Path) -> None:
    """It started before the third, which was judged before it."""
    late = failing(1)
    del late.shards[TWO]
    reports = nights(tmp_path, night(day(0)), late, failing(1))
    assert [kinds(r) for r in reports] == [[], ["missing_shard"], ["new_failure"]]


def test_another_number_of_shards_hides_no_old_results(tmp_path: Path) -> None:
    old = night(day(1))
    old.today = day(2)
    old.expects = []
    old.shards = {"cuda/sm_90 1": files_of("cuda/sm_90", 1, 1, day(1)), "cpu/cpu 1": night(day(2)).shards["cpu/cpu 1"]}
    reports = nights(tmp_path, night(day(0)), night(day(2)), old)
    assert [(f.kind, f.where) for f in reports[2].red] == [("clock_back", "cuda/sm_90 1/1")]


def test_a_clock_that_went_forth_does_not_spoil_the_nights_to_come(tmp_path: Path) -> None:
    forth = night(day(1))
    files = forth.shards[TWO]
    files.run = replace(files.run, ended=f"{day(8)}T02:30:00+00:00", clock_moved=7 * 86400.0)
    reports = nights(tmp_path, night(day(0)), forth, night(day(2)))
    assert [[f.kind for f in r.findings] for r in reports] == [[], ["clock_moved"], []]
    assert [r.day for r in reports] == [day(0), day(1), day(2)]


def test_results_of_an_old_night_are_not_those_of_a_new_one(tmp_path: Path) -> None:
    old = night(day(1))
    old.today = day(2)
    reports = nights(tmp_path, night(day(0)), night(day(2)), old)
    assert kinds(reports[2]) == ["clock_back"] * 4
    assert reports[2].history == reports[1].history


def test_what_is_not_executed_any_more_stays_red_until_it_is_accepted(tmp_path: Path) -> None:
    def without(number: int, accept: bool = False) -> Case:
        case = night(day(number))
        case.shards[TWO].end(first_of(case), "skipped", "not_executed", reason="no triton")
        case.accept = accept
        return case

    cases = [night(day(0)), without(1), without(2), without(3, accept=True), without(4), night(day(5)), without(6)]
    reports = nights(tmp_path, *cases)
    lost = ["not_executed_now"]
    assert [kinds(r) for r in reports] == [[], lost, lost, [], [], [], lost]
    assert f"executed last in the night {name(0)}; now: no triton" in reports[2].red[0].said
    assert [f.kind for f in reports[3].findings] == ["accepted"]
    assert reports[4].findings == ()


def test_a_test_that_never_ran_here_is_no_loss(tmp_path: Path) -> None:
    case = night(day(0))
    case.shards[TWO].end(first_of(case), "skipped", "not_executed", reason="no triton")
    assert nights(tmp_path, case)[0].exit == Exit.OK


def thinned(number: int, commit: str = "c" * 40, accept: bool = False) -> Case:
    """A night whose plan has lost the second cast."""
    case = night(day(number), commit)
    for files in case.shards.values():
        if files.plan is not None and files.run.place == "cuda/sm_90":
            for cell in files.plan.cells:
                if "cast_1" in cell.id:
                    files.drop(cell.id, "begin", "end")
            files.plan = replace(files.plan, cells=tuple(c for c in files.plan.cells if "cast_1" not in c.id))
            files.run = replace(files.run, plan=files.plan.digest)
    case.accept = accept
    return case


def test_a_test_that_is_gone_stays_red_until_it_is_accepted(tmp_path: Path) -> None:
    reports = nights(tmp_path, night(day(0)), thinned(1), thinned(2), thinned(3, accept=True), thinned(4))
    assert [kinds(r) for r in reports] == [[], ["gone"], ["gone"], [], []]
    assert "cast_1" in reports[1].red[0].id
    assert [f.kind for f in reports[3].findings] == ["accepted"]


def test_another_commit_may_plan_less_and_says_so_once(tmp_path: Path) -> None:
    reports = nights(tmp_path, night(day(0)), thinned(1, "d" * 40), thinned(2, "d" * 40))
    assert [[f.kind for f in r.findings] for r in reports] == [[], ["plan_changed"], []]


def test_a_changed_checkout_is_no_commit(tmp_path: Path) -> None:
    commit = "c" * 40 + "+changed"
    reports = nights(tmp_path, night(day(0), commit), thinned(1, commit))
    assert [f.kind for f in reports[1].findings] == ["plan_changed"]


def test_a_narrowed_night_does_not_make_the_others_tests_go(tmp_path: Path) -> None:
    narrowed = thinned(1)
    for files in narrowed.shards.values():
        files.run = replace(files.run, options=("-k", "not cast_1"))
    reports = nights(tmp_path, night(day(0)), narrowed, night(day(2)))
    assert [kinds(r) for r in reports] == [[], [], []]
    assert reports[2].findings == ()


@pytest.mark.parametrize(
    ("options", "narrowing"),
    [
        (("--kernels", "mine.py"), ()),
        (("--kernels=mine.py", "--waivers", "-k", "--checkpoint=a", "--recordings", "b"), ()),
        (("--kernels", "mine.py", "-k", "not cast_1"), ("-k", "not cast_1")),
        (("--kernel-timeout=5",), ("--kernel-timeout=5",)),
    ],
)
def test_kernels_of_ones_own_do_not_narrow_a_night(
    options: tuple[str, ...], narrowing: tuple[str, ...], tmp_path: Path
) -> None:
    """What is gone is gone, with them too."""
    less = thinned(1)
    for files in less.shards.values():
        files.run = replace(files.run, options=options)
        assert files.run.narrowed_by == narrowing
    report = nights(tmp_path, night(day(0)), less)[1]
    assert {f.kind for f in report.findings} == ({"narrowed"} if narrowing else {"gone"})


def test_a_place_of_the_last_night_is_expected_where_nothing_is_named(tmp_path: Path) -> None:
    lost = night(day(1))
    del lost.shards["cpu/cpu 1"]
    lost.expects = []
    report = nights(tmp_path, night(day(0)), lost)[1]
    assert kinds(report) == ["missing_lane"]
    assert report.red[0].place == "cpu/cpu"
