"""Chains of fused multiply-adds, and whole numbers: what needs no model beyond IEEE 754 and two's complement."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from narrowgauge.reference.units.operands import Side
from narrowgauge.reference.units.rounding import F64, FLOAT32, nearest, sum_to_odd

_LEAST = -(2.0**31)


@dataclass(frozen=True)
class Chain:
    """c = fma(a[k], b[k], c) for ascending k, to nearest even, in float32 or float64."""

    wide: bool = False  #: float64
    length: int = 1

    def step(self, a: Side, b: Side, c: F64) -> F64:
        for one, other in zip(a.value, b.value, strict=True):
            c = _fma64(one, other, c) if self.wide else fma32(one, other, c)
        return c


def fma32(a: F64, b: F64, c: F64) -> F64:
    """a · b + c of float32 numbers, with one rounding to float32."""
    with np.errstate(invalid="ignore"):
        product = a * b  # exact: 48 bits, and in float64's range
        whole = np.isfinite(product) & np.isfinite(c)
        total = sum_to_odd([np.where(whole, product, 0.0), np.where(whole, c, 0.0)])
        return np.where(whole, nearest(total, 23, FLOAT32), product + c)


def _fma64(a: F64, b: F64, c: F64) -> F64:
    found = [_fma(*map(float, each)) for each in np.broadcast(a, b, c)]
    return np.array(found, np.float64).reshape(np.broadcast_shapes(a.shape, b.shape, c.shape))


def _fma(a: float, b: float, c: float) -> float:
    """One rounding of the exact a · b + c; a division of whole numbers rounds correctly in Python."""
    if not all(map(math.isfinite, (a, b, c))):
        return (0.0 if math.isfinite(a) and math.isfinite(b) else a * b) + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c  # the product is -c, or both are zeros: nothing is rounded, and the sign is IEEE 754's
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


@dataclass(frozen=True)
class Whole:
    """Whole numbers: the sum is exact, and keeps its lower 32 bits, or is clamped after each ``length`` products."""

    length: int
    clamps: bool = False

    def step(self, a: Side, b: Side, c: F64) -> F64:
        total = np.array(c)
        for one, other in zip(a.value, b.value, strict=True):
            total += one * other
        return np.clip(total, _LEAST, -1 - _LEAST) if self.clamps else wrapped(total)


def wrapped(values: F64) -> F64:
    """Whole numbers as their lower 32 bits read as two's complement."""
    return values.astype(np.int64).astype(np.int32).astype(np.float64)
