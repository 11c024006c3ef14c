"""Faults that ``narrowgauge run`` and the gate must not pass, with a stub in pytest's place. docs/nightly.md has them.

What pytest itself does when it is broken is in test_run_broken.py.
"""

from __future__ import annotations

import datetime
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from narrowgauge.ci.gate import Rules
from narrowgauge.ci.gate import gate as judged
from narrowgauge.ci.records import JOURNAL, LEDGER, PLAN, RUN, read_shard
from narrowgauge.contracts.errors import Infrastructure
from narrowgauge.contracts.verdict import Exit
from narrowgauge.golden.manifest import NAME
from narrowgauge.suites import lane_run, supervising
from narrowgauge.suites.lane_run import LOG
from narrowgauge.suites.meta.break_sets import IDS, LANE, Files, gate, holds, stubbed
from narrowgauge.suites.meta.injected import FAULTS, PAGE, page

pytestmark = pytest.mark.meta


def test_every_fault_is_injected() -> None:
    sources = "".join(p.read_text() for p in Path(__file__).parent.glob("test_run_*.py"))
    assert [name for name in FAULTS if f'"{name}"' not in sources] == []


@pytest.mark.skipif(not PAGE.exists(), reason="docs/ is not installed with the package")
def test_the_page_is_written_from_the_faults() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text, "python -m narrowgauge.suites.meta.injected"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks often, and asks no git for the commit."""
    monkeypatch.setattr(supervising, "LOOK", 0.02)
    monkeypatch.setenv("NARROWGAUGE_COMMIT", "c" * 40)


def ran(out: Path, files: Files | None = None, **values: object) -> int:
    """The exit code of a run whose pytest leaves these files."""
    run = stubbed(out, files, **values)  # type: ignore[arg-type]
    run.judge(quiet=True)
    return run.exit_code


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


@pytest.mark.parametrize("number", supervising.STOPS)
def test_who_tells_us_to_stop_is_named(tmp_path: Path, number: signal.Signals) -> None:
    run = stubbed(tmp_path / "out", STUCK)
    threading.Timer(0.3, os.kill, (os.getpid(), number)).start()
    assert run.judge(quiet=True).reason == f"ended by {number.name}"
    holds("SIGTERM", run.exit_code, tmp_path / "out")


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


# --- files, afterwards -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a whole run left. Copy it before you change it."""
    out = tmp_path_factory.mktemp("whole") / "out"
    assert ran(out) == 0
    return out


@pytest.mark.parametrize(("name", "fault"), [(JOURNAL, "cut"), (PLAN, "cut"), (LEDGER, "cut"), (RUN, "no record")])
def test_a_file_that_is_gone(whole: Path, tmp_path: Path, name: str, fault: str) -> None:
    shutil.copytree(whole, tmp_path / "out")
    (tmp_path / "out" / name).unlink()
    holds(fault, None, tmp_path / "out")


RULES, TODAY = Rules({LANE.name: LANE}), datetime.datetime.now(datetime.UTC).date()


@given(st.data())
@settings(max_examples=150)
def test_no_cut_and_no_other_byte_is_passed(whole: Path, data: st.DataObject) -> None:
    """Of sealed files any byte counts. Of run.json, which seals them, a cut does."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        shutil.copytree(whole, out)
        name = data.draw(st.sampled_from([JOURNAL, PLAN, LEDGER, RUN]))
        content = (out / name).read_bytes()
        place = data.draw(st.integers(0, len(content.rstrip()) - 1))
        changed = content[:place]
        if name != RUN and data.draw(st.booleans()):
            changed += bytes([content[place] ^ data.draw(st.integers(1, 255))]) + content[place + 1 :]
        (out / name).write_bytes(changed)
        assert read_shard(out).problems
        report = judged([read_shard(out)], RULES, None, TODAY)
        assert "damaged" in {finding.kind for finding in report.red}


# --- nights of several shards ----------------------------------------------------------------------------------------

THREE = replace(LANE, shards=3)
#: of three shards, which has which test
DEALT = {i: k for k, i in enumerate(IDS, 1)}


def night(folder: Path, *files: Files | None) -> list[Path]:
    """Runs of three shards, of one test each."""
    for k, left in enumerate(files, 1):
        shard(folder / str(k), k, left or Files({IDS[k - 1]: "passed"}, shards=DEALT))
    return [folder / str(k) for k in range(1, len(files) + 1)]


def shard(out: Path, k: int, files: Files) -> None:
    assert ran(out, replace(files, of=3), lane=THREE, shard=k, shards=3) == 0


def test_three_shards(tmp_path: Path) -> None:
    holds("three shards", 0, *night(tmp_path, None, None, None), lane=THREE)


def test_a_shard_that_is_lost(tmp_path: Path) -> None:
    outs = night(tmp_path, None, None, None)
    shutil.rmtree(outs.pop(1))
    holds("shard lost", None, *outs, lane=THREE)


def test_shards_with_different_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outs = night(tmp_path, None, None)
    (tmp_path / NAME).write_text("{}")
    monkeypatch.setattr(lane_run, "VECTORS", tmp_path)
    shard(tmp_path / "3", 3, Files({IDS[2]: "passed"}, shards=DEALT))
    holds("other vectors", None, *outs, tmp_path / "3", lane=THREE)


def test_a_test_that_two_shards_have_in_their_plans(tmp_path: Path) -> None:
    twice = Files({IDS[1]: "passed", IDS[2]: "passed"}, shards={**DEALT, IDS[1]: 3})
    holds("duplicate ids", None, *night(tmp_path, None, None, twice), lane=THREE)


def test_a_test_of_another_shard(tmp_path: Path) -> None:
    foreign = Files({IDS[1]: "passed", IDS[2]: "passed"}, shards=DEALT)
    holds("foreign id", None, *night(tmp_path, None, None, foreign), lane=THREE)


def test_a_shard_that_is_given_twice(tmp_path: Path) -> None:
    outs = night(tmp_path, None, None, None)
    shutil.copytree(outs[1], tmp_path / "again")
    holds("shard twice", None, tmp_path / "again", *outs, lane=THREE)
