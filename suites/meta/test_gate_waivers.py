"""The gate on waivers and clocks: stale, expired, unknown; and by which day that is judged."""

from __future__ import annotations

import datetime
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import narrowgauge
from narrowgauge.ci.gate import Report
from narrowgauge.ci.gate.night import moment
from narrowgauge.ci.history import History
from narrowgauge.contracts.verdict import Exit
from narrowgauge.suites.meta.night_sets import DAY, WAIVER, Case, night, red, said, waived_id

pytestmark = pytest.mark.meta

TWO = "cuda/sm_90 2"
ONE_DAY = datetime.timedelta(days=1)


def passing() -> Case:
    """A night in which nothing is waived, since all passes."""
    case = night()
    files = case.shards["cpu/cpu 1"]
    files.end(waived_id(files), "passed", "passed", waiver="", reason="")
    case.waivers = []
    return case


@pytest.mark.parametrize(
    ("change", "stale"),
    [
        ({"test": "float32-float8_e4m3fn-no_such_case-*"}, True),
        ({"test": "float32-float8_e4m3fn-matmul_0-*"}, False),  # it names a test; that it passes is the run's to say
        ({"test": "no-*", "kernel": "nobodys"}, False),  # not planned here: another lane's
        ({"test": "no-*", "target": "gfx942"}, False),
        ({"test": "no-*", "versions": {"torch": ">=2.14"}}, False),  # for another torch
        ({"test": "no-*", "versions": {"theirlib": ">=1"}}, True),  # the version that the kernel's row names
        ({"test": "no-*", "versions": {"theirlib": ">=2"}}, False),
    ],
)
def test_a_waiver_that_names_no_test_is_stale(change: dict[str, Any], stale: bool, tmp_path: Path) -> None:
    case = passing()
    files = case.shards["cpu/cpu 1"]
    files.event("end", waived_id(files))["row"]["distribution"] = {"name": "theirlib", "version": "1.2"}
    case.waivers = [replace(WAIVER, **change)]
    report = case.judge(tmp_path)
    assert red(report) == ([("stale_waiver", "cpu/cpu")] if stale else [])


def test_a_table_of_patterns_is_stale_as_a_whole(tmp_path: Path) -> None:
    """No drawn inputs are planned for what a waiver names, so that part of a list names nothing by its very being."""
    case = passing()
    case.waivers = [replace(WAIVER, test=test) for test in ("*-property-*", "*-matmul_0-*")]
    assert case.judge(tmp_path / "one").exit == Exit.OK
    case.waivers = [replace(WAIVER, test=test) for test in ("*-property-*", "*-no_such_case-*")]
    assert red(case.judge(tmp_path / "none")) == [("stale_waiver", "cpu/cpu")]


def test_a_smoke_run_and_a_narrowed_one_do_not_know_whether_a_waiver_names_nothing(tmp_path: Path) -> None:
    for number, change in enumerate(({"depth": "smoke"}, {"options": ("-k", "cast")})):
        case = passing()
        case.waivers = [replace(WAIVER, test="no-*")]
        files = case.shards["cpu/cpu 1"]
        assert files.plan is not None
        files.run = replace(files.run, **change)  # type: ignore[arg-type]
        files.plan = replace(files.plan, depth=files.run.depth)
        files.run = replace(files.run, plan=files.plan.digest)
        assert case.judge(tmp_path / str(number)).exit == Exit.OK


def test_a_waiver_is_good_until_the_end_of_its_day(tmp_path: Path) -> None:
    for expires, exits in ((DAY, Exit.OK), (DAY - ONE_DAY, Exit.FAILED)):
        case = night()
        case.waivers = [replace(WAIVER, expires=expires)]
        assert case.judge(tmp_path / str(expires)).exit == exits


def test_an_expired_waiver_of_many_targets_is_one_finding(tmp_path: Path) -> None:
    case = night()
    case.waivers += [replace(WAIVER, target=t, kernel="other", expires=DAY - ONE_DAY) for t in ("gfx942", "gfx950")]
    report = case.judge(tmp_path)
    words = f"the waiver for other on gfx942, gfx950 ({WAIVER.link}) was good until {DAY - ONE_DAY}; today is {DAY}"
    assert said(report, "expired_waiver") == words


