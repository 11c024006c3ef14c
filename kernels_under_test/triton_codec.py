"""float32 patterns to fp8 codes in Triton, by integer operations alone.

The same source gives the same codes interpreted and compiled for every target: it uses no float conversion that the
interpreter gets wrong, no shift beyond a word, and no floating-point operation at all.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import triton
import triton.language as tl

#: One interpreted program costs 1.4 ms whatever its size, so there are few and large ones there.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
BLOCK = 65536 if INTERPRETED else 1024


@dataclass(frozen=True)
class Layout:
    """The numbers of a destination format that the encoder needs."""

    bias: int
    top: int  #: code of the largest finite value
    nan: int
    negative_zero: bool


LAYOUTS = {
    "float8_e4m3fn": Layout(bias=7, top=0x7E, nan=0x7F, negative_zero=True),
    "float8_e4m3fnuz": Layout(bias=8, top=0x7F, nan=0x80, negative_zero=False),
}


@triton.jit
def load_float32_bits(pointer, offsets, mask, BF16: tl.constexpr):
    """The float32 patterns of float32, float16 or (as int16 patterns, ``BF16``) bfloat16 elements, as int32."""
    if BF16:
        # The interpreter's own bfloat16 conversion loses subnormals; a shift does not.
        return tl.load(pointer + offsets, mask, other=0).to(tl.int32) << 16
    else:
        return tl.load(pointer + offsets, mask, other=0.0).to(tl.float32).to(tl.int32, bitcast=True)


@triton.jit
def encode(
    bits, BIAS: tl.constexpr, TOP: tl.constexpr, NAN: tl.constexpr, OVER: tl.constexpr, NEGATIVE_ZERO: tl.constexpr
):
    """Codes (uint8) of float32 patterns (int32) for three mantissa bits, ties to even; ``OVER`` stands beyond TOP."""
    magnitude = bits & 0x7FFFFFFF
    sign = (bits >> 24) & 0x80
    field = tl.maximum(magnitude >> 23, 1)
    significand = (magnitude & 0x7FFFFF) | tl.where((magnitude >> 23) > 0, 0x800000, 0)
    # The binade whose spacing applies: the value's own, but never below the smallest normal of the destination.
    binade = tl.maximum(field, 128 - BIAS)
    shift = tl.minimum(20 + binade - field, 25)
    odd = (significand >> shift) & 1
    rounded = (significand + (1 << (shift - 1)) - 1 + odd) >> shift
    code = rounded + ((binade - (128 - BIAS)) << 3)
    code = tl.where(code > TOP, OVER, code)
    signed = code | sign
    if not NEGATIVE_ZERO:
        signed = tl.where((code == 0) | (code == NAN), code, signed)
    return tl.where(magnitude > 0x7F800000, NAN, signed).to(tl.uint8)
