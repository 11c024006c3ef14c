"""How far a sum of products may be off: rigorous bounds for every accumulator, and for scales and sums after it.

Bounds are absolute, and proportional to the sum of the magnitudes of the terms: an error has no bound in proportion to
the result, which may cancel. Every formula is proved in docs/bounds.md; its names are used here: P the sum of
magnitudes, T the largest power of two at which terms are aligned, k products, n fused steps, J float32 additions that
join partial sums, F bits kept in alignment, m fraction bits stored, u = 2^-24.

What float64 itself leaves out of a bound is covered twice: each bound is multiplied by ``MORE``, 1 + 2^-10, and
``absolute_error`` has a term for a P and an exact sum that its caller summed up in float64, in any order.
"""

from __future__ import annotations

import numpy as np

from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.kv.arithmetic import F64, MORE, TINY, U
from narrowgauge.reference.matmul.accumulators import Accumulator

#: least and greatest real number of each element
Ends = tuple[F64, F64]
#: so many products at most: growth factors below are near 1 up to there
MOST_PRODUCTS = 2**20
_U64 = 2.0**-53
#: units that flush subnormal operands do so in 16 bits: what is subnormal in float16, or in bfloat16
_FLUSHED_BELOW = 2.0**-14


# --- one sum of products ---------------------------------------------------------------------------------------------


def absolute_error(
    accumulator: Accumulator,
    size: F64,
    k: int,
    largest: F64 | float = 0.0,
    flushed: F64 | float = 0.0,
    steps: int | None = None,
) -> F64:
    """An upper bound of |D - exact| for sums of k products and an addend, elementwise like ``size``.

    ``size`` is P = sum of |a b| + |c|; ``largest`` what ``largest_exponents`` gives, for operands that may be
    subnormal; ``flushed`` what ``flushed_terms`` gives, and counts where the accumulator flushes. ``steps`` is J, how
    many float32 additions join partial sums (split-k, a loop that adds what a unit gave for a tile); None for as many
    as the accumulator allows. Infinite where a partial sum may overflow: there nothing is bounded.

    Raises ``BadInput`` for more than 2^20 products.
    """
    aligned, stored, growth, lost = _coefficients(accumulator, k, steps)
    if accumulator.family in ("exact", "whole"):
        return np.where(size > accumulator.largest, np.inf, 0.0)
    top = np.maximum(size, largest)
    error = (aligned * top + stored * size) * growth + lost + (2 * k + 4) * _U64 * size
    if accumulator.flushes:
        error = error + flushed
    return np.asarray(np.where(size + error > accumulator.largest, np.inf, error * MORE))


