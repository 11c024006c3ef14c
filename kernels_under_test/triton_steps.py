"""The steps of quantizers in Triton, each one float32 operation rounded once, the same on every target.

``over`` is a division that no target approximates: ``/`` may be two ulp off on NVIDIA. No step is a product whose sum
is taken in the next one, so there is nothing that a target could fuse. Powers of two are made by integers, since exp2,
log2, ceil and floor are approximations, or flush subnormals.
"""

from __future__ import annotations

import triton
import triton.language as tl

from narrowgauge.kernels_under_test.triton_codec import decode, decode_e8m0, encode, encode_e8m0


@triton.jit
def bits(x):
    """Patterns (int32) of float32 values."""
    return x.to(tl.int32, bitcast=True)


@triton.jit
def real(pattern):
    """float32 values of patterns (int32)."""
    return pattern.to(tl.float32, bitcast=True)


@triton.jit
def over(a, b):
    return tl.div_rn(a, b)


@triton.jit
def flushed(x):
    """Subnormals as zeros of the same sign."""
    return tl.where((bits(x) & 0x7F800000) == 0, real(bits(x) & -0x80000000), x)


@triton.jit
def about_one_over(x):
    """What rcp.approx.ftz may give: the nearest, without subnormals on either side."""
    return flushed(over(1.0, flushed(x)))


@triton.jit
def at_least(x, low):
    """NaN stays NaN; ``tl.maximum`` alone would give ``low``."""
    return tl.maximum(x, low, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def clamp(x, bound):
    """NaN stays NaN."""
    return tl.minimum(at_least(x, -bound), bound, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def clamp_nan_high(x, bound):
    """NaN becomes bound: the minimum comes first."""
    return tl.maximum(tl.minimum(x, bound), -bound)


@triton.jit
def clamp_nan_low(x, bound):
    """NaN becomes -bound: the maximum comes first."""
    return tl.minimum(tl.maximum(x, -bound), bound)


@triton.jit
def zero_to(x, other):
    return tl.where(x == 0.0, other, x)


@triton.jit
def not_finite_to(x, other):
    return tl.where((bits(x) & 0x7F800000) == 0x7F800000, other, x)


@triton.jit
def to_bfloat16(x):
    """The float32 value of the nearest bfloat16."""
    return real(encode(bits(x), 7, 127, 0x7F7F, 0x8000, 0x7F80, 0x7F80, 0x7FC0, 0x7FC0, True) << 16)


@triton.jit
def nearest_whole(x):
    """Ties to even. From 2^23 on every float32 is whole; a whole number below is exact as int32."""
    magnitude = bits(x) & 0x7FFFFFFF
    shift = tl.maximum(tl.minimum(150 - (magnitude >> 23), 25), 1)
    significand = (magnitude & 0x7FFFFF) | 0x800000
    whole = (significand + (1 << (shift - 1)) - 1 + ((significand >> shift) & 1)) >> shift
    signed = real(bits(whole.to(tl.float32)) | (bits(x) & -0x80000000))
    return tl.where(magnitude < 0x4B000000, signed, x)


# --- powers of two ---------------------------------------------------------------------------------------------------


@triton.jit
def floor_power(x):
    """The power of two not above x > 0; infinity and NaN give infinity."""
    return real(bits(x) & -0x800000)


@triton.jit
def ceil_power(x):
    """The power of two not below x > 0, 2^-126 for a subnormal."""
    return real((bits(x) + 0x7FFFFF) & -0x800000)


@triton.jit
def even_power(x):
    """``floor_power`` after half a unit of a mantissa of one bit was added: 1.75 is the first to go up."""
    return real((bits(x) + 0x200000) & -0x800000)


@triton.jit
def ceil_log_power(x):
    """exp2(ceil(log2(x))), exactly: of a subnormal 2^-127 or 2^-126, what E8M0 has. Zero, infinity, NaN stay."""
    subnormal = tl.where(bits(x) > 0x400000, 0x800000, tl.where(x == 0.0, 0, 0x400000))
    power = tl.where(bits(x) < 0x800000, subnormal, (bits(x) + 0x7FFFFF) & -0x800000)
    return tl.where(bits(x) >= 0x7F800000, x, real(power))


# --- scales that are stored in other formats -------------------------------------------------------------------------


@triton.jit
def stored_power_down(x):
    """The E8M0 code at or below x, and its value."""
    code = encode_e8m0(bits(x), 0x800000, 254)
    return code, real(decode_e8m0(code))


@triton.jit
def stored_power_up(x):
    """The E8M0 code at or above x, and its value."""
    code = encode_e8m0(bits(x), 1, 254)
    return code, real(decode_e8m0(code))


@triton.jit
def stored_e4m3(x):
    """The nearest E4M3 code, saturating, and its value."""
    # narrowgauge: ignore[nan_code] E4M3 alone
    code = encode(bits(x), 3, 7, 0x7E, 0x80, 0x7E, 0x7E, 0x7F, 0x7F, True)
    # narrowgauge: ignore[nan_code] E4M3 alone
    return code, real(decode(code, 3, 7, 0x7E, 0x80, -1, 0x7F, 0.001953125))
