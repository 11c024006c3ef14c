"""Emulated conversions against Triton's interpreter on the same kernel: two children, called in turn.

A call of a device runs the kernel twice (two fills of fresh memory) and brings the codes back; so do both sides.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

from narrowgauge.benchmarks.paired import Benchmark
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import Infrastructure
from narrowgauge.contracts.kernels import Plugged
from narrowgauge.contracts.operations import Claim
from narrowgauge.devices import discovery
from narrowgauge.devices.device import Device
from narrowgauge.reference.noise import noise

MODULE = "narrowgauge.kernels_under_test.triton_cast"
#: kernel, destination, targets: conversions by instruction and in software, and by our own integer operations
KERNELS = (
    ("triton_native_ocp", "float8_e4m3fn", discovery.EMULATED_BY_DEFAULT),
    ("triton_native_ocp", "float8_e5m2", ("sm_90", "gfx950")),
    ("triton_native_fnuz", "float8_e4m3fnuz", ("gfx942", "gfx950")),
    ("triton_soft_ocp_saturate", "float8_e4m3fn", discovery.EMULATED_BY_DEFAULT),
)
COUNT = 1 << 18
CALLS = 2  #: of a kernel in one call of a device
GOAL = 1.0
SMOKE_GOAL = 90.0  #: seconds, on two cores, with compiles


@contextmanager
def benchmarks() -> Iterator[list[Benchmark]]:
    """Casts of every bfloat16, and of a sample of float32, on the targets of a default run. Without Triton none."""
    if not discovery.has_triton():
        yield []
        return
    interpreter = discovery.interpreter()
    emulated = {target: discovery.emulated(target) for target in discovery.EMULATED_BY_DEFAULT}
    try:
        described = {plugged.kernel.name: plugged for plugged in interpreter.describe(MODULE)}
        inputs = {
            "every bfloat16": Coded("bfloat16", np.arange(1 << 16, dtype=np.uint16)),
            "float32": Coded("float32", (noise(COUNT, seed=5) * 3).astype(np.float32).view(np.uint32)),
        }
        yield [
            _benchmark(described[kernel], f"{label} to {to}, {kernel} on", target, x, to, emulated[target], interpreter)
            for kernel, to, targets in KERNELS
            for target in targets
            for label, x in inputs.items()
        ]
    finally:
        for device in (interpreter, *emulated.values()):
            device.close()


def _benchmark(
    plugged: Plugged, name: str, target: str, x: Coded, to: str, device: Device, interpreter: Device
) -> Benchmark:
    claim = Claim(plugged.kernel.contract, x.format, to)
    ours, theirs = (partial(_returned, place, plugged, claim, x) for place in (device, interpreter))
    return Benchmark(f"{name} {target}", "Triton's interpreter", CALLS * x.data.size, ours, theirs, GOAL)


def _returned(device: Device, plugged: Plugged, claim: Claim, x: Coded) -> None:
    outcome = device.run(plugged, claim, x)
    if outcome.kind != "returned":
        raise Infrastructure(f"{plugged.kernel.name} on {device.id}: {outcome.kind}, {outcome.reason}")


def smoke() -> float:
    """Seconds of wall time of a default run's emulated cells, on two workers, compiles included."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "narrowgauge", "test", "-n", "2", "-m", "emulated", "--out", folder, "-q"]
        environment = {**os.environ, "TRITON_CACHE_DIR": os.path.join(folder, "compiled")}
        began = time.perf_counter()
        subprocess.run(command, env=environment, capture_output=True, check=False)  # a speed is no verdict
        return time.perf_counter() - began
