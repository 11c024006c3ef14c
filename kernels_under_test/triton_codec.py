"""float32 patterns to codes of narrow formats in Triton and back, by integer operations.

The same source gives the same codes interpreted and compiled for every target: it uses no float conversion that the
interpreter gets wrong and no shift beyond a word. One floating-point product is left, of a small integer by a power of
two in decoding a subnormal; it is exact and its result is normal, so flushing cannot touch it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import triton
import triton.language as tl

from narrowgauge.contracts.formats import format_named

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
#: elements of a program at least and at most. Interpreted, a program of 1,024 costs 2 ms and one of 65,536 costs 15, so
#: there is one of the size that is needed; compiled, each size would be another program
BLOCK, LARGEST_BLOCK = 1024, 65536 if INTERPRETED else 1024


def block_of(count):
    """Elements of a program, for so many in all."""
    return min(LARGEST_BLOCK, max(BLOCK, triton.next_power_of_2(count)))


@dataclass(frozen=True)
class Layout:
    """The numbers of a destination that the encoder needs; codes with the sign clear."""

    mantissa: int
    bias: int
    top: int  #: of the largest finite value
    sign: int  #: the sign bit
    infinity: int  #: -1 in a format without one
    nan: int  #: -1 in a format without one
    negative_zero: bool

    @property
    def special(self) -> int:
        """What stands beyond the largest value where nothing saturates."""
        return self.infinity if self.infinity >= 0 else self.nan


def _ieee(name: str) -> Layout:
    fmt = format_named(name)
    infinity = ((1 << fmt.exponent) - 1) << fmt.mantissa
    return Layout(fmt.mantissa, fmt.bias, infinity - 1, fmt.sign_bit, infinity, infinity | 1 << fmt.mantissa - 1, True)


def _fnuz(name: str) -> Layout:
    fmt = format_named(name)
    return Layout(fmt.mantissa, fmt.bias, fmt.sign_bit - 1, fmt.sign_bit, -1, fmt.sign_bit, False)


def _finite(name: str) -> Layout:
    fmt = format_named(name)
    return Layout(fmt.mantissa, fmt.bias, fmt.sign_bit - 1, fmt.sign_bit, -1, -1, True)


LAYOUTS = {
    "float8_e4m3fn": Layout(3, 7, 0x7E, 0x80, -1, 0x7F, True),
    **{n: _ieee(n) for n in ("float8_e5m2", "float8_e4m3", "float8_e3m4", "bfloat16", "float16")},
    **{n: _fnuz(n) for n in ("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e4m3b11fnuz")},
    **{n: _finite(n) for n in ("float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn")},
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
    bits, MANTISSA: tl.constexpr, BIAS: tl.constexpr, TOP: tl.constexpr, SIGN: tl.constexpr, OVER: tl.constexpr,
    INFINITY: tl.constexpr, NAN_PLUS: tl.constexpr, NAN_MINUS: tl.constexpr, NEGATIVE_ZERO: tl.constexpr,
):  # fmt: skip
    """Codes (int32) of float32 patterns (int32), ties to even. OVER stands for finite overflow."""
    magnitude = bits & 0x7FFFFFFF
    sign = tl.where(bits < 0, SIGN, 0)
    field = tl.maximum(magnitude >> 23, 1)
    significand = (magnitude & 0x7FFFFF) | tl.where((magnitude >> 23) > 0, 0x800000, 0)
    # The binade whose spacing applies: the value's own, but never below the smallest normal of the destination.
    binade = tl.maximum(field, 128 - BIAS)
    shift = tl.minimum(23 - MANTISSA + binade - field, 25)
    odd = (significand >> shift) & 1
    rounded = (significand + (1 << (shift - 1)) - 1 + odd) >> shift
    code = rounded + ((binade - (128 - BIAS)) << MANTISSA)
    code = tl.where(code > TOP, OVER, code)
    code = tl.where(magnitude == 0x7F800000, INFINITY, code)
    signed = code | sign
    if not NEGATIVE_ZERO:
        signed = tl.where(code == 0, 0, signed)
    return tl.where(magnitude > 0x7F800000, tl.where(bits < 0, NAN_MINUS, NAN_PLUS), signed)


@triton.jit
def encode_e8m0(bits, UP: tl.constexpr, OVER: tl.constexpr):
    """E8M0 codes (int32) of the magnitudes of float32 patterns. Zero gives code 0.

    UP is the fraction, as a pattern, from which the next power of two is taken: 1 to round up, 0x400000 to the nearest
    with ties away, 0x800000 never.
    """
    magnitude = bits & 0x7FFFFFFF
    field = magnitude >> 23
    fraction = magnitude & 0x7FFFFF
    # 2^-127 is a float32 subnormal, 0x400000: below the smallest normal the fraction counts from there, by halves.
    low = fraction - 0x400000 >= ((UP + 1) >> 1)
    code = tl.where(field > 0, field + tl.where(fraction >= UP, 1, 0), tl.where(low, 1, 0))
    code = tl.where(code > 254, OVER, code)
    code = tl.where(magnitude == 0x7F800000, OVER, code)
    return tl.where(magnitude > 0x7F800000, 255, code)


@triton.jit
def encode_integer(bits, LOW: tl.constexpr, HIGH: tl.constexpr, MASK: tl.constexpr, ROUND: tl.constexpr = "even"):
    """Two's complement or unsigned codes (int32) of float32 patterns, saturating, NaN to 0.

    ROUND: ties go to "even" or "away" from zero; or "cut": toward zero.
    """
    magnitude = bits & 0x7FFFFFFF
    field = tl.minimum(magnitude >> 23, 140)
    significand = (magnitude & 0x7FFFFF) | 0x800000
    shift = tl.maximum(tl.minimum(150 - field, 25), 10)
    if ROUND == "even":
        significand += (1 << (shift - 1)) - 1 + ((significand >> shift) & 1)
    elif ROUND == "away":
        significand += 1 << (shift - 1)
    rounded = significand >> shift
    value = tl.where(bits < 0, -rounded, rounded)
    value = tl.minimum(tl.maximum(value, LOW), HIGH)
    return tl.where(magnitude > 0x7F800000, 0, value) & MASK


@triton.jit
def decode(
    code, MANTISSA: tl.constexpr, BIAS: tl.constexpr, TOP: tl.constexpr, SIGN: tl.constexpr, INFINITY: tl.constexpr,
    NAN: tl.constexpr, TINY: tl.constexpr,
):  # fmt: skip
    """float32 patterns (int32) of codes (int32) of a signed format of 8 bits or fewer. TINY: its smallest subnormal."""
    magnitude = code & (SIGN - 1)
    field = magnitude >> MANTISSA
    fraction = magnitude & ((1 << MANTISSA) - 1)
    normal = ((field - BIAS + 127) << 23) | (fraction << (23 - MANTISSA))
    subnormal = (fraction.to(tl.float32) * TINY).to(tl.int32, bitcast=True)
    bits = tl.where(field > 0, normal, subnormal)
    sign = tl.where((code & SIGN) != 0, 1, 0) << 31
    if INFINITY >= 0:
        bits = tl.where(magnitude == INFINITY, 0x7F800000, bits)
    if NAN == SIGN:
        return tl.where(code == SIGN, 0x7FC00000, bits | sign)
    else:
        if NAN >= 0:
            bits = tl.where((magnitude > TOP) & (magnitude != INFINITY), 0x7FC00000, bits)
        return bits | sign


@triton.jit
def decode_e8m0(code):
    """float32 patterns (int32) of E8M0 codes (int32): 2^-127 is a subnormal, 255 is NaN."""
    bits = tl.where(code == 0, 0x400000, code << 23)
    return tl.where(code == 255, 0x7FC00000, bits)


@triton.jit
def decode_integer(code, SIGN: tl.constexpr):
    """float32 patterns (int32) of integer codes (int32); SIGN is 0 for an unsigned format."""
    value = code - ((code & SIGN) << 1)
    return value.to(tl.float32).to(tl.int32, bitcast=True)


@triton.jit
def store_float32_bits(pointer, offsets, bits, mask, TO: tl.constexpr):
    """Store float32 patterns (int32) as patterns of float32 (TO is 0), bfloat16 (1) or float16 (2), ties to even."""
    if TO == 0:
        tl.store(pointer + offsets, bits, mask)
    elif TO == 1:
        code = encode(bits, 7, 127, 0x7F7F, 0x8000, 0x7F80, 0x7F80, 0x7FC0, 0x7FC0, True)
        tl.store(pointer + offsets, code.to(tl.int16), mask)
    else:
        code = encode(bits, 10, 15, 0x7BFF, 0x8000, 0x7C00, 0x7C00, 0x7E00, 0x7E00, True)
        tl.store(pointer + offsets, code.to(tl.int16), mask)
