"""The reference's casts against ml_dtypes' astype, which is the fastest of the exact ones for NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import ml_dtypes
import numpy as np

from narrowgauge.benchmarks.paired import Benchmark
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.fast_codec import cast, to_float32
from narrowgauge.reference.noise import noise
from narrowgauge.reference.policies import POLICIES

COUNT = 1 << 22
#: between float32 and 8 bits we mean to be several times as fast, and nowhere slower
BETWEEN_FLOAT32_AND_8_BITS, ELSEWHERE = 4.0, 1.0


def benchmarks() -> Iterator[Benchmark]:
    """Each narrow format that ml_dtypes casts to: from float32, from bfloat16, and back."""
    peer = f"ml_dtypes {ml_dtypes.__version__}"
    real = (noise(COUNT, seed=5) * 3).astype(np.float32)
    wide = Coded("float32", real.view(np.uint32))
    half = Coded("bfloat16", (wide.data >> 16).astype(np.uint16))
    for name, policy in POLICIES["ml_dtypes"].by_format.items():
        if name == half.format:
            continue
        goal = BETWEEN_FLOAT32_AND_8_BITS if format_named(name).bits == 8 else ELSEWHERE
        dtype, codes = np.dtype(getattr(ml_dtypes, name)), cast(wide, name, policy)
        yield Benchmark(
            f"float32 to {name}", peer, COUNT, partial(cast, wide, name, policy), partial(real.astype, dtype), goal
        )
        yield Benchmark(
            f"bfloat16 to {name}",
            peer,
            COUNT,
            partial(cast, half, name, policy),
            partial(half.data.view(ml_dtypes.bfloat16).astype, dtype),
            ELSEWHERE,
        )
        yield Benchmark(
            f"{name} to float32",
            peer,
            COUNT,
            partial(to_float32, codes),
            partial(codes.data.view(dtype).astype, np.float32),
            goal,
        )
