"""The arithmetic of AMD's matrix units of CDNA1 to CDNA3 (Xie et al., arXiv 2511.10909), in steps as ``families``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from narrowgauge.reference.units.families import largest_exponent, products, truncated, with_specials
from narrowgauge.reference.units.operands import NOTHING, Side
from narrowgauge.reference.units.rounding import (
    F64,
    FLOAT32,
    Exponents,
    exponent_of,
    floor_to,
    nearest,
    power,
    sum_to_odd,
)

#: fraction bits below the largest exponent: of products and of the addend; of the sum of the products, and of all
_TERMS, _SUM = 24, 31
#: fp8 alone: an addend so many binades below the largest exponent is dropped before it can be floored
_DROPPED = 25


@dataclass(frozen=True)
class Exact:
    """E-FDPA (CDNA1): the exact sum of the products and the addend, rounded once, to nearest even."""

    length: int

    def step(self, a: Side, b: Side, c: F64) -> F64:
        total = sum_to_odd([*products(a, b), np.where(np.isfinite(c), c, 0.0)])
        return with_specials(nearest(total, 23, FLOAT32), a, b, c)


@dataclass(frozen=True)
class Pairwise:
    """CDNA2, 16 bits: float32 products and sums, to nearest even, in pairs, then the addend; subnormals are zeros.

    Subnormal operands and addends are +0; a subnormal result keeps its sign.
    """

    length: int

    def step(self, a: Side, b: Side, c: F64) -> F64:
        with np.errstate(invalid="ignore"):
            terms = [_flushed(one * other) for one, other in zip(_normal(a), _normal(b), strict=True)]
            while len(terms) > 1:
                terms = [_flushed(terms[i] + terms[i + 1]) for i in range(0, len(terms), 2)]
            return _flushed(np.where(np.abs(c) < 2.0 ** FLOAT32[0], 0.0, c) + terms[0])


def _normal(side: Side) -> F64:
    """The operands, +0 for subnormal ones: those whose value is below the exponent of their field."""
    least = np.abs(side.value) < power(np.where(side.exponent == NOTHING, 0, side.exponent))
    return np.where(least & (side.exponent != NOTHING), 0.0, side.value)


def _flushed(values: F64) -> F64:
    """One float32 result: float64 has every product exactly, and sums of two float32 to within innocuous rounding."""
    found = nearest(values, 23, FLOAT32)
    return np.where(np.abs(found) < 2.0 ** FLOAT32[0], np.copysign(0.0, found), found)


@dataclass(frozen=True)
class Rounded:
    """TR-FDPA, GTR-FDPA (CDNA3): terms cut toward zero, their sum and the addend floored, the whole rounded to nearest.

    With ``parities`` the products at even and at odd k are summed apart, then both floored to a common exponent.
    ``wide``: operands whose products may pass float32's range, and are infinite then.
    """

    length: int
    parities: bool = False
    wide: bool = False

    def step(self, a: Side, b: Side, c: F64) -> F64:
        addend = np.where(np.isfinite(c), c, 0.0)
        dot, top = self._dot(a, b, addend)
        of_addend = np.where(addend == 0, FLOAT32[0], np.maximum(exponent_of(addend), FLOAT32[0])).astype(np.int16)
        if self.parities:
            addend = np.where(of_addend < top - _DROPPED, 0.0, addend)
        top = np.maximum(top, of_addend)
        total = floor_to(dot, power(top - _SUM)) + floor_to(addend, power(top - _TERMS))
        total = floor_to(total, power(np.maximum(exponent_of(total), FLOAT32[0] - 200) - _SUM))
        return with_specials(nearest(total, 23, FLOAT32), a, b, c, overflow=self.wide)

    def _dot(self, a: Side, b: Side, like: F64) -> tuple[F64, Exponents]:
        if not self.parities:
            return _cut(a, b, like)
        k = np.arange(self.length)
        (even, of_even), (odd, of_odd) = (_cut(a.take(k[i::2]), b.take(k[i::2]), like) for i in range(2))
        top = np.maximum(of_even, of_odd)
        step = power(_at_least(top) - _TERMS)
        return floor_to(even, step) + floor_to(odd, step), top


def _cut(a: Side, b: Side, like: F64) -> tuple[F64, Exponents]:
    top = largest_exponent(a, b, like)
    step = power(_at_least(top) - _TERMS)
    return truncated(a, b, step) * step, top


def _at_least(top: Exponents) -> Exponents:
    """Exponents for which there is a power of two; where every product is zero it is of no matter which."""
    return np.maximum(top, np.int16(-600))
