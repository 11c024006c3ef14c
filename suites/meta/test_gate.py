"""The gate: a clean night is green, and each thing that can be wrong with one is found, by its name and alone."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from narrowgauge.ci.findings import KINDS
from narrowgauge.ci.gate import Report
from narrowgauge.contracts.verdict import Exit
from narrowgauge.suites.meta.night_sets import DAY, Case, night
from narrowgauge.suites.meta.night_spoiled import SPOILED, TWO

pytestmark = pytest.mark.meta

ONE_DAY = datetime.timedelta(days=1)


def red(report: Report) -> set[str]:
    return {finding.kind for finding in report.red}


def yellow(report: Report) -> set[str]:
    return {finding.kind for finding in report.yellow}


def after(folder: Path, *nights: Case) -> Report:
    """The report of the last of several nights, one a day, each with the history of those before it."""
    history, report = None, None
    for number, case in enumerate(nights):
        case.history, case.remembers = history, True
        report = case.judge(folder / f"night-{number}")
        history = report.history
    assert report is not None
    return report


def test_a_clean_night_is_green_and_so_are_those_after_it(tmp_path: Path) -> None:
    first, second = night(), night(DAY + ONE_DAY)
    report = after(tmp_path, first)
    assert (red(report), yellow(report), report.exit) == (set(), {"no_history"}, Exit.OK)
    report = after(tmp_path / "again", first, second)
    assert (report.findings, report.exit) == ((), Exit.OK)
    assert report.counts == {"passed": 39, "waived": 1}
    assert report.changes.last_green == f"{DAY} cccccccc"


# --- each kind, alone ------------------------------------------------------------------------------------------------


def test_every_kind_of_finding_is_tried_here() -> None:
    assert SPOILED.keys() == KINDS.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_finding_is_found_alone(kind: str, tmp_path: Path) -> None:
    first, second = night(), night(DAY + ONE_DAY)
    if kind == "still_failing":
        first.shards[TWO].fail(first.shards[TWO].ids[0])
    SPOILED[kind](second)
    report = after(tmp_path, second) if kind == "no_history" else after(tmp_path, first, second)
    assert {finding.kind for finding in report.findings} == {kind}, report.findings
    level, infrastructure = KINDS[kind].level, KINDS[kind].infrastructure
    assert bool(report.red) == (level == "red")
    assert report.exit == (Exit.OK if level == "yellow" else Exit.INFRASTRUCTURE if infrastructure else Exit.FAILED)
