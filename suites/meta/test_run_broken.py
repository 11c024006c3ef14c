"""``narrowgauge run`` with pytest itself, in which something breaks. Each fault costs a session: there are few."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from narrowgauge.ci.records import PLAN, read_shard
from narrowgauge.plugin import nightly
from narrowgauge.suites.lane_run import LEFT
from narrowgauge.suites.meta.break_sets import (
    MORE,
    PLUGIN,
    Files,
    holds,
    kernels,
    lane_run,
    lanes_file,
    stubbed,
    without_torch,
)
from narrowgauge.suites.meta.breaking import BREAK, OUT
from narrowgauge.suites.meta.marks import needs_torch

pytestmark = pytest.mark.meta

LINUX = Path("/proc/self/stat").exists()
CELL = "narrowgauge/suites/casts/test_casts.py::test_cell[float32-float8_e4m3fn-edges-{}-host]"
#: a run in a process of its own, without the preflight
PROGRAM = """
import sys
from pathlib import Path
from narrowgauge.plugin import nightly
from narrowgauge.suites.lane_run import LEFT
from narrowgauge.suites.meta.break_sets import lane_run
ran = lane_run(Path(sys.argv[1]), *sys.argv[2:])
ran.judge(quiet=True)
sys.exit(ran.exit_code)
"""


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", without_torch(tmp_path))
    monkeypatch.setenv("NARROWGAUGE_COMMIT", "c" * 40)


def test_what_breaks_a_worker_costs_one_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock that goes back is the worker's: nothing waits, and nothing is timed, by it."""
    out = tmp_path / "out"
    monkeypatch.setenv(BREAK, "the clock goes back")
    run = lane_run(out, kernels(tmp_path, *MORE), "--kernel-timeout=1", "-o", "faulthandler_timeout=2")
    run.judge(quiet=True)
    holds("kernels", run.exit_code, out)
    ends = {name: read_shard(out).ends[CELL.format(name)] for name in ("right", *MORE)}
    assert {name: end.outcome for name, end in ends.items()} == {
        "right": "passed", "kills": "error", "hangs": "failed", "stalls": "error",
        "fills": "error" if importlib.util.find_spec("allure_pytest") else "passed",
    }  # fmt: skip
    assert ends["right"].row is not None
    assert ends["right"].row.result == "passed"
    assert ends["hangs"].row is not None
    assert ends["hangs"].row.reason == "hung: no answer in 1 s"
    assert "crashed while running" in ends["kills"].message
    assert all(0 <= end.seconds < 60 for end in ends.values())
    assert "Timeout (0:00:02)!" in (out / "pytest.log").read_text()


