"""How fast the reference casts, against ml_dtypes, in one process and one thread: ratios, not seconds.

python benchmarks/codec.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

import ml_dtypes
import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.reference.fast_codec import cast, to_float32
from narrowgauge.reference.policies import resolve

COUNT, ROUNDS = 1 << 22, 7


def paired(ours: Callable[[], object], theirs: Callable[[], object]) -> float:
    """The median over rounds of the ratio of times, theirs by ours, each pair measured in turn."""
    ratios = []
    for _ in range(ROUNDS):
        times = []
        for work in (ours, theirs):
            began = time.perf_counter()
            work()
            times.append(time.perf_counter() - began)
        ratios.append(times[1] / times[0])
    return float(np.median(ratios))


def main() -> None:
    """Print one line a direction and format."""
    bits = np.random.default_rng(1).standard_normal(COUNT).astype(np.float32).view(np.uint32)
    x = Coded("float32", bits)
    half = Coded("bfloat16", (bits >> 16).astype(np.uint16))
    for name, policy_name in (("float8_e4m3fn", "ocp_nonsaturate"), ("float8_e4m3fnuz", "fnuz_nonsaturate")):
        dtype, policy = getattr(ml_dtypes, name), resolve(policy_name, name)
        codes = cast(x, name, policy)
        rows = {
            f"float32 -> {name}": (
                lambda name=name, policy=policy: cast(x, name, policy),
                lambda dtype=dtype: bits.view(np.float32).astype(dtype),
            ),
            f"bfloat16 -> {name}": (
                lambda name=name, policy=policy: cast(half, name, policy),
                lambda dtype=dtype: half.data.view(ml_dtypes.bfloat16).astype(dtype),
            ),
            f"{name} -> float32": (
                lambda codes=codes: to_float32(codes),
                lambda codes=codes, dtype=dtype: codes.data.view(dtype).astype(np.float32),
            ),
        }
        for what, (ours, theirs) in rows.items():
            print(f"{what}: {paired(ours, theirs):.2f} x the speed of ml_dtypes {ml_dtypes.__version__}")


if __name__ == "__main__":
    main()
