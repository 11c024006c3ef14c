"""The arithmetic of matrix units: one step each, from products of a stretch of k and an addend to a new addend.

Written from the texts that each family names; addends are float64 that the unit's register format holds. T-FDPA and its
kin are of Xie et al., arXiv 2511.10909, and Khattak and Mikaitis, arXiv 2512.07004.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from narrowgauge.reference.units.operands import NOTHING, Side
from narrowgauge.reference.units.rounding import (
    F64,
    FLOAT16,
    FLOAT32,
    Exponents,
    Range,
    exponent_of,
    nearest,
    power,
    sum_to_odd,
    toward_zero,
)


class Family(Protocol):
    """How a unit computes. ``length``: products of one step."""

    @property
    def length(self) -> int: ...

    def step(self, a: Side, b: Side, c: F64) -> F64:
        """c plus the products of ``length`` positions of k, as the unit gives it. Shapes: sides broadcast to c's."""


def products(a: Side, b: Side) -> Iterator[F64]:
    """The products, k ascending; zero for those of what is not finite. Exact."""
    return (one * other for one, other in zip(a.finite, b.finite, strict=True))


def largest_exponent(a: Side, b: Side, like: F64) -> Exponents:
    """The largest exponent of a product; below ``NOTHING`` / 2 where every product is zero."""
    top, each = np.full(like.shape, 2 * NOTHING, np.int16), np.empty(like.shape, np.int16)
    for one, other in zip(a.exponent, b.exponent, strict=True):
        np.maximum(top, np.add(one, other, out=each), out=top)
    return top


def truncated(a: Side, b: Side, step: F64) -> F64:
    """The sum of the products, each cut toward zero to a multiple of ``step``, in units of it: whole numbers."""
    per, total, each = 1 / step, np.zeros(step.shape), np.empty(step.shape)
    for one, other in zip(a.finite, b.finite, strict=True):
        np.multiply(one, other, out=each)
        np.multiply(each, per, out=each)
        np.trunc(each, out=each)
        np.add(total, each, out=total)
    return total


def _of_addend(c: F64, least: int, zero: int) -> Exponents:
    """Exponents of addends; of zero and of what is not finite ``zero``."""
    found = np.maximum(exponent_of(c), least)
    return np.where((c == 0) | ~np.isfinite(c), zero, found).astype(np.int16)


def with_specials(result: F64, a: Side, b: Side, c: F64, overflow: bool = False) -> F64:
    """The result, but IEEE 754's sum where an operand, or the addend, is infinite or NaN.

    ``overflow``: a product past float32's range is infinite, too. float64 holds it.
    """
    if not (overflow or a.special.any() or b.special.any() or not np.isfinite(c).all()):
        return result
    limit = 2.0 ** FLOAT32[1] if overflow else np.inf
    with np.errstate(invalid="ignore"):
        total = np.where(np.isfinite(c), 0.0, c)
        for one, other in zip(a.value, b.value, strict=True):
            product = one * other
            infinite = np.where(np.abs(product) >= limit, np.copysign(np.inf, product), product)
            total = total + np.where(np.isfinite(infinite), 0.0, infinite)
    return np.where(np.isfinite(total), result, total)


@dataclass(frozen=True)
class Truncating:
    """T-FDPA, ST-FDPA: every term is cut toward zero to ``fraction`` bits below the largest exponent, summed exactly.

    A term that is zero counts with the exponent ``zero``, which is below that of any other addend: so it counts where
    the addend is zero, and elsewhere not. The sum is cut toward zero to ``stored`` fraction bits of
    float32, or rounded to the nearest float16. -0 becomes +0; past the range is infinity.
    """

    length: int
    fraction: int
    stored: int  #: 23 or 13, of float32; 10: float16, to nearest
    zero: int

    def step(self, a: Side, b: Side, c: F64) -> F64:
        return with_specials(self._rounded(self._sum(a, b, np.where(np.isfinite(c), c, 0.0))), a, b, c)

    def _sum(self, a: Side, b: Side, c: F64) -> F64:
        top = np.maximum(largest_exponent(a, b, c), _of_addend(c, self._range[0], self.zero))
        step = power(top - np.int16(self.fraction))
        return (truncated(a, b, step) + np.trunc(c / step)) * step

    @property
    def _range(self) -> Range:
        return FLOAT16 if self.stored == 10 else FLOAT32

    def _rounded(self, total: F64) -> F64:
        return (nearest if self.stored == 10 else toward_zero)(total, self.stored, self._range) + 0.0  # -0 becomes +0


@dataclass(frozen=True)
class TruncatingGroups:
    """GST-FDPA: products of ``group`` positions are summed exactly, the sums are terms as in T-FDPA.

    A term's exponent is that of its scales alone (``operands.scaled_apart``), even where its products cancel; only of a
    group whose products are all zero it is ``zero``.
    """

    length: int
    group: int
    fraction: int
    zero: int
    stored: int = 23

    def step(self, a: Side, b: Side, c: F64) -> F64:
        addend = np.where(np.isfinite(c), c, 0.0)
        sums, exponents = [addend], [_of_addend(addend, FLOAT32[0], self.zero)]
        for start in range(0, self.length, self.group):
            total, there = self._term(a.cut(start, start + self.group), b.cut(start, start + self.group), c)
            sums.append(total)
            exponents.append(there)
        step = power(np.max(exponents, axis=0) - self.fraction)
        exact: F64 = np.sum([np.trunc(one / step) for one in sums], axis=0)
        return with_specials(toward_zero(exact * step, self.stored, FLOAT32) + 0.0, a, b, c)

    def _term(self, a: Side, b: Side, like: F64) -> tuple[F64, Exponents]:
        total, some = np.zeros(like.shape), np.zeros(like.shape, np.bool_)
        for product in products(a, b):
            total = total + product
            some |= product != 0
        there = np.where(some, a.exponent[0] + b.exponent[0], 0)
        return total * power(there), np.where(some, there, self.zero).astype(np.int16)


@dataclass(frozen=True)
class TwoHalves:
    """mma.sync of fp8 where there is no fp8 unit behind it: two 16-bit steps without addend, then one added.

    Of each four positions the first two go through one step of ``inner``, the others through the next, which takes
    the first one's result; the addend is added at the end, to nearest even.
    """

    inner: Truncating

    @property
    def length(self) -> int:
        return 2 * self.inner.length

    def step(self, a: Side, b: Side, c: F64) -> F64:
        k = np.arange(self.length)
        first, second = np.flatnonzero(k % 4 < 2), np.flatnonzero(k % 4 >= 2)
        found = self.inner.step(a.take(first), b.take(first), np.zeros_like(c))
        found = self.inner.step(a.take(second), b.take(second), found)
        with np.errstate(invalid="ignore"):
            whole = np.isfinite(found) & np.isfinite(c)
            total = sum_to_odd([np.where(whole, found, 0.0), np.where(whole, c, 0.0)])
            fraction, span = (10, FLOAT16) if self.inner.stored == 10 else (23, FLOAT32)
            return np.where(whole, nearest(total, fraction, span), found + c)
