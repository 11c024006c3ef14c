"""Intervals of binary32 around a true value: what an instruction may give for which only an error bound is stated.

``first`` is the correctly rounded value.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from narrowgauge.devices.emulator.models import rounding as r
from narrowgauge.devices.emulator.models.answers import Band, Bits

Reals = npt.NDArray[np.float64]
NAN = np.uint32(0x7FFFFFFF)
TINY = float(np.finfo(np.float32).smallest_subnormal)


def reals(bits: Bits) -> Reals:
    """binary32 patterns as binary64 values. A signalling NaN becomes quiet without a warning."""
    with np.errstate(invalid="ignore"):
        return bits.view(np.float32).astype(np.float64)


def nearest(x: Reals) -> Bits:
    """binary32 nearest to a binary64 value, NaN canonical."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        bits = x.astype(np.float32).view(np.uint32)
    return np.where(np.isnan(x), NAN, bits).astype(np.uint32)


def flushed(bits: Bits) -> Bits:
    """A subnormal becomes zero with its sign."""
    return np.where((bits & r.INFINITE) == 0, bits & r.SIGN, bits)


def within_ulp(true: Reals, count: int) -> Band:
    """Results at most ``count`` units in the last place away from the correctly rounded one.

    This is the wider of the two readings of such a bound; the other counts from the true value.
    """
    first = nearest(true)
    largest = float(np.finfo(np.float32).max)
    with np.errstate(invalid="ignore"):
        center = np.where(np.isfinite(true), np.clip(reals(first), -largest, largest), true)
        unit = np.maximum(np.exp2(np.frexp(np.abs(center))[1] - 24.0), TINY)
        error = np.where(np.abs(center) > count * unit, count * unit, np.abs(center))  # the sign is never lost
    return _band(first, np.where(true == 0, true, center), error)


def within_relative(true: Reals, error: float) -> Band:
    """Results with at most that relative error; the nearest value is always one of them."""
    return _band(nearest(true), true, error * np.abs(true))


def within_absolute(true: Reals, error: Reals) -> Band:
    return _band(nearest(true), true, error)


def _band(first: Bits, true: Reals, error: Reals) -> Band:
    """Infinity and NaN are results of their own: they have no error. Nor has a zero, unless the error is absolute."""
    exact = ~np.isfinite(true) | (error == 0)
    with np.errstate(invalid="ignore"):
        low, high = _directed(true - error, -1), _directed(true + error, 1)
    value = reals(first)
    low = np.where(exact | (reals(low) > value), first, low)
    high = np.where(exact | (reals(high) < value), first, high)
    return Band(first, low.astype(np.uint32), high.astype(np.uint32))


def _directed(x: Reals, toward: int) -> Bits:
    """The binary32 just inside: upward for a lower end, downward for an upper end. Infinity stands for 2^128."""
    bits = nearest(x)
    value = np.clip(reals(bits), -(2.0**128), 2.0**128)
    outside = (value < x) if toward < 0 else (value > x)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        inner = np.nextafter(bits.view(np.float32), np.float32(-toward * np.inf)).view(np.uint32)
    return np.where(outside, inner, bits).astype(np.uint32)


def with_flush(run: Callable[..., Band], *operands: Bits) -> Band:
    """``.ftz``: subnormal inputs and results become zero with their sign."""
    band = run(*(flushed(each) for each in operands))
    return Band(flushed(band.first), flushed(band.low), flushed(band.high))
