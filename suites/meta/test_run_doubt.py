"""When a run that came to an end by itself is not believed: exit codes and results are held to each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from narrowgauge.ci.records import JOURNAL, LEDGER, Shard, read_shard
from narrowgauge.suites.lane_run import _exit_code, doubt
from narrowgauge.suites.meta.night_sets import Files, files_of
from narrowgauge.suites.supervising import Ended

pytestmark = pytest.mark.meta


def left(folder: Path, change: Callable[[Files], None] = lambda files: None) -> Shard:
    """What pytest left of the second of three shards, read as the run reads it: its own record says "started" then."""
    files = files_of("cuda/sm_90", 2, 3)
    change(files)
    files.run, files.seal = replace(files.run, state="started", exit_code=None), False
    return read_shard(files.write(folder / "run"))


def failed(files: Files) -> None:
    files.fail(files.ids[0])


def crashed(files: Files) -> None:
    files.end(files.ids[0], "error", None)


def nothing(files: Files) -> None:
    assert files.plan is not None
    files.events, files.plan = [], replace(files.plan, cells=())


@pytest.mark.parametrize(("change", "code"), [(None, 0), (failed, 1), (crashed, 1), (nothing, 5)])
def test_only_the_exit_code_that_the_results_say_is_believed(
    change: Callable[[Files], None] | None, code: int, tmp_path: Path
) -> None:
    found = left(tmp_path, *([change] if change else []))
    for told in (0, 1, 2, 3, 4, 5, -9, -11, 139):
        ended = Ended(told)
        said = doubt(ended, found, 2)
        assert (said == "") is (told == code), told
        if told != code:
            assert f"pytest ended with {told}, its results say {code}" in said
        bad_input = told == 4 and not found.begun
        assert _exit_code(ended, found, said) == (told if told == code or bad_input else 3)


def test_tests_that_never_ended_are_named(tmp_path: Path) -> None:
    found = left(tmp_path, lambda files: [files.drop(files.ids[n], "end") for n in (1, 2)] and None)
    said = doubt(Ended(0), found, 2)
    assert said.startswith(f"2 planned tests never ended, first {files_of('cuda/sm_90', 2, 3).ids[1]}; running were ")
    assert _exit_code(Ended(0), found, said) == 3


@pytest.mark.parametrize("events", [["begin"], ["end"]])
def test_tests_that_ran_twice(events: list[str], tmp_path: Path) -> None:
    def again(files: Files) -> None:
        files.events += [files.event(event, files.ids[0]) for event in events]

    assert doubt(Ended(0), left(tmp_path, again), 2).startswith("1 tests ran twice")


def test_a_journal_with_a_hole(tmp_path: Path) -> None:
    left(tmp_path)
    with (tmp_path / "run" / JOURNAL).open("a") as file:
        file.write("{\n")
    assert doubt(Ended(0), read_shard(tmp_path / "run"), 2).startswith(f"results are damaged: {JOURNAL} line ")


def test_a_ledger_that_was_not_written(tmp_path: Path) -> None:
    found = left(tmp_path)
    (tmp_path / "run" / LEDGER).unlink()
    assert doubt(Ended(0), found, 2) == f"{LEDGER} could not be written (pytest.log says why)"


@pytest.mark.parametrize(("code", "why", "exit_code"), [(4, "", 4), (4, "hung", 3), (0, "", 3), (1, "", 3)])
def test_without_a_plan_bad_input_alone_is_bad_input(code: int, why: str, exit_code: int, tmp_path: Path) -> None:
    def unplanned(files: Files) -> None:
        files.events, files.plan = [], None

    found = left(tmp_path, unplanned)
    ended = Ended(code, why)
    said = why or doubt(ended, found, 2)
    assert "there is no plan" in said or why
    assert _exit_code(ended, found, said) == exit_code
