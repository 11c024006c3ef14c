"""The reference's quantizers against torchao's eager ones of the same kind; without it, against the steps in torch.

torch lives in a child with one thread; its work is asked for over a pipe, whose way there and back is below a
millisecond.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

from narrowgauge.benchmarks.paired import Benchmark
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import Infrastructure
from narrowgauge.devices.device import ROOT
from narrowgauge.reference.noise import noise
from narrowgauge.reference.quantize import quantize
from narrowgauge.reference.recipes import recipe_named

#: what the peer is asked for, and the recipe of ours that does the same kind of work
CASES = (
    ("fp8_per_token", "vllm.fp8_per_token_dynamic"),
    ("int8_per_token", "vllm.int8_per_token_dynamic"),
    ("mxfp8_floor", "ocp.mxfp8_e4m3"),
    ("mxfp8_rceil", "nvidia.mxfp8_e4m3"),
    ("nvfp4", "nvidia.nvfp4_multiplier"),
)
SIDE = 4096  #: rows and columns
GOAL = 1.0
#: of the input's bytes
PEAK_GOAL = 6.0
_BOOTSTRAP = (
    "import importlib, sys; sys.path.append(sys.argv.pop(1)); "
    "importlib.import_module(f'narrowgauge.benchmarks.{sys.argv.pop(1)}').main()"
)


class Peer:
    """The child that has torch: a module of this room, and what it is given."""

    def __init__(self, module: str, *given: int | str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _BOOTSTRAP, ROOT, module, *map(str, given)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1,
        )  # fmt: skip

    def ask(self, word: str) -> str:
        """Have the child do something; returns its word for it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{word}\n")
        answer = self.process.stdout.readline().strip()
        if not answer:
            raise Infrastructure(f"the process that has torch ended on {word!r}")
        return answer

    def close(self) -> None:
        """End the child."""
        self.process.kill()
        self.process.communicate()  # which closes its pipes, too


@contextmanager
def benchmarks() -> Iterator[list[Benchmark]]:
    """One for each of ``CASES``. Without torch, or without cases, none."""
    if importlib.util.find_spec("torch") is None or not CASES:
        yield []
        return
    peer = Peer("quantize_peer", SIDE)
    try:
        real = noise(SIDE * SIDE, seed=5).astype(np.float32).reshape(SIDE, SIDE)
        x = Coded("float32", real.view(np.uint32))
        del real
        yield [_benchmark(peer, x, case, name) for case, name in CASES]
    finally:
        peer.close()


def _benchmark(peer: Peer, x: Coded, case: str, name: str) -> Benchmark:
    recipe = recipe_named(name)
    ours = partial(quantize, x, recipe, recipe.destinations[0].format)
    return Benchmark(
        f"{name}, {x.shape[0]} x {x.shape[1]}",
        peer.ask(f"who {case}"),
        x.data.size,
        ours,
        partial(peer.ask, f"run {case}"),
        GOAL,
        partial(peak, ours, x),
    )


def peak(work: Callable[[], object], x: Coded) -> float:
    """The input and the most memory that the work holds besides it at any time, by the input's bytes.

    As numpy tells tracemalloc: the resident set of a process would count what its parent held before it.
    """
    work()  # tables that are made once are no part of it
    tracemalloc.start()
    try:
        work()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return 1 + most / x.data.nbytes
