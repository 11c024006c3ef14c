"""Two pieces of work in turn, compared round by round: a ratio holds on a busy machine, seconds do not."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Work = Callable[[], object]


@dataclass(frozen=True)
class Benchmark:
    """Our work and a peer's, on the same data."""

    name: str
    peer: str  #: the peer's name and version
    elements: int
    ours: Work
    theirs: Work
    goal: float  #: the ratio that we mean to keep
    peak: Callable[[], float] | None = None  #: measures the most memory that our work takes, by the input's bytes
    size: int = 0  #: bytes that our work reads and writes, where it is the moving that is measured


@dataclass(frozen=True)
class Measured:
    """What came of one benchmark: medians over its rounds."""

    name: str
    peer: str
    ratio: float  #: their time by ours: above 1 we are faster
    rate: float  #: our elements a second
    goal: float
    peak: float | None = None
    moved: float | None = None  #: bytes a second


def measure(benchmark: Benchmark, rounds: int) -> Measured:
    """Run both in turn, so many times, after one round that does not count."""
    times = [[_seconds(work) for work in (benchmark.ours, benchmark.theirs)] for _ in range(rounds + 1)][1:]
    ratios = [theirs / ours for ours, theirs in times]
    seconds = float(np.median([ours for ours, _ in times]))
    peak = None if benchmark.peak is None else benchmark.peak()
    return Measured(
        benchmark.name, benchmark.peer, float(np.median(ratios)), benchmark.elements / seconds, benchmark.goal, peak,
        benchmark.size / seconds if benchmark.size else None,
    )  # fmt: skip


def _seconds(work: Work) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
