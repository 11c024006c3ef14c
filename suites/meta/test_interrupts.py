"""``narrowgauge test`` as a process: its output as JSON, and Ctrl-C."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.meta

SLOW = """
import time, pathlib
from narrowgauge import kernel, Cast

@kernel(Cast(policy="ml_dtypes"), formats=["float8_e4m3fn"], backend="numpy")
def slow(x, format):
    import ml_dtypes
    pathlib.Path("started").touch()
    time.sleep(60)
    return x.astype(ml_dtypes.float8_e4m3fn)
"""


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """``narrowgauge test`` on the host, in a folder and a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "narrowgauge", "test", "--device=host", *arguments],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        # A CI that was started in the background has SIGINT ignored, and would hand that on.
        preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def test_json_stands_alone_on_stdout(tmp_path: Path) -> None:
    out, err = started(tmp_path, "--json", "-k", "ml_dtypes and edges").communicate(timeout=120)
    rows = json.loads(out)["rows"]
    assert {r["result"] for r in rows} == {"passed", "waived"}
    assert {r["format"] for r in rows if r["result"] == "waived"} == {"float8_e8m0fnu"}
    assert "what was judged" in err


def test_ctrl_c_ends_pytest_and_leaves_its_ledger(tmp_path: Path) -> None:
    """The terminal sends it to the command and to pytest at once."""
    (tmp_path / "slow.py").write_text(SLOW)
    process = started(tmp_path, "--kernels=slow.py", "-k", "slow or ml_dtypes")
    for _ in range(600):
        if (tmp_path / "started").exists():
            break
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2, out + err
    assert "Traceback (most recent call last)" not in err
    assert (tmp_path / ".narrowgauge" / "ledger.json").exists()
