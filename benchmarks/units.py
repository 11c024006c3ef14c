"""Models of matrix units against mmasim's, where that is installed: products of matrices, in a child with a thread."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

from narrowgauge.benchmarks.paired import Benchmark
from narrowgauge.benchmarks.quantize import Peer
from narrowgauge.contracts.coded import Coded
from narrowgauge.reference.fast_codec import cast
from narrowgauge.reference.noise import noise
from narrowgauge.reference.policies import SATURATE
from narrowgauge.reference.units.registry import unit_named
from narrowgauge.reference.units.schedule import Schedule, gemm

ROWS, COLUMNS, DEPTH = 128, 128, 512
GOAL = 3.0
#: what the peer is asked for, the unit of ours, and the format of both operands
CASES = (
    ("hopper", "hopper.qgmma", "float8_e4m3fn"),
    ("mi300", "cdna3.mfma_fp8", "float8_e4m3fnuz"),
    ("ampere", "ampere.hmma", "bfloat16"),
)


@contextmanager
def benchmarks() -> Iterator[list[Benchmark]]:
    """One for each of ``CASES``. Without mmasim and what it builds itself with, none."""
    needs = [importlib.util.find_spec(name) for name in ("torch", "mmasim")]
    if None in needs or shutil.which("ninja") is None or not CASES:
        yield []
        return
    peer = Peer("units_peer", ROWS, COLUMNS, DEPTH)
    try:
        yield [_benchmark(peer, *case) for case in CASES]
    finally:
        peer.close()


def _benchmark(peer: Peer, case: str, name: str, fmt: str) -> Benchmark:
    a, b = (_drawn(rows, fmt, seed) for seed, rows in enumerate((ROWS, COLUMNS)))
    ours = partial(gemm, Schedule(unit_named(name)), a, b)
    title = f"{name}, {ROWS} x {COLUMNS} x {DEPTH}, multiply-adds"
    return Benchmark(
        title, peer.ask(f"who {case}"), ROWS * COLUMNS * DEPTH, ours, partial(peer.ask, f"run {case}"), GOAL
    )


def _drawn(rows: int, fmt: str, seed: int) -> Coded:
    real = noise(rows * DEPTH, seed).astype(np.float32).reshape(rows, DEPTH)
    return cast(Coded("float32", real.view(np.uint32)), fmt, SATURATE)
