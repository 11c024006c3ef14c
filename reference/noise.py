"""Numbers without pattern, the same on every machine and under every numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def scrambled(count: int, seed: int) -> npt.NDArray[np.uint64]:
    """So many 64-bit numbers without pattern (SplitMix64)."""
    step, mix1, mix2 = (np.uint64(c) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
    z = (np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed << 32)) * step
    z = (z ^ (z >> np.uint64(30))) * mix1
    z = (z ^ (z >> np.uint64(27))) * mix2
    return z ^ (z >> np.uint64(31))


def noise(count: int, seed: int) -> npt.NDArray[np.float64]:
    """Values of about a normal distribution with variance 1, exact in float32: sums of four 16-bit uniforms."""
    parts = scrambled(count, seed)[:, None] >> np.array([0, 16, 32, 48], np.uint64) & np.uint64(0xFFFF)
    centred: npt.NDArray[np.float64] = parts.sum(axis=1).astype(np.float64) - 2 * 65535
    return centred * (2.0**-15 * 0.875)
