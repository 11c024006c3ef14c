# SPDX-License-Identifier: Apache-2.0
"""Tables of values, and the nearest code by counting midpoints: whole arrays, exact, for the second derivations.

Values come from second_derivation's fractions; float64 holds all of them. It shares nothing with reference/.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.suites.meta.second_derivation import LAYOUTS, decode

Array = npt.NDArray[Any]
F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

OCP, FNUZ, E2M1 = "float8_e4m3fn", "float8_e4m3fnuz", "float4_e2m1fn"


def _number(code: int, format: str) -> float:
    number = decode(code, format)
    size = float(number.magnitude) if number.kind == "finite" else float(number.kind)
    return -size if number.negative else size


@cache
def table(format: str) -> F64:
    """What each code of a format of at most 8 bits stands for."""
    return np.array([_number(code, format) for code in range(LAYOUTS[format].codes)])


def values(codes: Array, format: str) -> F64:
    """[..] codes -> values."""
    return table(format)[codes]


@cache
def _midpoints(format: str) -> F64:
    """Between a code and the next, of the codes with a plus: all are exact in float64."""
    plus = table(format)[: LAYOUTS[format].largest + 1]
    return np.asarray((plus[:-1] + plus[1:]) / 2)


def nearest(x: Array, format: str) -> npt.NDArray[np.uint8]:
    """Nearest even; what is larger than the largest is the largest, infinity too; NaN is the NaN that there is."""
    layout, size = LAYOUTS[format], np.abs(x.astype(np.float64))
    mids = _midpoints(format)
    codes = np.searchsorted(mids, size, side="left")
    tie = (codes < len(mids)) & (size == mids[np.minimum(codes, len(mids) - 1)])
    codes = codes + (tie & (codes % 2 == 1))
    minus = np.signbit(x) & (layout.has_negative_zero | (codes != 0))
    codes = codes + layout.sign_bit * minus
    if layout.nan is not None:
        codes = np.where(np.isnan(size), layout.nan, codes)
    return codes.astype(np.uint8)


def f32(patterns: Array) -> F32:
    """uint32 patterns -> float32."""
    return np.ascontiguousarray(patterns, np.uint32).view(np.float32)


def bits32(x: Array) -> npt.NDArray[np.uint32]:
    """float32 -> patterns; every NaN is 0x7FC00000."""
    x = np.ascontiguousarray(x, np.float32)
    return np.where(np.isnan(x), np.uint32(0x7FC00000), x.view(np.uint32))


def bfloat16_bits(x: F32) -> npt.NDArray[np.uint16]:
    """The nearest bfloat16, ties to even."""
    bits = bits32(x).astype(np.uint64)
    return np.where(np.isnan(x), 0x7FC0, bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype(np.uint16)


def of_bfloat16(patterns: Array) -> F32:
    """bfloat16 patterns -> float32."""
    return f32(patterns.astype(np.uint32) << 16)


def in_bfloat16(x: F32) -> F32:
    """Rounded to bfloat16, as float32."""
    return of_bfloat16(bfloat16_bits(x))


def in_float16(x: F32) -> F32:
    """Rounded to float16, as float32."""
    return x.astype(np.float16).astype(np.float32)


def nibbles(packed: Array) -> Array:
    """[.., K/2] bytes -> [.., K] codes, the low one first."""
    return np.stack([packed & 15, packed >> 4], -1).reshape(*packed.shape[:-1], -1)


def packed(codes: Array) -> npt.NDArray[np.uint8]:
    """[.., K] codes -> [.., K/2] bytes, the low one first."""
    return np.asarray(codes[..., 0::2] | codes[..., 1::2] << 4, np.uint8)
