"""The census of tensors against torch's amax over the same bytes, on one thread, and two processes against one.

A file is read from the system's cache of pages or, where a name says "cold", from the disk: its pages are given up
before each run of either side. torch maps it. Where a name says "memory" both have the bytes in memory.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import numpy.typing as npt

from narrowgauge.benchmarks.paired import Benchmark, Work
from narrowgauge.benchmarks.quantize import Peer
from narrowgauge.checkpoints.census import PIECE, census_of_run, take_census
from narrowgauge.checkpoints.counted import Census
from narrowgauge.checkpoints.landing import DESTINATIONS
from narrowgauge.checkpoints.model import Stored
from narrowgauge.checkpoints.tally_floats import FloatTally
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.reference.fast_codec import cast
from narrowgauge.reference.noise import noise
from narrowgauge.reference.policies import SATURATE

SIZE = 1 << 28  #: bytes of a file
DRAWN = 1 << 22  #: numbers that are drawn; a file repeats them
#: of torch's amax over bfloat16; of one process by two. Of 8 bits, which torch has no amax of, at least 1 GB/s is meant
GOAL, TWO_GOAL, NO_GOAL = 0.6, 1.7, 0.0
#: the file, where its bytes are, what torch does, the goal, into which formats it is looked
CASES: tuple[tuple[str, str, str, float, tuple[str, ...]], ...] = (
    ("BF16", "file", "mapped", GOAL, ()),
    ("BF16", "cold file", "mapped", GOAL, ()),
    ("BF16", "memory", "memory", GOAL, ()),
    ("BF16", "file", "mapped", NO_GOAL, DESTINATIONS),
    ("F8_E4M3", "file", "bytes", NO_GOAL, ()),
    ("F8_E4M3", "cold file", "bytes", NO_GOAL, ()),
)
WORKERS = 2


@contextmanager
def benchmarks() -> Iterator[list[Benchmark]]:
    """Of bfloat16 and of 8-bit codes. Without torch only those of two processes; without cases none."""
    if not CASES:
        yield []
        return
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(WORKERS, get_context("spawn")) as pool:
        tensors = {dtype: _written(Path(folder), dtype, codes) for dtype, codes in _drawn()}
        two = [_two(tensor, pool) for tensor in tensors.values()]
        if importlib.util.find_spec("torch") is None:
            yield two
            return
        peer = Peer("census_peer", *(str(tensor.path) for tensor in tensors.values()))
        try:
            yield [*(_against_torch(peer, tensors[case[0]], *case[1:]) for case in CASES), *two]
        finally:
            peer.close()


def _drawn() -> Iterator[tuple[str, Coded]]:
    """Numbers as weights have them: bfloat16 of deviation 0.02, and E4M3 scaled to 448."""
    real = noise(DRAWN, seed=5).astype(np.float32)
    yield "BF16", cast(Coded("float32", (real * np.float32(0.02)).view(np.uint32)), "bfloat16", SATURATE)
    scaled = real * np.float32(448 / np.abs(real).max())
    yield "F8_E4M3", cast(Coded("float32", scaled.view(np.uint32)), "float8_e4m3fn", SATURATE)


def _written(folder: Path, dtype: str, codes: Coded) -> Stored:
    path = folder / dtype
    with path.open("wb") as file:
        for _ in range(SIZE // codes.data.nbytes):
            codes.data.tofile(file)
        os.fsync(file.fileno())  # or its pages cannot be given up
    return Stored(dtype, dtype, (SIZE // codes.data.itemsize,), path, 0, SIZE, codes.format)


def _against_torch(
    peer: Peer, tensor: Stored, where: str, against: str, goal: float, into: tuple[str, ...]
) -> Benchmark:
    ours: Work = partial(take_census, tensor, into)
    theirs: Work = partial(peer.ask, against)
    if where == "cold file":
        ours, theirs = partial(_cold, tensor, ours), partial(_cold, tensor, theirs)
    if where == "memory":
        ours = partial(_in_memory, np.fromfile(tensor.path, FORMATS[tensor.format].storage), into)
    name = f"census {tensor.format}, {where}" + (f", into {' and '.join(into)}" if into else "")
    return Benchmark(name, f"{peer.ask('who')}, {against}", tensor.shape[0], ours, theirs, goal, size=tensor.size)


def _cold(tensor: Stored, work: Work) -> None:
    """The work, after the file's pages have been given up."""
    with tensor.path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    work()


def _in_memory(codes: npt.NDArray[np.uint16], into: tuple[str, ...]) -> Census:
    """The census of an array."""
    length = PIECE // codes.itemsize
    tally = FloatTally(FORMATS["bfloat16"], into, length, signs=False)
    for start in range(0, codes.size, length):
        tally.add(codes[start : start + length].view(np.uint8), start)
    return tally.result(codes.shape)


def _two(tensor: Stored, pool: ProcessPoolExecutor) -> Benchmark:
    """Two processes that are there already, against this one."""
    name = f"census {tensor.format}, {WORKERS} processes"
    ours, theirs = partial(_shared, tensor, pool), partial(take_census, tensor, ())
    return Benchmark(name, "one process", tensor.shape[0], ours, theirs, TWO_GOAL, size=tensor.size)


def _shared(tensor: Stored, pool: ProcessPoolExecutor) -> None:
    half = tensor.size // WORKERS
    parts = [pool.submit(census_of_run, tensor, half * turn, half, ()) for turn in range(WORKERS)]
    for part in parts:
        part.result()
