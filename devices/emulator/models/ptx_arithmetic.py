"""Floating-point arithmetic of PTX on arrays of float32 or float16, from the words of the PTX ISA.

IEEE operations are NumPy's: float32 ``+ - * /`` and ``sqrt`` round once, to nearest even, and keep subnormals. A NaN
that an operation makes is the canonical one. Approximations are nvidia_approx.py's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from narrowgauge.devices.emulator.memory import Array
from narrowgauge.devices.emulator.models.rounding_ieee import bf16_of, float32_of_bf16, float32_to_odd

CANONICAL: dict[np.dtype[Any], Any] = {
    np.dtype(np.float32): np.uint32(0x7FFFFFFF),
    np.dtype(np.float16): np.uint16(0x7FFF),
}


def canonical(x: Array) -> Array:
    """The same with every NaN the one that PTX makes: 0x7fffffff, 0x7fff; float64 keeps its own."""
    if x.dtype not in CANONICAL:
        return x
    nan = np.isnan(x)
    return np.where(nan, CANONICAL[x.dtype].view(x.dtype), x) if nan.any() else x


def flush(x: Array) -> Array:
    """.ftz: subnormal float32 become zeros of their sign."""
    bits = x.view(np.uint32)
    return np.where(bits & 0x7F800000 == 0, bits & np.uint32(0x80000000), bits).view(np.float32)


def fma(a: Array, b: Array, c: Array) -> Array:
    """``a * b + c`` of float32 or float16, rounded once.

    The product is exact in float64 (2 * 24 bits). The sum is rounded to odd there: 53 bits are at least two more than
    24, so that the second rounding gives what a single one would (Boldo and Melquiond, "Emulation of FMA").
    """
    product = a.astype(np.float64) * b.astype(np.float64)
    exact = _sum_to_odd(product, c.astype(np.float64))
    return canonical(exact.astype(a.dtype))


def fma64(a: Array, b: Array, c: Array) -> Array:
    """``a * b + c`` of float64, rounded once: by fractions, one at a time."""
    plain: Array = a * b + c
    rounded = np.frompyfunc(_fma64, 4, 1)(a, b, c, plain)
    return np.asarray(rounded, np.float64)


def _fma64(a: float, b: float, c: float, plain: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return plain
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return plain  # no rounding took place, and the sign is that of IEEE
    try:
        return exact.numerator / exact.denominator  # Python rounds this once, subnormals too
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _sum_to_odd(x: Array, y: Array) -> Array:
    """``x + y`` of float64 [n]: exact, or that neighbour of the exact sum whose last bit is 1."""
    total = x + y
    part = total - x
    error = (x - (total - part)) + (y - part)  # Knuth: exact, for any order of magnitudes
    bits = total.view(np.int64)
    adjust = np.isfinite(total) & (error != 0) & (bits & 1 == 0)
    if not adjust.any():
        return total
    away = (error > 0) == (total > 0)
    return np.where(adjust, bits + np.where(away, 1, -1), bits).view(np.float64)


def directed(exact: Array, how: str) -> Array:
    """float64 to float32 toward zero (rz), down (rm) or up (rp). ``exact`` may have been rounded to odd before."""
    nearest = exact.astype(np.float32)
    back = nearest.astype(np.float64)
    over = {"rz": np.abs(back) > np.abs(exact), "rm": back > exact, "rp": back < exact}[how]
    toward = {"rz": np.float32(0), "rm": np.float32(-np.inf), "rp": np.float32(np.inf)}[how]
    found: Array = np.where(over, np.nextafter(nearest, toward), nearest)
    return canonical(_signed_zero(found, exact))


def _signed_zero(found: Array, exact: Array) -> Array:
    """A result that became 0 keeps the sign of what it was."""
    zero = np.where(np.signbit(exact), np.float32(-0.0), np.float32(0))
    return np.where((found == 0) & (exact != 0), zero, found)


def fma_directed(how: str) -> Callable[[Array, Array, Array], Array]:
    """``a * b + c`` of float32."""

    def compute(a: Array, b: Array, c: Array) -> Array:
        product = a.astype(np.float64) * b.astype(np.float64)
        return _sum_directed(product, c.astype(np.float64), how)

    return compute


def saturate(x: Array) -> Array:
    """.sat: clamped to [0, 1]; NaN and -0 are +0."""
    found: Array = np.where(x > 0, np.minimum(x, x.dtype.type(1)), x.dtype.type(0))
    return found


def sum_directed(how: str) -> Callable[[Array, Array], Array]:
    """``a + b`` of float32. An exact sum of zero is -0 when rounding down (IEEE 754, 6.3), unless both are +0."""

    return lambda a, b: _sum_directed(a.astype(np.float64), b.astype(np.float64), how)


def _sum_directed(x: Array, y: Array, how: str) -> Array:
    exact = _sum_to_odd(x, y)
    found = directed(exact, how)
    if how == "rm":
        found = np.where((exact == 0) & (np.signbit(x) | np.signbit(y)), np.float32(-0.0), found)
    return found


def product_directed(how: str) -> Callable[[Array, Array], Array]:
    """``a * b`` of float32."""
    return lambda a, b: directed(a.astype(np.float64) * b.astype(np.float64), how)


def minimum(a: Array, b: Array) -> Array:
    """min: the other where one is NaN; -0 is below +0."""
    return canonical(np.where(_below(a, b) | np.isnan(b), a, b))


def maximum(a: Array, b: Array) -> Array:
    """max: the other where one is NaN; -0 is below +0."""
    return canonical(np.where(_below(b, a) | np.isnan(b), a, b))


def _below(a: Array, b: Array) -> Array:
    below: Array = (a < b) | ((a == b) & np.signbit(a))
    return below


def propagating(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """.NaN: canonical NaN where either is NaN."""

    def either(a: Array, b: Array) -> Array:
        nan = CANONICAL[a.dtype].view(a.dtype)
        return np.where(np.isnan(a) | np.isnan(b), nan, function(a, b))

    return either


def xorsign_abs(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """.xorsign.abs: of the magnitudes, with the exclusive or of both signs."""

    def signed(a: Array, b: Array) -> Array:
        bits = np.dtype(f"u{a.itemsize}")
        top = bits.type(1 << 8 * a.itemsize - 1)
        sign = (a.view(bits) ^ b.view(bits)) & top
        magnitude = function(np.abs(a), np.abs(b)).view(bits)
        return np.where(np.isnan(a) & np.isnan(b), magnitude, magnitude | sign).view(a.dtype)

    return signed


def root(x: Array) -> Array:
    """sqrt.rn."""
    return canonical(np.sqrt(x))


def reciprocal(x: Array) -> Array:
    """rcp.rn."""
    return canonical(np.divide(x.dtype.type(1), x))


def divide(a: Array, b: Array) -> Array:
    """div.rn."""
    return canonical(a / b)


def fma_bf16(a: Array, b: Array, c: Array) -> Array:
    """``a * b + c`` of bfloat16 patterns, rounded once: by float64 and float32, both to odd."""
    product = float32_of_bf16(a).astype(np.float64) * float32_of_bf16(b)
    return bf16_of(float32_to_odd(_sum_to_odd(product, float32_of_bf16(c).astype(np.float64))))
