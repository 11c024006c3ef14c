"""How far a sum of products may be off: rigorous bounds for every accumulator, and for scales and sums after it.

Bounds are absolute, and proportional to the sum of the magnitudes of the terms: an error has no bound in proportion to
the result, which may cancel. Every formula is proved in docs/bounds.md; its names are used here: P the sum of
magnitudes, T the largest power of two at which terms are aligned, k products, n fused steps, J float32 additions that
join partial sums, F bits kept in alignment, m fraction bits stored, u = 2^-24.

What float64 itself leaves out of a bound is covered twice: each bound is multiplied by ``MORE``, 1 + 2^-10, and
``absolute_error`` has a term for a P and an exact sum that its caller summed up in float64, in any order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.kv.arithmetic import F64, MORE, TINY, Mask, U, grid
from narrowgauge.reference.matmul.accumulators import Accumulator

#: least and greatest real number of each element
Ends = tuple[F64, F64]
#: so many products at most: growth factors below are near 1 up to there
MOST_PRODUCTS = 2**20
_U64 = 2.0**-53
#: units that flush subnormal operands do so in 16 bits: numbers below this in float16, which takes in all of 8 bits
_FLUSHED_BELOW = 2.0**-14


# --- one sum of products ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Error:
    """What a sum of k products may be off by: multiples of T, of P, a growth of both, and an absolute part."""

    aligned: float
    stored: float
    growth: float
    lost: float
    everywhere: float  #: of T where chains of few products have a T each: as if all were one chain


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

    Raises ``BadInput`` for more than 2^20 products or joins.
    """
    e = _error(accumulator, k, steps)
    if accumulator.family in ("exact", "whole"):
        return np.where(size > accumulator.largest, np.inf, 0.0)
    if accumulator.promote_every:
        aligned = e.aligned * size + e.everywhere * np.asarray(largest)
    else:
        aligned = e.aligned * np.maximum(size, largest)
    error = (aligned + e.stored * size) * e.growth + e.lost + (2 * k + 4) * _U64 * size
    if accumulator.flushes:
        error = error + flushed
    return np.asarray(np.where(size + error > accumulator.largest, np.inf, error * MORE))


def joins(accumulator: Accumulator, k: int, steps: int | None = None) -> int:
    """J: how many float32 additions of partial sums are allowed for."""
    if steps is not None and not accumulator.promote_every:
        return steps
    return (steps or 0) + (-(-k // accumulator.joined_every) if accumulator.joined_every else 0)


def _error(accumulator: Accumulator, k: int, steps: int | None) -> _Error:
    if not 0 <= k <= MOST_PRODUCTS or not 0 <= (steps or 0) <= MOST_PRODUCTS:
        raise BadInput(f"a sum of {k} products, {steps or 0} joins; bounds are derived for 0 to 2^20 of either")
    a, j = accumulator, joins(accumulator, k, steps)
    fused = -(-k // a.length) + j
    lost = (2 * k + fused + j + 2) * a.least
    unit = 2.0 ** -(a.stored + 1)  # of a number that is rounded to nearest
    nearest = (k + 1) * unit * (1 + unit)
    if a.family == "nearest":
        return _Error(0.0, nearest, 1.0, lost, 0.0)
    if a.family in ("exact", "whole"):
        return _Error(0.0, 0.0, 1.0, 0.0, 0.0)
    cut = 2.0**-a.fraction
    everywhere = (k + 1 + (0 if a.keeps_the_largest else fused)) * cut
    if a.family == "floored":
        stored = fused * U * (1 + 2.0**-6) + j * U
        return _Error(everywhere, stored, 1 / (1 - everywhere - stored), lost, everywhere)
    window = min(k, a.promote_every or k)  # the products that one chain of fused steps adds
    chained = -(-window // a.length) if a.promote_every else fused
    aligned = (window + 1) * cut if a.promote_every else everywhere
    stored, growth = chained * 2.0**-a.stored + j * U, 1 / (1 - j * U)
    if not a.cut:  # what alignment takes away is a change of leaves, before they are rounded on
        stored, growth = (fused + j) * unit, 1.0
        aligned, everywhere = aligned * (1 + nearest), everywhere * (1 + nearest)
    if a.family == "any":
        # of nearest trees alone; what they have beyond ``stored`` takes the place of alignment, which they have not
        stored = max(stored, nearest - aligned)
    if not a.keeps_the_largest:
        growth /= 1 - everywhere - stored
    return _Error(aligned, stored, growth, lost, everywhere)


def largest_exponents(a: F64, b: F64, a_least: F64 | float = 0.0, b_least: F64 | float = 0.0) -> F64:
    """T of terms with a subnormal operand [M, N]: the largest 2^(ea + eb), a [M, K] and b [N, K]; 0 without such terms.

    A unit aligns a subnormal number by the exponent of its format's smallest normal one, which is larger than the
    number; of other terms 2^(ea + eb) <= |a b|, and P covers them. ``a_least`` and ``b_least`` are those smallest
    normal numbers (``least_normal``), times the scale where a unit takes scales.
    """
    (low_a, of_a), (low_b, of_b) = exponents(a, a_least), exponents(b, b_least)
    found = np.zeros((len(a), len(b)))
    for k in np.flatnonzero(low_a.any(axis=0) | low_b.any(axis=0)):
        term = np.outer(of_a[:, k], of_b[:, k])
        np.maximum(found, np.where(np.logical_or.outer(low_a[:, k], low_b[:, k]), term, 0.0), out=found)
    return found


def exponents(value: F64, least: F64 | float) -> tuple[Mask, F64]:
    """Which are subnormal, and 2^e of each, 0 of zeros."""
    power = np.ldexp(1.0, np.frexp(value)[1] - 1)
    low = (value != 0) & (np.abs(value) < least)
    return low, np.where(value == 0, 0.0, np.where(low, least, power))


def flushed_terms(a: F64, b: F64, a_least: F64 | float = 0.0, b_least: F64 | float = 0.0) -> F64:
    """The sum of |a b| over terms with an operand that is subnormal in 16 bits [M, N]: what flushing takes away.

    ``a_least`` and ``b_least`` as for ``largest_exponents``. Twice these are counted, since float8_e5m2fnuz has normal
    numbers in the binade below float16's.
    """
    a, b = np.abs(a), np.abs(b)
    low_a = np.where(a < np.minimum(2 * np.asarray(a_least), _FLUSHED_BELOW), a, 0.0)
    low_b = np.where(b < np.minimum(2 * np.asarray(b_least), _FLUSHED_BELOW), b, 0.0)
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


def summed(lows: F64, highs: F64) -> Ends:
    """All float32 sums, in any order, of intervals [S, ...] along the first axis, one of each.

    Exact where every partial sum is: known numbers, all multiples of one unit, below 2^24 units together.
    """
    count = len(lows) - 1
    low, high = lows.sum(axis=0), highs.sum(axis=0)
    if count < 1:
        return low, high
    size = np.maximum(np.abs(lows), np.abs(highs)).sum(axis=0)
    unit = np.minimum(grid(np.moveaxis(lows, 0, -1)), 2.0**100)
    known = (lows == highs).all(axis=0) & (size < 2.0**24 * unit) & ((unit >= TINY) | (size == 0))
    # float64 adds up the ends with an error of its own
    reach = np.where(known, 0.0, (count * U + (count + 1) * _U64) * MORE * size + count * TINY)
    return low - reach, high + reach
