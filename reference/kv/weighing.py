"""Weights of keys and the weighted mean of values: every result that a float32 kernel may reach.

The proof is for one head and one column; u, EXP and the other allowances are those of ``arithmetic``.

**What a right kernel does.** A key i meets exp(ŝ_i - m) where m is the largest score seen so far, in its tile and
split. Where a larger one comes, sums and accumulators are multiplied by exp(old - new). Splits are merged by their
maxima, or by lse = m + log(sum) and means. The same computed factors reach the sum of weights L and, for all columns,
the sum of weighted values N: so both hold the *same* computed weight ŵ_i, and rounding errors of their own.

**Weights.** ŵ_i = exp(s_i - m) · exp(δ_i) with |δ_i| ≤ D_i (``_logarithms``). A common factor of all weights cancels
in N / L, so the error of m itself does not count.

**Mean of perturbed weights.** With p the exact weights, o = Σ p v, r = Σ p e^δ v / Σ p e^δ, and Σ p (v - o) = 0:
r - o = Σ p (e^δ - 1)(v - o) / Σ p e^δ, at most Σ p (e^D - 1)|v - o| / Σ p e^-D, and by Cauchy and Schwarz at most
√(Σ p (e^D - 1) · Σ p (e^D - 1)(v - o)²) / Σ p e^-D, which are products of matrices. Besides, r lies between the
least and the largest value; where some D is large that is all that is said.

**Sums.** N = Σ ŵ v + a, |a| ≤ g Σ ŵ|v|, and L = Σ ŵ (1 + β): products, additions in any order, rescalings, the
scale of v before or after, and a split's division, each counted once. Weights that are rounded to a narrower format
before they meet v add their rounding to a, and not to L. N / L = (r + a) / (1 + β), then the last division.

**Underflow.** A weight below 2^-126 may be 0: in N that is at most 2^-126 |v| per key, for a factor exp(old - new)
at most twice that (each is scaled by those that follow, below e^-87), for a merge once more. A product with v or a
rescaled sum loses 2^-126 at most. L is at least 1 in these units, since the largest key has weight 1 there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.kv.arithmetic import (
    DIVISION,
    EXP,
    F64,
    LOG,
    LOG_ABSOLUTE,
    MORE,
    SUMS,
    TINY,
    TO_BASE_2,
    U,
    power_of_two,
)
from narrowgauge.reference.kv.scores import Scores

#: below e^this a weight is none: it rounds to 0, or to less than 2^-126
_GONE = -104.0


@dataclass(frozen=True, eq=False)
class Weights:
    """Exact weights [kv heads, queries, keys] that sum to 1, and the largest error of each one's logarithm."""

    exact: F64
    logarithm: F64
    total: F64  #: of exp(score - maximum) over the keys: at least 1
    one: F64  #: by how much a weight may differ from 1 that is 1 whatever the order; infinite for others
    gone: np.ndarray  #: bool: keys whose weight may vanish

    @property
    def smallest(self) -> F64:
        """Logarithms of the smallest weights that there can be, before and after division by the sum."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.exact) - self.logarithm)


def weights_of(scores: Scores, tile: int) -> Weights:
    top = scores.value.max(axis=-1, keepdims=True)
    below = scores.value - top
    error = _logarithms(scores, below, tile)
    weight = np.exp(below)
    total = weight.sum(axis=-1, keepdims=True)
    gone = below + error < _GONE
    one = np.where(_surely_largest(scores), 3 * U * np.abs(top), np.inf)
    return Weights(weight / total, np.where(gone, 0.0, error), total, one, gone)


def _logarithms(scores: Scores, below: F64, tile: int) -> F64:
    """D: by how much the logarithm of a computed weight may be off.

    The score's own error. Subtracting maxima (u) and turning to base 2 (TO_BASE_2): maxima only rise, so the
    differences on a key's way sum to its distance from the last, |x|, however many there are. EXP for its own
    exponential, for each rescaling (of a maximum that did not change it is exp(0) = 1) and for a merge. Where a
    kernel folds the scale into a fused product, dot · c - fl(m · c), u of the maximum, once, since later maxima are
    subtracted before they are scaled. For lse: LOG and the change of base of log L ≤ log S, u of the sum m + log L,
    and differences of lse that exceed those of maxima by log S.
    """
    count = below.shape[-1]
    reach = scores.error.max(axis=-1, keepdims=True)
    largest = np.abs(scores.value).max(axis=-1, keepdims=True) + reach
    exponentials = np.where(scores.level[..., None], 1, -(-count // tile) + 1)
    spread = np.where(scores.level[..., None], 0.0, np.abs(below) + 2 * reach)
    lse = (LOG + 2 * TO_BASE_2 + 2 * U) * np.log(count) + LOG_ABSOLUTE
    return np.asarray(
        (scores.error + (U + TO_BASE_2) * spread + EXP * exponentials + 3 * U * largest + lse) * MORE
    )


def _surely_largest(scores: Scores) -> np.ndarray:
    """Keys that no other can exceed: in their own tile they are the maximum, or equal to it.

    Their weight there is exp(0) = 1, or, of a fused product, the power of one rounding of the maximum (``one``).
    """
    high = scores.value + scores.error
    first = high.argmax(axis=-1, keepdims=True)
    others = high.copy()
    np.put_along_axis(others, first, -np.inf, axis=-1)
    limit = np.where(np.arange(high.shape[-1]) == first, others.max(axis=-1, keepdims=True), high.max(-1, keepdims=True))
    return np.asarray(scores.value - scores.error >= limit)


def weighed(
    weights: Weights, values: F64, codes: F64, value_scale: F64, to: str, to_scale: float, sums: str, tile: int
) -> tuple[F64, F64]:
    """Least and greatest N / L [kv heads, queries, columns], before it is rounded to the output's format.

    ``values`` [kv heads, keys, columns] are ``codes`` · ``value_scale`` [kv heads, keys, 1]; ``to`` is the format
    that weights are rounded to, times ``to_scale``.
    """
    count = values.shape[-2]
    rising, falling = np.exp(np.minimum(weights.logarithm, 1)), np.exp(-np.minimum(weights.logarithm, 1))
    least = (weights.exact * falling).sum(axis=-1, keepdims=True)
    coarse = (weights.logarithm > 1).any(axis=-1, keepdims=True)
    size = np.abs(values)
    largest = size.max(axis=-2)[:, None]

    low, high = _means(weights, values, least, coarse)
    add, rescalings = SUMS[sums].add * (count > 1), -(-count // tile) + 1
    numerator = np.expm1((count + 2) * add + (rescalings + 5) * U + DIVISION)
    denominator = np.expm1((count + 2) * min(add, 2 * U) + rescalings * U) + 4 * TINY * count
    rounding, lost = _narrowed(weights, value_scale, to)
    mass = weights.exact * rising * (numerator + rounding * (1 + numerator))
    added = np.where(coarse, (numerator + rounding.max(axis=-1, keepdims=True) * (1 + numerator)) * largest, 0.0)
    added = np.where(coarse, added, mass @ size / least)
    small = TINY * (4 * (size + np.abs(codes)).sum(axis=-2) + 4 * count * np.maximum(1, value_scale.max(axis=-2)))
    small += lost / to_scale * np.maximum(size, np.abs(codes)).sum(axis=-2)
    ends = np.maximum(np.abs(low), np.abs(high))
    error = (added + (small[:, None] / weights.total) / least + denominator * ends) / (1 - denominator)
    last = DIVISION + 2 * U
    reach = (error + last * (ends + error)) * MORE + TINY
    reach = np.where(largest == 0, 0.0, reach)
    return low - reach, high + reach


def _means(weights: Weights, values: F64, least: F64, coarse: np.ndarray) -> tuple[F64, F64]:
    """Least and greatest mean of values under perturbed weights."""
    mean = weights.exact @ values
    change = weights.exact * np.expm1(np.minimum(weights.logarithm, 1))
    all_of, first, second = change.sum(axis=-1, keepdims=True), change @ values, change @ values**2
    squares = np.maximum(second - 2 * mean * first + mean**2 * all_of, 0)
    squares += (values.shape[-2] + 8) * 2.0**-51 * (second + mean**2 * all_of)  # what float64 loses there
    reach = np.where(coarse, np.inf, np.sqrt(all_of * squares) / least)
    return (
        np.maximum(mean - reach, values.min(axis=-2)[:, None]),
        np.minimum(mean + reach, values.max(axis=-2)[:, None]),
    )


def _narrowed(weights: Weights, value_scale: F64, to: str) -> tuple[F64, float]:
    """Per key the relative rounding error of its weight in the narrower format, and what underflow loses at most.

    A weight that is 1 but for less than a quarter of a rounding error rounds to 1: what the rounding takes back is
    that error. With a scale of v multiplied in first, that holds for powers of two.
    """
    if to == "float32":
        return np.zeros_like(weights.exact), 0.0
    fmt = format_named(to)
    unit = 2.0 ** -(fmt.mantissa + 1)
    one = (weights.one < unit / 4) & power_of_two(value_scale).swapaxes(-1, -2)
    return np.where(one, weights.one, unit), 2.0 ** (-fmt.bias - fmt.mantissa)
