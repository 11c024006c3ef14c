"""Faults that ``narrowgauge run`` and the gate must not pass, with a stub in pytest's place. docs/nightly.md has them.

What pytest itself does when it is broken is in test_run_broken.py.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from narrowgauge.ci.records import LEDGER, PLAN
from narrowgauge.contracts.errors import Infrastructure
from narrowgauge.contracts.verdict import Exit
from narrowgauge.suites import lane_run, supervising
from narrowgauge.suites.lane_run import ADDED, LOG
from narrowgauge.suites.meta.break_sets import IDS, LANE, Files, gate, holds, ran, stubbed

pytestmark = [pytest.mark.meta, pytest.mark.usefixtures("quick_runs")]


# --- how pytest ends -------------------------------------------------------------------------------------------------


def test_nothing_is_wrong(tmp_path: Path) -> None:
    holds("nothing", ran(tmp_path / "out"), tmp_path / "out")


def test_a_kernel_is_wrong(tmp_path: Path) -> None:
    files = Files(verdicts={**dict.fromkeys(IDS, "passed"), IDS[1]: "failed"}, code=1)
    holds("wrong", ran(tmp_path / "out", files), tmp_path / "out")


@pytest.mark.parametrize("code", [1, 2, 3, 4, 5, 6, 247])
def test_an_exit_code_says_less_than_the_results(tmp_path: Path, code: int) -> None:
    holds("exit code", ran(tmp_path / "out", Files(code=code)), tmp_path / "out")


def test_exit_code_0_does_not_hide_a_failure(tmp_path: Path) -> None:
    files = Files(verdicts={**dict.fromkeys(IDS, "passed"), IDS[1]: "failed"})
    run = stubbed(tmp_path / "out", files)
    assert "pytest ended with 0, its results say 1: 1 tests failed" in run.judge(quiet=True).reason
    assert (run.exit_code, gate(tmp_path / "out")) == (3, (1, {"stopped", "new_failure"}, set()))


@pytest.mark.parametrize("code", [0, 1, 5])
def test_tests_that_never_began_or_ended_are_told(tmp_path: Path, code: int) -> None:
    files = Files(verdicts={IDS[0]: "passed", IDS[1]: None}, code=code)
    run = stubbed(tmp_path / "out", files)
    reason = run.judge(quiet=True).reason
    assert reason == f"2 planned tests never ended, first {IDS[1]}; running were {IDS[1]}; pytest ended with {code}"
    assert (run.exit_code, gate(tmp_path / "out")) == (3, (3, {"stopped"}, set()))


def test_options_of_the_environment_are_given_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are among the run's own, where they are looked at and recorded."""
    monkeypatch.setenv(ADDED, "-k nothing")
    assert ran(tmp_path / "out", Files(after=f'test -z "${ADDED}" || exit 9')) == 0


def test_pytest_is_killed(tmp_path: Path) -> None:
    files = Files(verdicts={IDS[0]: "passed", IDS[1]: None}, after="kill -KILL $$")
    run = stubbed(tmp_path / "out", files)
    assert run.judge(quiet=True).reason.endswith(f"running were {IDS[1]}; pytest ended with -9")
    holds("controller", run.exit_code, tmp_path / "out")


def test_a_test_that_runs_twice(tmp_path: Path) -> None:
    """As a plugin would have it that reruns what failed: the journal has both."""
    run = stubbed(tmp_path / "out", Files(tail="".join(Files().lines()[:2])))
    assert run.judge(quiet=True).reason == f"1 tests ran twice, first {IDS[0]}: nothing may rerun them"
    holds("twice", run.exit_code, tmp_path / "out")


def test_no_test_at_all(tmp_path: Path) -> None:
    holds(
        "nothing selected",
        ran(tmp_path / "out", Files(verdicts={}, planned=(), without=(LEDGER,), code=5)),
        tmp_path / "out",
    )


def test_no_plan(tmp_path: Path) -> None:
    assert ran(tmp_path / "out", Files(without=(PLAN,))) == 3
    assert gate(tmp_path / "out") == (3, {"stopped"}, set())


def test_no_ledger(tmp_path: Path) -> None:
    holds("no ledger", ran(tmp_path / "out", Files(without=(LEDGER,))), tmp_path / "out")


@pytest.mark.parametrize(
    "tail", ['{"event": "end"', '{"event": "end"}\n', "[]\n", '\x00\n{"event": "begin", "id": "b"}\n']
)
def test_a_journal_that_cannot_be_read_to_its_end(tmp_path: Path, tail: str) -> None:
    run = stubbed(tmp_path / "out", Files(tail=tail))
    assert "results are damaged: journal.jsonl" in run.judge(quiet=True).reason
    assert (run.exit_code, gate(tmp_path / "out")[0]) == (3, 3)


