"""What a run's record says of its job and its commit, and its journal of the end of a test."""

from __future__ import annotations

import json
import subprocess
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from narrowgauge.ci.records import JOURNAL, PLAN, Plan
from narrowgauge.plugin import nightly
from narrowgauge.suites import lane_run

pytestmark = pytest.mark.meta

NAMES = (
    "GITHUB_RUN_ATTEMPT", "GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID", "BUILDKITE_RETRY_COUNT",
    "BUILDKITE_BUILD_URL", "NARROWGAUGE_COMMIT",
)  # fmt: skip


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("said", "attempt"),
    [
        ({}, 1),
        ({"GITHUB_RUN_ATTEMPT": "1"}, 1),
        ({"GITHUB_RUN_ATTEMPT": "2"}, 2),
        ({"BUILDKITE_RETRY_COUNT": "0"}, 1),
        ({"BUILDKITE_RETRY_COUNT": "1"}, 2),
        ({"GITHUB_RUN_ATTEMPT": "", "BUILDKITE_RETRY_COUNT": "x"}, 1),
    ],
)
def test_which_attempt_it_is(said: dict[str, str], attempt: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """GitHub counts from 1, Buildkite its retries from 0."""
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    assert lane_run._attempt() == attempt


def test_where_the_job_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lane_run._build() == ""
    monkeypatch.setenv("BUILDKITE_BUILD_URL", "https://buildkite.com/o/p/builds/7")
    assert lane_run._build() == "https://buildkite.com/o/p/builds/7"
    for name, value in (("SERVER_URL", "https://github.com"), ("REPOSITORY", "o/r"), ("RUN_ID", "8")):
        monkeypatch.setenv(f"GITHUB_{name}", value)
    assert lane_run._build() == "https://github.com/o/r/actions/runs/8"


def test_which_commit_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that git does not know, such as the results themselves, change nothing; others do."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@y", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    monkeypatch.setattr(lane_run, "PACKAGE", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert lane_run._commit() == ""
    git("init", "-q")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-qm", "a")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "run.json").write_text("{}")
    assert lane_run._commit() == git("rev-parse", "HEAD")
    (tmp_path / "a").write_text("2")
    assert lane_run._commit() == git("rev-parse", "HEAD") + "+changed"
    monkeypatch.setenv("NARROWGAUGE_COMMIT", "d" * 40)
    assert lane_run._commit() == "d" * 40


TEST = "suites/casts/test_casts.py::test_cell[x]"


@pytest.mark.parametrize(
    ("changed", "outcome"),
    [
        ({}, "passed"),
        ({"call": ("failed", False)}, "failed"),
        ({"call": ("skipped", False)}, "skipped"),
        ({"call": ("skipped", True)}, "xfailed"),
        ({"setup": ("failed", False), "call": None}, "error"),
        ({"setup": ("skipped", False), "call": None}, "skipped"),
        ({"teardown": ("failed", False)}, "error"),
        ({"call": ("skipped", True), "teardown": ("failed", False)}, "error"),
        ({"call": ("failed", False), "teardown": ("failed", False)}, "error"),
    ],
)
def test_how_the_journal_says_a_test_ended(
    changed: dict[str, tuple[Literal["passed", "failed", "skipped"], bool] | None], outcome: str, tmp_path: Path
) -> None:
    """As pytest reports its three phases; a waived or disputed test is reported as skipped, with a mark."""
    config: Any = SimpleNamespace(option=SimpleNamespace(narrowgauge_out=tmp_path))
    journal = nightly.Journal(config)
    journal.pytest_sessionstart()
    journal.pytest_runtest_logstart(TEST)
    phases: dict[Any, Any] = dict.fromkeys(("setup", "call", "teardown"), ("passed", False)) | changed
    for when, told in phases.items():
        if told is None:
            continue
        report = pytest.TestReport(TEST, ("", 0, ""), {}, told[0], None, when)
        if told[1]:
            report.wasxfail = "waived"
        journal.pytest_runtest_logreport(report)
    journal.pytest_sessionfinish()
    begin, end = [json.loads(line) for line in (tmp_path / JOURNAL).read_text().splitlines()]
    assert (begin["event"], end["event"]) == ("begin", "end")
    assert begin["id"] == end["id"] == f"narrowgauge/{TEST}"
    assert end["outcome"] == outcome


def test_each_shard_keeps_its_part_of_one_plan(tmp_path: Path) -> None:
    """Together they run everything, and nothing twice; whichever it is, the plan is the same."""
    kept: list[list[str]] = []
    plans: list[Plan] = []
    for shard in (1, 2, 3):
        items: list[Any] = [_item(n) for n in range(7)]
        left_out: list[Any] = []
        out = tmp_path / str(shard)
        option = SimpleNamespace(
            narrowgauge_lane="cuda/sm_90",
            narrowgauge_shard=f"{shard}/3",
            narrowgauge_out=out,
            narrowgauge_depth="smoke",
        )
        hook = SimpleNamespace(pytest_deselected=partial(_tell, left_out))
        config: Any = SimpleNamespace(option=option, hook=hook)
        session: Any = SimpleNamespace(testsfailed=0)
        nightly.pytest_collection_modifyitems(session, config, items)
        kept.append([f"narrowgauge/{item.nodeid}" for item in items])
        plans.append(Plan.from_json(json.loads((out / PLAN).read_text())))
        assert kept[-1] == [cell.id for cell in plans[-1].of_shard(shard)]
        assert len(items) + len(left_out) == 7
    assert all(kept)
    assert sorted(i for ids in kept for i in ids) == sorted(f"narrowgauge/{_item(n).nodeid}" for n in range(7))
    assert plans[0] == plans[1] == plans[2]


def _tell(told: list[Any], items: list[Any]) -> None:
    told += items


def _item(number: int) -> Any:
    names: dict[str, Any] = {"operation": "unit", "rule": "r", "source": "s", "format": "f", "case": f"c{number}"}
    names |= {"kernel": f"k{number}", "owner": "", "own": True, "target": "sm_90"}
    one = SimpleNamespace(names=names, markers=())
    nodeid = f"suites/units/test_units.py::test_recorded[{number}]"
    return SimpleNamespace(nodeid=nodeid, callspec=SimpleNamespace(params={"recording": one}))
