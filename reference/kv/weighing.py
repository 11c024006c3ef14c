"""Weights of keys and the weighted mean of values: every result that a float32 kernel may reach.

The proof is for one head and one column; u, EXP and the other allowances are those of ``arithmetic``.

**What a right kernel does.** A key i meets exp(ŝ_i - m) where m is the largest score seen so far, in its tile and
split. Where a larger one comes, sums and accumulators are multiplied by exp(old - new). Splits are merged by their
maxima, or by lse = m + log(sum) and means. The same computed factors reach the sum of weights L and, for all columns,
the sum of weighted values N: so both hold the *same* computed weight ŵ_i, and rounding errors of their own.

**Weights.** ŵ_i = exp(s_i - m) · exp(δ_i) with |δ_i| ≤ D_i (``_logarithms``). A common factor of all weights cancels
in N / L, so the error of m itself does not count.

**Mean of perturbed weights.** With p the exact weights, o = Σ p v, r = Σ p e^δ v / Σ p e^δ, and Σ p (v - o) = 0:
r - o = Σ p (e^δ - 1)(v - o) / Σ p e^δ, at most Σ p (e^D - 1)|v - o| / Σ p e^-D. The sum is at most
√(Σ p (e^D - 1) · Σ p (e^D - 1)(v - o)²), by Cauchy and Schwarz (good where values are alike), and Σ p (e^D - 1)|v| +
|o| Σ p (e^D - 1) (good where few keys matter): products of matrices. Besides, r lies between the least and the
largest value; where some D is large that is all that is said.

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
    Mask,
    U,
    in_format,
    power_of_two,
    rounding_to,
)
from narrowgauge.reference.kv.rule import Attention
from narrowgauge.reference.kv.scores import Scores

#: below e^this a weight is none: it rounds to 0, or to less than 2^-126
_GONE = -104.0
#: of the largest score, by what a fused product with the maximum (u, twice in a merge) and a sum m + log L (u) are off
_REFERENCE = 3 * U


@dataclass(frozen=True, eq=False)
class Weights:
    """Exact weights [kv heads, queries, keys] that sum to 1, and by how much a kernel's may be off."""

    natural: F64  #: logarithm of the exact weight
    error: F64  #: of the logarithm, at most; 0 where ``gone``
    total: F64  #: of exp(score - maximum) over the keys: at least 1
    one: F64  #: by how much a weight may differ from 1 that is 1 whatever the order; infinite for others
    gone: Mask  #: keys whose weight may vanish

    @property
    def exact(self) -> F64:
        return np.exp(self.natural)


