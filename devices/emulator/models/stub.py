"""Stand-in for the models of NVIDIA's narrow conversions, until models/nvidia.py is there.

PTX ISA, "cvt": the results of a and b are packed, a in the upper half; .satfinite: NaN gives the format's NaN,
and what is beyond the largest finite value, infinities too, gives that value with its sign.
"""

from __future__ import annotations

import numpy as np

from narrowgauge.devices.emulator.memory import Array

#: mantissa bits, bias, largest finite code
E4M3, E5M2 = (3, 7, 0x7E), (2, 15, 0x7B)


def _encode(x: Array, layout: tuple[int, int, int]) -> Array:
    mantissa, bias, top = layout
    bits = x.view(np.uint32)
    sign, magnitude = (bits >> 24 & 0x80).astype(np.uint16), bits & 0x7FFFFFFF
    drop = 23 - mantissa
    rounded = magnitude + (magnitude >> drop & 1) + ((1 << drop - 1) - 1)
    normal = (rounded >> drop) - ((127 - bias) << mantissa)
    anchor = np.float32(2.0 ** (1 - bias - mantissa + 23))  # its unit in the last place is the smallest code
    small = (magnitude.view(np.float32) + anchor).view(np.uint32) - anchor.view(np.uint32)
    code = np.where(magnitude < (128 - bias) << 23, small, np.minimum(normal.view(np.int32), top))
    return np.where(magnitude > 0x7F800000, 0x7F, code.astype(np.uint16) | sign).astype(np.uint16)


def _decode(code: Array, layout: tuple[int, int, int]) -> Array:
    mantissa, bias, top = layout
    table = np.arange(128)
    exponent, fraction = table >> mantissa, table & (1 << mantissa) - 1
    value = np.where(
        exponent > 0,
        np.ldexp(1 + fraction / 2**mantissa, exponent - bias),
        np.ldexp(fraction / 2**mantissa, 1 - bias),
    )
    value[top + 1 :] = np.nan
    if layout == E5M2:
        value[0x7C] = np.inf
    both = np.concatenate([value, -value]).astype(np.float16)
    return both.view(np.uint16)[code]


def _pack(a: Array, b: Array) -> Array:
    packed: Array = a << 8 | b
    return packed


def cvt_rn_satfinite_e4m3x2_f32(a: Array, b: Array) -> Array:
    """Codes of float32 a (upper) and b (lower) as uint16."""
    return _pack(_encode(a, E4M3), _encode(b, E4M3))


def cvt_rn_satfinite_e5m2x2_f32(a: Array, b: Array) -> Array:
    """Codes of float32 a (upper) and b (lower) as uint16."""
    return _pack(_encode(a, E5M2), _encode(b, E5M2))


def cvt_rn_f16x2_e4m3x2(codes: Array) -> Array:
    """Two float16 patterns as uint32 of two codes, exact; NaN is 0x7fff."""
    return _widened(codes, E4M3)


def cvt_rn_f16x2_e5m2x2(codes: Array) -> Array:
    """Two float16 patterns as uint32 of two codes, exact; NaN is 0x7fff."""
    return _widened(codes, E5M2)


def _widened(codes: Array, layout: tuple[int, int, int]) -> Array:
    upper, lower = (_canonical(_decode(c, layout)).astype(np.uint32) for c in (codes >> 8, codes & 0xFF))
    packed: Array = upper << 16 | lower
    return packed


def _canonical(half: Array) -> Array:
    return np.where(half & 0x7FFF > 0x7C00, 0x7FFF, half)