def _joins(accumulator: Accumulator, k: int, steps: int | None) -> int:
    if steps is not None:
        return steps
    return -(-k // accumulator.joined_every) if accumulator.joined_every else 0


def _coefficients(accumulator: Accumulator, k: int, steps: int | None) -> tuple[float, float, float, float]:
    """Of T, of P, the growth of both, and what may be lost absolutely."""
    if k > MOST_PRODUCTS or k < 0:
        raise BadInput(f"a sum of {k} products; bounds are derived for 0 to 2^20")
    joins = _joins(accumulator, k, steps)
    window = min(k, accumulator.promote_every or k)  # the products that one chain of fused steps adds
    fused = -(-k // accumulator.length) + joins
    chained = -(-window // accumulator.length) + (0 if accumulator.promote_every else joins)
    lost = (2 * k + fused + joins + 2) * accumulator.least
    unit = 2.0 ** -(accumulator.stored + 1)  # of a number that is rounded to nearest
    nearest = (k + 1) * unit * (1 + unit)
    match accumulator.family:
        case "nearest":
            return 0.0, nearest, 1.0, lost
        case "floored":
            stored = fused * (accumulator.length + 3) * 2.0**-accumulator.fraction + joins * U
            return 0.0, stored, 1 / (1 - fused * 2.0**-22 - joins * U), lost
        case "fused" | "any":
            aligned = window * 2.0**-accumulator.fraction
            if accumulator.cut:
                stored, growth = chained * 2.0**-accumulator.stored + joins * U, 1 / (1 - joins * U)
            else:
                stored, growth = (chained + joins) * unit, 1 + aligned
            if accumulator.one_sign:  # RDNA3: a unit of the grid more per step may make a sum grow
                growth /= 1 - min(0.5, fused * 2.0**-accumulator.fraction)
            return aligned, max(stored, nearest) if accumulator.family == "any" else stored, growth, lost
    return 0.0, 0.0, 1.0, 0.0


def largest_exponents(a: F64, b: F64, a_least: F64 | float = 0.0, b_least: F64 | float = 0.0) -> F64:
    """T of terms with a subnormal operand [M, N]: the largest 2^(ea + eb), a [M, K] and b [N, K]; 0 without such terms.

    A unit aligns a subnormal number by the exponent of its format's smallest normal one, which is larger than the
    number; of other terms 2^(ea + eb) <= |a b|, and P covers them. ``a_least`` and ``b_least`` are those smallest
    normal numbers (``least_normal``), times the scale where a unit takes scales.
    """
    (low_a, of_a), (low_b, of_b) = _exponents(a, a_least), _exponents(b, b_least)
    found = np.zeros((len(a), len(b)))
    for k in np.flatnonzero(low_a.any(axis=0) | low_b.any(axis=0)):
        term = np.outer(of_a[:, k], of_b[:, k])
        np.maximum(found, np.where(np.logical_or.outer(low_a[:, k], low_b[:, k]), term, 0.0), out=found)
    return found


def _exponents(value: F64, least: F64 | float) -> tuple[np.ndarray, F64]:
    """Which are subnormal, and 2^e of each, 0 of zeros."""
    power = np.ldexp(1.0, np.frexp(value)[1] - 1)
    low = (value != 0) & (np.abs(value) < least)
    return low, np.where(value == 0, 0.0, np.where(low, least, power))


def flushed_terms(a: F64, b: F64, a_least: F64 | float = 0.0, b_least: F64 | float = 0.0) -> F64:
    """The sum of |a b| over terms with an operand that is subnormal in 16 bits [M, N]: what flushing takes away."""
    a, b = np.abs(a), np.abs(b)
    low_a, low_b = (
        np.where(x < np.minimum(least, _FLUSHED_BELOW), x, 0.0) for x, least in ((a, a_least), (b, b_least))
    )
    if not low_a.any() and not low_b.any():
        return np.zeros((len(a), len(b)))
    return np.asarray(low_a @ b.T + (a - low_a) @ low_b.T)


def least_normal(format_name: str) -> float:
    """The smallest normal number of a format; 0 where there are no subnormal ones."""
    fmt = format_named(format_name)
    return 2.0 ** (1 - fmt.bias) if fmt.exponent and fmt.mantissa else 0.0


# --- what comes after a sum ------------------------------------------------------------------------------------------


def after_roundings(low: F64, high: F64, count: F64 | int) -> Ends:
    """All float32 results of an interval of reals after so many operations with exact factors.

    ``count`` roundings, one number or one per element, of relative error u each; results that are subnormal may be
    flushed. What an operation leaves of one sign stays so, and 0 stays 0. Intermediate results must be normal numbers
    (``scaled`` looks at these).
    """
    return _reached(low, -1.0, count), _reached(high, 1.0, count)


def _reached(value: F64, way: float, count: F64 | int) -> F64:
    reach = np.abs(value) * (np.asarray(count) * U * MORE) + np.where(np.asarray(count) > 0, TINY, 0.0)
    moved = np.where(value == 0, value, value + way * reach)
    return np.asarray(np.where(np.sign(moved) == -np.sign(value), 0.0, moved))


def summed(lows: F64, highs: F64, extra: int = 0) -> Ends:
    """All float32 sums, in any order, of intervals [S, ...] along the first axis, one of each.

    S - 1 additions, and ``extra`` more (an addend that comes later, a tree with empty leaves that are not 0).
    """
    count = len(lows) - 1 + extra
    low, high = lows.sum(axis=0), highs.sum(axis=0)
    size = np.maximum(np.abs(lows), np.abs(highs)).sum(axis=0)
    reach = (max(count, 0) * U + (len(lows) * _U64 if len(lows) > 1 else 0.0)) * MORE * size
    reach = np.where(reach > 0, reach + max(count, 0) * TINY, 0.0)
    return low - reach, high + reach
