"""How large K and V can become at all, from weights alone: a ceiling, not an estimate. No input exceeds it.

Assumptions: a hidden vector h of d numbers, any whatever, is normalised, multiplied by a gain g, and projected: rows
W_i, bias b_i. Then K may be normalised again within a head, and is rotated pair by pair.

* RMSNorm: y = h / sqrt(mean(h^2) + eps), so |y|^2 = |h|^2 / (|h|^2 / d + eps) <= d. Then k_i = (W_i * g) . y + b_i,
  where * is element by element, and by Cauchy |k_i| <= |W_i * g| sqrt(d) + |b_i|. It is reached where y is parallel to
  W_i * g.
* LayerNorm: y = (h - mean) / sqrt(var + eps), so |y|^2 <= d, and the sum of y is 0. A row less its own mean gives the
  same product with such a y, and is the shortest row that does: |k_i| <= |a_i - mean(a_i)| sqrt(d) + |W_i . shift +
  b_i|, a_i = W_i * g. The norm's shift is one more bias.
* RoPE turns (k_i, k_j) by an angle: each of the two is then w . (k_i, k_j) for a w of length 1, times the factor that
  scaled kinds of RoPE multiply by. With A the two rows a_i, a_j and c their biases, |w . (A y + c)| <= |A^T w| |y| +
  |c| <= s sqrt(d) + |c|, where s is the largest singular value of A: s^2 is the larger eigenvalue of [[p, q], [q, r]],
  p = a_i . a_i, q = a_i . a_j, r = a_j . a_j. It is reached where there is no bias, at the angle of the singular
  vector. Elements that are not rotated keep their own.
* A norm of K within a head of n: K is g * y with |y| <= sqrt(n), whatever came before: |k_i| <= |g_i| sqrt(n). A pair:
  the larger of |g_i| and |g_j|, times sqrt(n), since |w * (g_i, g_j)| is at most that.

Rounding: a bound for exact arithmetic does not hold for a model in bfloat16, so there is an allowance. Let u be half
of the format's last place at 1. An implementation rounds to the format at most after the norm, the gain, the shift,
the projection, the bias, and in RoPE the table, the product, the sum: 8 times, each a factor within 1 + u of 1 on
every term. The norm's sum and root, and the projection's sum, are in float32: each within 1 + e, e = n v / (1 - n v),
v = 2^-24 and n the terms, in any order. So what is computed is off by at most ((1 + u)^8 (1 + e)^3 - 1) times the sum
of the magnitudes of all terms, and that sum is at most |a_i| sqrt(d) + sum |W_ij shift_j| + |b_i|; of a pair, the root
of the squares of two such. Two things are left out: underflow, which makes nothing larger by more than the smallest
number; and a LayerNorm of a vector whose mean is so much larger than its deviation that float32 loses the difference.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.formats import format_named

Values = npt.NDArray[np.float64]
#: how often an implementation rounds to the model's format, and how often it sums in float32
ROUNDINGS, SUMS = 8, 3


@dataclass(frozen=True, eq=False)
class Ceiling:
    """For each element of a head, [heads, d]: the ceiling of exact arithmetic, and what rounding can add."""

    exact: Values
    terms: Values  #: the sum of magnitudes that rounding is relative to

    def largest(self, allowance: float) -> Values:
        """[heads], with rounding."""
        found: Values = (self.exact + allowance * self.terms).max(axis=1)
        return found


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a projection, after a norm of hidden vectors of ``size``."""

    rows: Values  #: [rows, size]: weight times gain, less its mean after a LayerNorm
    offset: Values  #: [rows]: what does not depend on the hidden vector
    terms: Values  #: [rows]: see ``Ceiling``

    @property
    def size(self) -> int:
        return int(self.rows.shape[1])

    def ceiling(self) -> Values:
        """[rows]"""
        found: Values = _lengths(self.rows) * np.sqrt(self.size) + np.abs(self.offset)
        return found

    def of_pairs(self, first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]) -> Values:
        """[pairs], of rows that RoPE turns into each other."""
        a, b = self.rows[first], self.rows[second]
        p, q, r = (np.einsum("ij,ij->i", x, y) for x, y in ((a, a), (a, b), (b, b)))
        squared = (p + r + np.sqrt((p - r) ** 2 + 4 * q**2)) / 2
        found: Values = np.sqrt(squared * self.size) + np.hypot(self.offset[first], self.offset[second])
        return found


def _lengths(rows: Values) -> Values:
    found: Values = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return found


def projected(
    weight: Values, gain: Values, shift: Values | None = None, bias: Values | None = None, *, centred: bool = False
) -> Rows:
    """Rows [rows, size] of a projection behind a norm with that gain [size] and shift [size].

    ``centred``: the norm is a LayerNorm, whose results sum to 0.
    """
    scaled = weight * gain
    terms = _lengths(scaled) * np.sqrt(weight.shape[1])
    offset = np.zeros(weight.shape[0])
    if shift is not None:
        offset = offset + weight @ shift
        terms = terms + np.abs(weight) @ np.abs(shift)
    if bias is not None:
        offset = offset + bias
        terms = terms + np.abs(bias)
    rows = scaled - scaled.mean(axis=1, keepdims=True) if centred else scaled
    return Rows(rows, offset, terms)


def pairs_of(rotated: int, order: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Elements of a head that RoPE turns into each other, of its first ``rotated``: "halves" (i with i + half) or
    "neighbours" (2 i with 2 i + 1)."""
    if order == "halves":
        first = np.arange(rotated // 2)
        return first, first + rotated // 2
    first = np.arange(0, rotated, 2)
    return first, first + 1


def plain(rows: Rows, heads: int) -> Ceiling:
    """Of a projection that is cached as it is."""
    return Ceiling(rows.ceiling().reshape(heads, -1), rows.terms.reshape(heads, -1))


def turned(found: Rows, heads: int, rotated: int, order: str, factor: float) -> Ceiling:
    """Of a projection whose heads are then rotated; ``factor`` is what the kind of RoPE multiplies by."""
    ceiling = plain(found, heads)
    first, second = pairs_of(rotated, order)
    starts = np.arange(heads)[:, None] * ceiling.exact.shape[1]
    both = found.of_pairs((starts + first).ravel(), (starts + second).ravel()).reshape(heads, -1)
    return _with_pairs(ceiling, first, second, both, factor)


def normed(gain: Values, heads: int, rotated: int, order: str, factor: float) -> Ceiling:
    """Of heads that are normalised with that gain [d] and then rotated."""
    alone = np.broadcast_to(np.abs(gain) * np.sqrt(gain.size), (heads, gain.size)).copy()
    first, second = pairs_of(rotated, order)
    return _with_pairs(
        Ceiling(alone, alone.copy()), first, second, np.maximum(alone[:, first], alone[:, second]), factor
    )


def _with_pairs(
    ceiling: Ceiling, first: npt.NDArray[np.int64], second: npt.NDArray[np.int64], both: Values, factor: float
) -> Ceiling:
    exact, terms = ceiling.exact.copy(), ceiling.terms.copy()
    length = np.hypot(terms[:, first], terms[:, second]) * factor
    for places in (first, second):
        exact[:, places], terms[:, places] = both * factor, length
    return Ceiling(exact, terms)


def allowance(format_name: str, size: int) -> float:
    """What rounding can add, relative to the terms, for hidden vectors of ``size`` in a format."""
    u = 2.0 ** -(format_named(format_name).mantissa + 1)
    n = size * 2.0**-24
    return float((1 + u) ** ROUNDINGS * (1 + n / (1 - n)) ** SUMS - 1)