# --- time ------------------------------------------------------------------------------------------------------------

STUCK = Files(verdicts={IDS[0]: "passed", IDS[1]: None}, after="sleep 600")


def test_pytest_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_run, "WHOLE_RUN", 0.3)
    run = stubbed(tmp_path / "out", STUCK, lane=replace(LANE, patience=1))
    record = run.judge(quiet=True)
    assert record.reason == "hung: no test began or ended for 0.3 s"
    holds("silence", run.exit_code, tmp_path / "out")


def test_the_time_of_the_lane_is_over(tmp_path: Path) -> None:
    run = stubbed(tmp_path / "out", STUCK, lane=replace(LANE, minutes=0.01))  # type: ignore[arg-type]
    record = run.judge(quiet=True)
    assert record.reason == "its 0.6 s are over"
    holds("too long", run.exit_code, tmp_path / "out")


@contextlib.contextmanager
def handling(number: int, handler: Any) -> Iterator[None]:
    """What whoever started us has for a signal."""
    before = signal.signal(number, handler)
    yield
    signal.signal(number, before)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_who_tells_us_to_stop_is_named(tmp_path: Path, name: str) -> None:
    run, number = stubbed(tmp_path / "out", STUCK), signal.Signals[name]
    with handling(number, lambda *_: None):
        threading.Timer(0.3, os.kill, (os.getpid(), number)).start()
        assert run.judge(quiet=True).reason == f"ended by {name}"
    holds("SIGTERM", run.exit_code, tmp_path / "out")


def test_a_run_under_nohup_goes_on(tmp_path: Path) -> None:
    run = stubbed(tmp_path / "out", Files(after="kill -HUP $PPID; sleep 0.3"))
    with handling(signal.SIGHUP, signal.SIG_IGN):
        assert run.judge(quiet=True).reason == ""


def test_a_second_signal_waits_no_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CI engine sends two, 7.5 s apart, and kills us 2.5 s after: the record must be written by then."""
    monkeypatch.setattr(supervising, "GRACE", 600.0)
    run = stubbed(tmp_path / "out", Files(after="trap '' INT; while true; do sleep 0.1; done"))
    for seconds in (0.3, 0.8):
        threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGTERM)).start()
    assert run.judge(quiet=True).reason == "ended by SIGTERM"


# --- clocks ----------------------------------------------------------------------------------------------------------

HOUR, WEEK = 3600.0, 7 * 24 * 3600.0


class Clock:
    """The wall clock, which can be set; the steady one goes on."""

    def __init__(self) -> None:
        self.now, self.moved = time.time, 0.0

    def __call__(self) -> float:
        return self.now() + self.moved


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "time", made)
    return made


@pytest.mark.parametrize(("name", "seconds"), [("clock forth", WEEK), ("clock back", -HOUR)])
def test_a_clock_that_is_set_on_the_way(tmp_path: Path, clock: Clock, name: str, seconds: float) -> None:
    run = stubbed(tmp_path / "out")
    clock.moved = seconds
    record = run.judge(quiet=True)
    assert abs(record.clock_moved - seconds) < 5
    assert 0 <= record.seconds < 60
    holds(name, run.exit_code, tmp_path / "out")


def test_a_clock_that_is_behind_all_the_time(tmp_path: Path, clock: Clock) -> None:
    clock.moved = -WEEK
    holds("clock behind", ran(tmp_path / "out"), tmp_path / "out")


# --- disks -----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full: nothing here is always full")
def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    run = stubbed(tmp_path / "out", Files(after="echo words"))
    (tmp_path / "out" / LOG).symlink_to("/dev/full")
    assert run.judge(quiet=True).reason == "pytest.log is cut: No space left on device"
    holds("log full", run.exit_code, tmp_path / "out")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 128 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk cannot be mounted here: that needs root on Linux")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_on_which_not_even_the_record_fits(small_disk: Path) -> None:
    out = small_disk / "out"
    run = stubbed(out, Files(after=f"dd if=/dev/zero of={small_disk}/more bs=1k 2>/dev/null"))
    with pytest.raises(Infrastructure, match=r"cannot write .*run.json: No space left .*: cpu/cpu 1/1 has no record"):
        run.judge(quiet=True)
    (small_disk / "more").unlink()
    holds("record full", Exit.INFRASTRUCTURE, out)