@pytest.mark.parametrize("change", [{"link": "https://example.org/2"}, {"test": "*-cast_0-*"}, {"kernel": "ours"}])
def test_a_test_must_be_waived_by_a_waiver_that_the_gate_has(change: dict[str, Any], tmp_path: Path) -> None:
    case = night()
    case.waivers = [replace(WAIVER, **change)]
    assert ("unknown_waiver", "cpu/cpu 1/1") in red(case.judge(tmp_path))


def test_no_other_part_of_the_suite_judges_by_the_date_of_a_waiver() -> None:
    """The self-test of an old tag must be as green as on its day. (A run prints which waivers are past their date, and
    test_plugin.py sees that its exit code is 0.)"""
    package = Path(narrowgauge.__file__).parent
    rooms = [package / room for room in ("ci", "suites", "plugin", "command", "reference", "devices")]
    found = {
        str(path.relative_to(package))
        for room in rooms
        for path in room.rglob("*.py")
        if "meta" not in path.parts and re.search(r"\.expire[ds]\b", path.read_text())
    }
    gate = {"ci/gate/__init__.py", "ci/gate/waiving.py"}
    words = {"command/gate_words.py", "plugin/recording.py", "ci/allure/config.py"}  # they say the date
    assert found == gate | words | {"ci/waivers.py", "ci/quarantine.py"}


# --- the day -------------------------------------------------------------------------------------------------------


def judged_on(folder: Path, today: datetime.date, ran: datetime.date, latest: datetime.date | None) -> Report:
    case = night(ran)
    case.today = today
    case.waivers = [replace(WAIVER, expires=DAY)]
    case.history = History(latest) if latest is not None else None
    return case.judge(folder)


@pytest.mark.parametrize(
    ("today", "ran", "latest", "kinds"),
    [
        (0, 0, None, set()),
        (0, -1, 0, set()),
        (1, 0, None, {"expired_waiver"}),  # by the gate's own clock
        (0, 1, None, {"expired_waiver"}),  # the gate's clock is behind: the run proves a later day
        (0, 0, 1, {"expired_waiver", "clock_back"}),  # as does the history
        (0, 3, None, {"expired_waiver", "clock_apart"}),
        (3, 0, None, {"expired_waiver", "clock_apart"}),
        (0, -3, None, {"clock_apart"}),
    ],
)
def test_the_day_is_the_latest_that_anything_proves(
    today: int, ran: int, latest: int | None, kinds: set[str], tmp_path: Path
) -> None:
    at = [None if n is None else DAY + n * ONE_DAY for n in (today, ran, latest)]
    assert at[0] is not None
    assert at[1] is not None
    report = judged_on(tmp_path, at[0], at[1], at[2])
    assert {f.kind for f in report.red} == kinds
    assert report.day == max(day for day in at if day is not None)


def test_a_run_that_ended_before_it_began(tmp_path: Path) -> None:
    case = night()
    case.shards[TWO].run = replace(case.shards[TWO].run, ended=f"{DAY}T02:01:59+00:00")
    assert red(case.judge(tmp_path)) == [("clock_back", "cuda/sm_90 2/3")]


@pytest.mark.parametrize(("moved", "told"), [(60.0, False), (-60.0, False), (60.1, True), (-60.1, True)])
def test_a_clock_that_was_set_on_the_way_is_said(moved: float, told: bool, tmp_path: Path) -> None:
    case = night()
    case.shards[TWO].run = replace(case.shards[TWO].run, clock_moved=moved)
    report = case.judge(tmp_path)
    assert ("clock_moved" in {f.kind for f in report.yellow}) == told
    assert report.exit == Exit.OK


def test_times_are_utc_wherever_they_were_written() -> None:
    assert moment("2026-11-30T23:30:00-02:00") == moment("2026-12-01T01:30:00+00:00") == moment("2026-12-01T01:30:00")
    assert moment("2026-11-30T24:30:00") is None
