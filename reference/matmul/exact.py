"""Operands on which a sum may not be off at all, and the proof for any operands that it may not."""

from __future__ import annotations

import numpy as np

from narrowgauge.reference.kv.arithmetic import F64, Mask, grid
from narrowgauge.reference.matmul.accumulators import Accumulator


def is_exact(
    a: F64,
    b: F64,
    accumulator: Accumulator,
    c: F64 | None = None,
    a_least: F64 | float = 0.0,
    b_least: F64 | float = 0.0,
) -> Mask:
    """Where every partial sum is exact [M, N], in any order: numbers a [M, K], b [N, K], an addend c [M, N].

    All terms are multiples of q, the product of the lowest set bits of a row of a and of one of b, and their magnitudes
    sum to less than 2^p q. ``a_least`` and ``b_least`` as for ``largest_exponents``.
    """
    size = np.abs(a) @ np.abs(b).T
    quantum = np.where(np.isfinite(grid(a)), grid(a), 0.0)[:, None] * np.where(np.isfinite(grid(b)), grid(b), 0.0)
    if c is not None:
        size, quantum = size + np.abs(c), np.minimum(quantum, grid(c[..., None]))
    good = (size < 2.0**accumulator.exact_bits * quantum) | (size == 0)
    return good
