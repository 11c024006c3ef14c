"""Roundings of float64 arrays that hold exact results, and sums of several float64 with one rounding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Exponents = npt.NDArray[np.int16]

#: float64: bits of the stored fraction, and of the exponent field; its bias
_FRACTION, _FIELD, _BIAS = 52, 0x7FF, 1023
#: the least exponent of a normal number, and the first that is none, of the formats that units write
FLOAT32, FLOAT16 = (-126, 128), (-14, 16)
Range = tuple[int, int]


def exponent_of(values: F64) -> npt.NDArray[np.int64]:
    """floor(log2 |value|) of normal float64; -1023 of zero, 1024 of what is not finite."""
    return ((values.view(np.int64) >> _FRACTION) & _FIELD) - _BIAS


def power(exponent: npt.NDArray[np.integer]) -> F64:
    """2^exponent, for exponents of normal float64."""
    bits: npt.NDArray[np.int64] = (exponent.astype(np.int64) + _BIAS) << _FRACTION
    return bits.view(np.float64)


def _quantum(values: F64, fraction: int, least: int) -> F64:
    return power(np.clip(exponent_of(values), least, _BIAS) - fraction)


def toward_zero(values: F64, fraction: int, span: Range) -> F64:
    """Cut to so many fraction bits, subnormals to the same grid as the least normals; infinity past the range.

    A cut of the exact value that is past the range gives infinity, not the largest number, as the units do.
    """
    step = _quantum(values, fraction, span[0])
    return _limited(np.trunc(values / step) * step, span)


def nearest(values: F64, fraction: int, span: Range) -> F64:
    """To the nearest, ties to even, with so many fraction bits; infinity past the range."""
    step = _quantum(values, fraction, span[0])
    return _limited(np.rint(values / step) * step, span)


def floor_to(values: F64, step: F64) -> F64:
    """The next multiple of a power of two that is not above."""
    return np.floor(values / step) * step


def _limited(values: F64, span: Range) -> F64:
    return np.where(np.abs(values) >= 2.0 ** span[1], np.copysign(np.inf, values), values)


def two_sum(x: F64, y: F64) -> tuple[F64, F64]:
    """The float64 sum and what it lost, exactly (Knuth)."""
    total = x + y
    shadow = total - x
    return total, (x - (total - shadow)) + (y - shadow)


def sum_to_odd(terms: Sequence[F64]) -> F64:
    """The exact sum rounded to odd: a later rounding to at most 51 bits gives what one rounding would have given.

    Terms are finite, and no sum of theirs overflows. Each pass keeps the sum and moves it upwards, until every
    part is at most half a last place of the next; then only the sign of all below the top matters. A zero is -0 only
    if every term is.
    """
    parts = [np.array(term, np.float64) for term in np.broadcast_arrays(*terms)]
    while True:
        before = [part.copy() for part in parts]
        for i in range(1, len(parts)):
            parts[i], parts[i - 1] = two_sum(parts[i], parts[i - 1])
        if all(np.array_equal(old, new) for old, new in zip(before, parts, strict=True)):
            break
    rest = np.zeros_like(parts[0])
    for part in parts[:-1]:
        rest = rest + part
    minus = np.logical_and.reduce([(term == 0) & np.signbit(term) for term in terms])
    return np.where(parts[-1] == 0, np.where(minus, -0.0, 0.0), _odd(parts[-1], rest))


def _odd(top: F64, rest: F64) -> F64:
    """top, or its neighbour on the side of ``rest``, whichever has a last bit of one; top where nothing is left."""
    bits = top.view(np.int64)
    toward = np.where((rest > 0) == (top > 0), 1, -1)
    moved = np.where((rest != 0) & (bits & 1 == 0), bits + toward, bits)
    return moved.view(np.float64)