def weights_of(scores: Scores, tile: int) -> Weights:
    """Softmax of the scores. ``tile``: a key's way has at most one rescaling for so many keys, merges apart."""
    top = scores.value.max(axis=-1, keepdims=True)
    below = scores.value - top
    rivals = _rivals(scores)
    error = _logarithms(scores, below, np.minimum(rivals, -(-below.shape[-1] // tile) + 1))
    total = np.exp(below).sum(axis=-1, keepdims=True)
    gone = below + error < _GONE
    one = np.where(rivals == 0, _REFERENCE * np.abs(top) + EXP * (top != 0), np.inf)
    return Weights(below - np.log(total), np.where(gone, 0.0, error), total, one, gone)


def _rivals(scores: Scores) -> F64:
    """Per key how many others may have a larger computed score.

    With none, a key is its tile's maximum: its weight there is exp(0) = 1, or, of a fused product, a power of one
    rounding of the maximum (``Weights.one``).
    """
    shape = scores.value.shape
    high = np.sort(scores.value + scores.error, axis=-1).reshape(-1, shape[-1])
    low = (scores.value - scores.error).reshape(-1, shape[-1])
    above = [shape[-1] - np.searchsorted(h, own, side="right") for h, own in zip(high, low, strict=True)]
    return np.stack(above).reshape(shape) - (scores.error > 0)


def _logarithms(scores: Scores, below: F64, rescalings: F64) -> F64:
    """D: by how much the logarithm of a computed weight may be off.

    The score's own error. Subtracting maxima (u) and turning to base 2 (TO_BASE_2): maxima only rise, so the
    differences on a key's way sum to its distance from the last, |x|, however many there are. EXP for each exponential
    on it: its own and those of rescalings have as many larger maxima, each another rival's (of a maximum that did not
    change it is exp(0) = 1); one more for a merge of means, one for the rounding of a fused product. Where a kernel
    folds the scale into that, dot · c - fl(m · c), u of the maximum, once, since later maxima are subtracted before
    they are scaled. For lse: LOG and the change of base of log L ≤ log S, u of the sum m + log L, and differences of
    lse that exceed those of maxima by log S.
    """
    reach = scores.error.max(axis=-1, keepdims=True)
    largest = np.abs(scores.value).max(axis=-1, keepdims=True) + reach
    steps = (U + TO_BASE_2) * (np.abs(below) + 2 * reach) + EXP * (rescalings + 2)
    lse = (LOG + 2 * TO_BASE_2 + 2 * U) * np.log(below.shape[-1]) + LOG_ABSOLUTE
    return np.asarray((scores.error + steps + _REFERENCE * largest + lse) * MORE)


@dataclass(frozen=True, eq=False)
class Values:
    """v [kv heads, keys, columns] = codes · scale [kv heads, keys, 1], where the scale may be folded elsewhere."""

    codes: F64
    scale: F64

    @property
    def exact(self) -> F64:
        return self.codes * self.scale


def weighed(weights: Weights, values: Values, rule: Attention) -> tuple[F64, F64]:
    """Least and greatest N / L [kv heads, queries, columns], before it is rounded to the output's format."""
    v, exact = values.exact, weights.exact
    count, size = v.shape[-2], np.abs(v)
    reach = np.minimum(weights.error, 1)
    least = (exact * np.exp(-reach)).sum(axis=-1, keepdims=True)
    coarse = (weights.error > 1).any(axis=-1, keepdims=True)
    largest = size.max(axis=-2)[:, None]

    low, high = _means(exact, reach, v, np.where(coarse, 0.0, least))
    numerator, denominator = _sums(count, rule)
    rounding, lost = _narrowed(weights, values.scale, rule)
    of_term = numerator + rounding * (1 + numerator)
    added = np.where(
        coarse, of_term.max(axis=-1, keepdims=True) * largest, (exact * np.exp(reach) * of_term) @ size / least
    )
    small = TINY * (
        4 * (size + np.abs(values.codes)).sum(axis=-2) + 4 * count * np.maximum(1, values.scale.max(axis=-2))
    )
    small += lost * np.maximum(size, np.abs(values.codes)).sum(axis=-2)
    added += small[:, None] / np.where(coarse, 1.0, weights.total * least)
    ends = np.maximum(np.abs(low), np.abs(high))
    error = (added + denominator * ends) / (1 - denominator)
    last = DIVISION + 2 * U
    reach = np.where(largest == 0, 0.0, (error + last * (ends + error)) * MORE + TINY)
    return low - reach, high + reach


def _sums(count: int, rule: Attention) -> tuple[float, float]:
    """Errors of N, relative to Σ ŵ|v|, and of L.

    N: count - 1 additions, or none; rescalings, a merge, a product, two scalings, a split's mean (its division and
    the product with its weight). L: the same additions in float32, the rescalings and the merge.
    """
    add, rescalings = SUMS[rule.sums].add * (count > 1), -(-count // rule.tile) + 1
    return (
        float(np.expm1((count + 2) * add + (rescalings + 4) * U + DIVISION)),
        float(np.expm1((count + 2) * min(add, 2 * U) + rescalings * U) + 4 * TINY * count),
    )


def _means(exact: F64, error: F64, values: F64, least: F64) -> tuple[F64, F64]:
    """Least and greatest mean of values under perturbed weights; of a ``least`` of 0, that of the values."""
    mean = exact @ values
    change = exact * np.expm1(error)
    all_of, first, second = change.sum(axis=-1, keepdims=True), change @ values, change @ values**2
    squares = np.maximum(second - 2 * mean * first + mean**2 * all_of, 0)
    squares += (values.shape[-2] + 8) * 2.0**-51 * (second + mean**2 * all_of)  # what float64 loses there
    either = np.minimum(np.sqrt(all_of * squares), change @ np.abs(values) + np.abs(mean) * all_of)
    reach = np.where(least == 0, np.inf, either / least)
    return (
        np.maximum(mean - reach, values.min(axis=-2)[:, None]),
        np.minimum(mean + reach, values.max(axis=-2)[:, None]),
    )


def _narrowed(weights: Weights, value_scale: F64, rule: Attention) -> tuple[F64, float]:
    """Per key the relative rounding error of its weight in the narrower format, and what underflow loses at most.

    A weight that is 1 but for less than a quarter of a rounding error rounds to 1: what the rounding takes back is
    that error. With a scale of v multiplied in first, that holds for powers of two.
    """
    rounding = rounding_to(rule.weights)
    one = (weights.one < rounding.unit / 4) & power_of_two(value_scale).swapaxes(-1, -2)
    return np.where(one, weights.one, rounding.unit), rounding.lost / rule.weights_scale


def weighed_as_shares(weights: Weights, values: Values, rule: Attention) -> tuple[F64, F64]:
    """The same for a kernel that divides first: shares ŵ_i / L are rounded, then summed with values.

    A share is p e^±(D_i + D) with D of the sum, off by the sum's and the division's errors: what it rounds to is known
    but near a tie, whatever the order. No splits, and the scale of v at v or at the end.
    """
    v = values.exact
    numerator, denominator = _sums(v.shape[-2], rule)
    mean = np.log((weights.exact * np.exp(np.minimum(weights.error, 1))).sum(axis=-1, keepdims=True))
    mean = np.where((weights.error > 1).any(axis=-1, keepdims=True), 1e3, mean)  # from nothing to 1
    reach = (weights.error + mean + 2 * denominator + DIVISION) * MORE
    low = np.where(weights.gone, 0.0, np.exp(weights.natural - reach) - TINY)
    high = np.exp(np.minimum(weights.natural + reach, 8 * U)) + TINY
    low, high = (
        in_format(end * rule.weights_scale, rule.weights) / rule.weights_scale for end in (np.maximum(low, 0), high)
    )
    up, down, size = np.maximum(v, 0), np.maximum(-v, 0), np.abs(v)
    error = (
        numerator * MORE * (high @ size) + TINY * 4 * v.shape[-2] * np.maximum(1, values.scale.max(axis=-2))[:, None]
    )
    error = np.where(size.max(axis=-2)[:, None] == 0, 0.0, error)
    return low @ up - high @ down - error, high @ up - low @ down + error
