"""What the checks measure with: exact values of formats, one cast, quantization by a scale, and decibels."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from functools import cache
from typing import SupportsFloat

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.formats import FORMATS, Format, format_named
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.reference.codec import decode, encode, values

Reals = npt.NDArray[np.float64]

#: the floating-point formats whose values fit in a table
FLOATS = [f.name for f in FORMATS.values() if f.family in ("ieee", "fn", "fnuz", "finite") and f.bits <= 19]
#: finite overflow and infinity are clamped, as engines do before they cast
CLAMPED = CastPolicy()
#: overflow is infinity, or NaN where the format has none
SPECIAL = CastPolicy(overflow="special", infinity="special")


@cache
def finite(name: str) -> tuple[Fraction, ...]:
    """The finite non-negative values of a format of at most 19 bits, in ascending order."""
    return tuple(Fraction(v) for v in finite_reals(name).tolist())


def largest(name: str) -> Fraction:
    """The largest finite value of a format of any width below 64 bits."""
    fmt = format_named(name)
    if fmt.bits <= 19:
        return finite(name)[-1]
    return (2 - Fraction(1, 1 << fmt.mantissa)) * Fraction(2) ** fmt.bias


def finite_reals(name: str) -> Reals:
    """The same as float64, which holds them exactly."""
    fmt = format_named(name)
    table = values(fmt)[: fmt.sign_bit or fmt.code_count]
    return table[np.isfinite(table)]


def smallest_normal(name: str) -> Fraction:
    return finite(name)[1 << format_named(name).mantissa]


def smallest_subnormal(name: str) -> Fraction:
    return finite(name)[1]


def cast(x: float | Reals | Iterable[float], name: str, policy: CastPolicy = CLAMPED) -> Reals:
    """The values that real numbers have after a cast, same shape."""
    fmt = format_named(name)
    return decode(encode(np.asarray(x, np.float64), fmt, policy), fmt)


def one(x: float | Fraction, name: str, policy: CastPolicy = CLAMPED) -> float:
    """The value that one real number has after a cast."""
    return float(cast(float(x), name, policy))


def through(x: Reals, name: str, scale: float | Reals) -> Reals:
    """Quantize by a dequantization scale and back, in exact arithmetic but for the cast: cast(x / s) * s."""
    return cast(x / scale, name) * scale


def sqnr(reference: Reals, approximation: Reals) -> float:
    """Signal to quantization noise in decibels. Infinite where there is no noise."""
    noise = float(np.mean((reference - approximation) ** 2))
    return math.inf if noise == 0 else 10 * math.log10(float(np.mean(reference**2)) / noise)


def relative(approximation: float, exact: float) -> float:
    return abs(approximation - exact) / abs(exact)


def all_codes(name: str) -> tuple[Format, npt.NDArray[np.unsignedinteger], Reals]:
    """A format, every code of it, and the value of each."""
    fmt = format_named(name)
    codes = np.arange(fmt.code_count, dtype=fmt.storage)
    return fmt, codes, decode(codes, fmt)


def number(x: SupportsFloat) -> str:
    """A number as text: six significant digits."""
    return f"{float(x):.6g}"


def listed(numbers: Iterable[SupportsFloat]) -> str:
    return ", ".join(number(x) for x in numbers)


def percent(x: float) -> str:
    return f"{100 * x:.3g} %"