@pytest.mark.parametrize(
    ("name", "done", "words"),
    [
        ("exit 0", "exit 0 in the middle", "pytest ended with 0"),
        ("journal full", "the journal does not fit", "1 planned tests never ended"),
        ("ledger full", "the ledger does not fit", "pytest ended with 1, its results say 0: 0 tests failed"),
    ],
)
def test_what_breaks_pytest_is_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, done: str, words: str
) -> None:
    monkeypatch.setenv(BREAK, done)
    monkeypatch.setenv(OUT, str(tmp_path / "out"))
    run = lane_run(tmp_path / "out", kernels(tmp_path))
    assert words in run.judge(quiet=True).reason
    holds(name, run.exit_code, tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("marker", ("-m", "fnzu"), "Unknown marker(s)"),
        ("syntax", ("--kernels=wrong.py",), "wrong.py does not load on host: SyntaxError"),
        ("nothing selected", ("-k", "nothing"), "no tests ran"),
    ],
)
def test_what_cannot_be_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, options: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wrong.py").write_text("def f(:")
    run = lane_run(tmp_path / "out", *options)
    run.judge(quiet=True)
    holds(name, run.exit_code, tmp_path / "out")
    assert (tmp_path / "out" / PLAN).exists() == (name == "nothing selected")
    assert words in (tmp_path / "out" / "pytest.log").read_text()


@pytest.mark.parametrize("failed", [0, 1])
def test_of_what_was_not_collected_whole_there_is_no_plan(tmp_path: Path, failed: int) -> None:
    option = {"lane": "cpu/cpu", "shard": "1/1", "depth": "smoke", "out": tmp_path}
    config: Any = SimpleNamespace(
        option=SimpleNamespace(**{f"narrowgauge_{name}": value for name, value in option.items()}),
        hook=SimpleNamespace(pytest_deselected=lambda items: None),
    )
    session: Any = SimpleNamespace(testsfailed=failed)
    nightly.pytest_collection_modifyitems(session, config, [])
    assert (tmp_path / PLAN).exists() == (not failed)


# --- run itself is ended ---------------------------------------------------------------------------------------------


def family(pid: int) -> set[int]:
    """A process and all that it started, and they."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z":
            parents[int(folder.name)] = int(parent)
    found, more = set(), {pid}
    while more:
        found |= more
        more = {child for child, parent in parents.items() if parent in more} - found
    return found & parents.keys()


def ended(command: list[str], folder: Path, number: signal.Signals) -> int:
    """Send a signal while a kernel hangs, see that nobody is left, and say how the process ended."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(1200):
        if (folder / "child").exists():
            break
        time.sleep(0.05)
    there = family(process.pid)
    assert int((folder / "child").read_text()) in there
    process.send_signal(number)
    code = process.wait(timeout=60)
    assert gone(there)
    return code


def gone(pids: set[int]) -> bool:
    """Whether all of them end, sooner or later."""
    for _ in range(200):
        if not any(family(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(not LINUX, reason="no /proc: who is left cannot be seen")
def test_what_is_left_behind_is_ended(tmp_path: Path) -> None:
    """A process that pytest started, and that does not mind being asked."""
    run = stubbed(tmp_path / "out", Files(after=f"(trap '' INT; sleep 600) & echo $! > '{tmp_path}/child'"))
    run.judge(quiet=True)
    holds("nothing", run.exit_code, tmp_path / "out")
    assert gone({int((tmp_path / "child").read_text())})


@pytest.mark.skipif(not LINUX, reason="no /proc: who is left cannot be seen")
def test_a_job_that_is_cancelled(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "out"), kernels(tmp_path, "hangs")]
    holds("SIGTERM", ended(command, tmp_path, signal.SIGTERM), tmp_path / "out")
    shard = read_shard(tmp_path / "out")
    assert shard.run is not None
    assert shard.run.reason == "ended by SIGTERM"
    assert shard.unended == [CELL.format("hangs")]
    assert shard.problems == []


@needs_torch
def test_the_whole_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the preflight to the gate, with nothing wrong."""
    monkeypatch.undo()
    command = [sys.executable, "-m", "narrowgauge", "run", "--lane=cpu", f"--lanes={lanes_file(tmp_path)}", "--json"]
    done = subprocess.run(
        [*command, f"--out={tmp_path / 'out'}", *PLUGIN, kernels(tmp_path)], capture_output=True, check=False, text=True
    )
    holds("nothing", done.returncode, tmp_path / "out")
    shard = read_shard(tmp_path / "out")
    assert shard.run is not None
    assert json.loads(done.stdout) == json.loads((tmp_path / "out" / "run.json").read_text())
    assert [check.name for check in shard.run.preflight] == [
        "room on the disk",
        "golden vectors",
        "the suite's kernels",
        "smoke kernel on host",
    ]
    assert shard.run.state == "finished"
    assert {path.name for path in (tmp_path / "out").iterdir()} >= set(LEFT) - {"allure-results"}
    assert [row.result for row in shard.rows.values()] == ["passed"]


@pytest.mark.skipif(not LINUX, reason="no /proc: who is left cannot be seen")
def test_a_run_that_is_killed_takes_everything_with_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "out"), kernels(tmp_path, "hangs")]
    assert ended(command, tmp_path, signal.SIGKILL) == -signal.SIGKILL
    holds("SIGKILL", None, tmp_path / "out")
    assert read_shard(tmp_path / "out").unended == [CELL.format("hangs")]
