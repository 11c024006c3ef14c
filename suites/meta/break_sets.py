"""Small lanes, kernels and runs for the tests of ``narrowgauge run``."""

from __future__ import annotations

from pathlib import Path

from narrowgauge.ci.lanes import Lane
from narrowgauge.suites.lane_run import LaneRun
from narrowgauge.suites.preflight import Fitness

LANE = Lane("cpu", "none", ("cpu",), ("host",), "smoke", 1, 1, 1, 20, ("cast",))

KERNELS = '''
import os, signal, time
from narrowgauge import kernel, Cast

CAST = {"formats": ["float8_e4m3fn"], "backend": "numpy"}

def cast(x):
    import ml_dtypes
    return x.astype(ml_dtypes.float8_e4m3fn)

@kernel(Cast(policy="ml_dtypes"), **CAST)
def right(x, format):
    return cast(x)
'''
MORE = {
    "kills": '''
@kernel(Cast(policy="ml_dtypes"), **CAST)
def kills(x, format):
    os.kill(os.getppid(), signal.SIGKILL)
''',
    "hangs": '''
@kernel(Cast(policy="ml_dtypes"), **CAST)
def hangs(x, format):
    while True:
        pass
''',
    "stalls": '''
@kernel(Cast(policy="ml_dtypes"), **CAST)
def stalls(x, format):
    return cast(x)
''',
}


def kernels(folder: Path, *more: str) -> str:
    """The option that plugs in ``right``, and others by name."""
    path = folder / "kernels_of_a_run.py"
    path.write_text(KERNELS + "".join(MORE[name] for name in more))
    return f"--kernels={path}"


def lane_run(out: Path, *options: str, lane: Lane = LANE) -> LaneRun:
    """A run on the host, past its preflight."""
    out.mkdir(parents=True, exist_ok=True)
    ran = LaneRun(lane, "cpu", 1, 1, out, "smoke", 1, ("-p", "narrowgauge.suites.meta.breaking", *options))
    ran.fitness = Fitness(devices=["host"])
    return ran
