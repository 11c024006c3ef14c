"""What Triton writers of caches make of elements: scales, values and last casts, in the order of each engine.

As the recipes of the quantizers: a function is given elements, the largest magnitude of their group or a static scale,
and the bound; it returns the scale that is stored, and what the last cast is given.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from narrowgauge.kernels_under_test.triton_codec import decode, encode, encode_integer
from narrowgauge.kernels_under_test.triton_kv_before import to_float16
from narrowgauge.kernels_under_test.triton_steps import (
    about_one_over,
    at_least,
    bits,
    ceil_log_power,
    clamp,
    clamp_nan_low,
    not_finite_to,
    over,
    real,
    stored_e4m3,
    stored_power_up,
    to_bfloat16,
    zero_to,
)
from narrowgauge.kernels_under_test.triton_targets import SOFT

# --- a scale that is given -------------------------------------------------------------------------------------------


@triton.jit
def unscaled(x, amax, bound):
    """A recipe that changes nothing."""
    return amax, x


@triton.jit
def divided_held(x, scale, bound):
    """The same to a conversion that saturates: AMD's documents leave open what CDNA4's makes of an infinity."""
    return scale, clamp(over(x, scale), bound)


@triton.jit
def divided_in_float16(x, scale, bound):
    """The quotient is rounded to float16 first."""
    return scale, to_float16(over(x, scale))


@triton.jit
def in_bfloat16(x, scale, bound):
    return scale, to_bfloat16(over(x, to_bfloat16(scale)))


@triton.jit
def in_float16(x, scale, bound):
    return scale, to_float16(over(x, to_float16(scale)))


@triton.jit
def by_number_bfloat16(x, scale, bound):
    """A scale that is a Python number: x times its reciprocal."""
    return scale, to_bfloat16(x * over(1.0, scale))


@triton.jit
def held_in_bfloat16(x, scale, bound):
    return scale, clamp(to_bfloat16(over(x, to_bfloat16(scale))), bound)


@triton.jit
def held_by_number_bfloat16(x, scale, bound):
    return scale, clamp(to_bfloat16(x * over(1.0, scale)), bound)


@triton.jit
def overflowing_e5m2(value):
    # narrowgauge: ignore[nan_code] the function's name has the format
    return encode(bits(value), 2, 15, 0x7B, 0x80, 0x7C, 0x7C, 0x7F, 0x7F, True)


@triton.jit
def overflowing_e4m3fnuz(value):
    return encode(bits(value), 3, 8, 0x7F, 0x80, 0x80, 0x80, 0x80, 0x80, False)


@triton.jit
def to_bfloat16_pattern(value):
    """Of a value that is a bfloat16."""
    return bits(value) >> 16


@triton.jit
def to_float16_pattern(value):
    return encode(bits(value), 10, 15, 0x7BFF, 0x8000, 0x7C00, 0x7C00, 0x7E00, 0x7E00, True)


#: by the type of x
DIVIDED, TIMES = {torch.bfloat16: in_bfloat16, torch.float16: in_float16}, {torch.bfloat16: by_number_bfloat16}
HELD, HELD_TIMES = {torch.bfloat16: held_in_bfloat16}, {torch.bfloat16: held_by_number_bfloat16}
SATURATING = {format: SOFT[format] for format in ("float8_e4m3fn", "float8_e4m3fnuz")}
#: torch 2.13's cast: E4M3 is held to its largest value, all else is not
TORCH = {
    "float8_e4m3fn": SOFT["float8_e4m3fn"],
    "float8_e5m2": overflowing_e5m2,
    "float8_e4m3fnuz": overflowing_e4m3fnuz,
}


PATTERN = {"bfloat16": to_bfloat16_pattern, "float16": to_float16_pattern}


# --- a scale of each head of a token, or of a group ------------------------------------------------------------------


@triton.jit
def add_half(x):
    """Half a unit away from zero is added, by one rounding."""
    return x + real(bits(tl.full((1, 1), 0.5, tl.float32)) | (bits(x) & -0x80000000))


@triton.jit
def token_head(x, amax, bound):
    scale = tl.maximum(over(amax, bound), 1e-6)
    return scale, clamp_nan_low(x * over(1.0, scale), bound)


@triton.jit
def token_head_int8(x, amax, bound):
    """Only a NaN reaches -128. The cast cuts."""
    scale = tl.maximum(over(amax, bound), 1e-6)
    return scale, tl.minimum(tl.maximum(add_half(x * over(1.0, scale)), -128.0), bound)


@triton.jit
def cut_to_15(x):
    """A whole number of four bits after half a unit was added; NaN becomes 0."""
    return encode_integer(bits(add_half(x)), 0, 15, 0xF, "cut")


@triton.jit
def as_whole(x):
    return x


@triton.jit
def token_head_int4(x, amax, bound):
    """The zero point takes the four lowest bits of the scale. What is NaN counts neither as smallest nor as largest."""
    largest = tl.max(tl.where(x == x, x, float("-inf")), 1)[:, None]
    smallest = tl.min(tl.where(x == x, x, float("inf")), 1)[:, None]
    none = smallest > largest
    largest, smallest = tl.where(none, 0.0, largest), tl.where(none, 0.0, smallest)
    scale = tl.maximum(over(largest - smallest, bound), 1e-6)
    zero = cut_to_15(over(-smallest, scale))
    code = cut_to_15(x * over(1.0, scale) + zero.to(tl.float32))
    return real((bits(scale) & -16) | zero), code


@triton.jit
def ds_mla(x, amax, bound):
    scale = ceil_log_power(tl.maximum(over(amax, bound), 1e-4))
    return scale, over(x, scale)


@triton.jit
def sglang_dsa(x, amax, bound):
    """A group of zeros has the scale 0, and its codes come of 0 times infinity."""
    scale = over(amax, bound)
    return scale, clamp_nan_low(x * over(1.0, scale), bound)


@triton.jit
def indexer(x, amax, bound):
    scale = over(tl.maximum(amax, 1e-4), bound)
    return scale, over(x, scale)


@triton.jit
def indexer_power(x, amax, bound):
    scale = ceil_log_power(over(tl.maximum(amax, 1e-4), bound))
    return scale, over(x, scale)


@triton.jit
def stored_e4m3_up(x):
    """The E4M3 code at or above x > 0, at most the largest, and its value."""
    nearest, value = stored_e4m3(x)
    code = tl.where((value < x) & (nearest < 0x7E), nearest + 1, nearest)
    # narrowgauge: ignore[nan_code] E4M3 alone
    return code, real(decode(code, 3, 7, 0x7E, 0x80, -1, 0x7F, 0.001953125))


@triton.jit
def nvfp4_ds_mla(x, amax, bound):
    code, scale = stored_e4m3_up(tl.maximum(over(amax, bound), 0.001953125))
    return code, x * over(1.0, scale)


# --- FP4 -------------------------------------------------------------------------------------------------------------


@triton.jit
def nvfp4(x, amax, bound, multiplier):
    """Given is what a reader multiplies by."""
    inverse = over(1.0, multiplier)
    code, scale = stored_e4m3(amax * about_one_over(bound) * inverse)
    encode = about_one_over(about_one_over(inverse) * scale)
    return code, x * tl.where(scale == 0.0, 0.0, encode)


@triton.jit
def fp4_block16(x, amax, bound):
    """A power that is no number is stored as the smallest one, and still divided by."""
    power = ceil_log_power(at_least(over(amax, bound), 1e-10))
    code, _ = stored_power_up(not_finite_to(power, 0.0))
    return code, zero_to(over(x, power), 0.0)


@triton.jit
def to_e2m1_away(value):
    """Ties away from zero; NaN becomes 0."""
    magnitude = tl.abs(value)
    code = tl.where(magnitude >= 0.25, 1, 0) + tl.where(magnitude >= 0.75, 1, 0) + tl.where(magnitude >= 1.25, 1, 0)
    code += tl.where(magnitude >= 1.75, 1, 0) + tl.where(magnitude >= 2.5, 1, 0) + tl.where(magnitude >= 3.5, 1, 0)
    return code + tl.where(magnitude >= 5.0, 1, 0) + tl.where(value < 0.0, 8, 0)
