"""The same casts by integer operations on float32 patterns, and by table for 16-bit sources.

``cast`` is what the rest of the reference uses. It is proved equal to ``codec.encode`` in every policy.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import Codes, Format, format_named
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.reference.codec import (
    WIDEST_TABLE,
    RandomBits,
    allowed_top,
    decode,
    encode,
    has_negative_zero,
    integer_codes,
    of_nan,
    special_code,
    values,
)

_F32_MANTISSA = 23
_F32_INFINITY = 0x7F800000
#: so many lower bits of a float32 pattern become one for a look-up, and so many elements are handled at once
_CUT, _BLOCK = 17, 32768
#: sums of a zero point and of numbers of 8 bits are exact in float32, by far
_LARGEST_ZERO_POINT = 1 << 16


def cast(x: Coded, format_name: str, policy: CastPolicy, random: RandomBits | None = None) -> Coded:
    """Codes of ``x`` in another format, same shape, with one rounding; by ``random`` bits if the policy says so.

    Raises ``BadInput`` for a destination of more than 19 bits other than float32 by the rules of IEEE 754.
    """
    source, fmt = format_named(x.format), format_named(format_name)
    if random is not None:
        return Coded(fmt.name, encode(decode_values(x), fmt, policy, random))
    if fmt.name == "float32":
        return Coded("float32", _to_binary32(decode_values(x), policy))
    if source.bits <= WIDEST_TABLE:
        return Coded(fmt.name, _table(source, fmt, policy)[x.codes])
    if source.name != "float32":
        return Coded(fmt.name, encode(decode_values(x), fmt, policy))
    if fmt.bits <= 8 and fmt.family != "integer":
        return Coded(fmt.name, _by_upper_bits(x.codes, fmt, policy))
    if fmt.bits <= 8 and policy.negative != "magnitude" and abs(policy.zero_point) <= _LARGEST_ZERO_POINT:
        return Coded(fmt.name, _integers(x.codes, fmt, policy))
    if fmt.family in ("ieee", "fn", "fnuz", "finite"):
        return Coded(fmt.name, encode_float32(x.codes, fmt, policy))
    return Coded(fmt.name, encode(decode_values(x), fmt, policy))


def _to_binary32(values: npt.NDArray[np.float64], policy: CastPolicy) -> Codes:
    if replace(policy, negative="smallest", zero="smallest") != CastPolicy(overflow="special", infinity="special"):
        raise BadInput(f"float32 is a destination by the rules of IEEE 754 alone; given {policy}")
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(np.float32).view(np.uint32)


def to_float32(x: Coded) -> npt.NDArray[np.float32]:
    """The values as float32, same shape; exact for every format but float64, which is rounded."""
    fmt = format_named(x.format)
    if fmt.name == "float32":
        return x.codes.view(np.float32)
    if fmt.bits > WIDEST_TABLE:
        with np.errstate(over="ignore"):
            return decode_values(x).astype(np.float32)
    if fmt.storage.itemsize == 1 and x.data.size >= _BLOCK:
        return _by_pairs(x.codes, fmt)
    return _float32_values(fmt)[x.codes]


@cache
def _float32_values(fmt: Format) -> npt.NDArray[np.float32]:
    return values(fmt).astype(np.float32)


@cache
def _pair_table(fmt: Format) -> npt.NDArray[np.uint64]:
    """Two float32 values for every two codes, as one 64-bit number. Codes that are none read as the last one."""
    single = _float32_values(fmt)[np.minimum(np.arange(256), fmt.code_count - 1)].view(np.uint32).astype(np.uint64)
    return (single[None, :] | single[:, None] << np.uint64(32)).ravel()


def _by_pairs(codes: Codes, fmt: Format) -> npt.NDArray[np.float32]:
    """Decode two elements by one look-up."""
    flat, table = np.ravel(codes), _pair_table(fmt)
    pairs, out = flat[: flat.size // 2 * 2].view("<u2"), np.empty(flat.size, np.float32)
    target = out[: 2 * pairs.size].view(np.uint64)
    index = np.empty(_BLOCK, np.int64)
    for start in range(0, pairs.size, _BLOCK):
        block = pairs[start : start + _BLOCK]
        place = index[: block.size]
        place[:] = block
        table.take(place, out=target[start : start + _BLOCK], mode="clip")
    out[2 * pairs.size :] = _float32_values(fmt)[flat[2 * pairs.size :]]
    return out.reshape(codes.shape)


@cache
def _table(source: Format, fmt: Format, policy: CastPolicy) -> Codes:
    """The destination code of every source code. It is filled from the definition."""
    return encode(values(source), fmt, policy)


@cache
def _upper_table(fmt: Format, policy: CastPolicy) -> Codes:
    """32 KiB, which stay in the nearest cache."""
    with np.errstate(invalid="ignore"):
        patterns = (np.arange(1 << (32 - _CUT), dtype=np.uint32) << np.uint32(_CUT)).view(np.float32)
        return encode(patterns.astype(np.float64), fmt, policy)


def _by_upper_bits(bits: Codes, fmt: Format, policy: CastPolicy) -> Codes:
    """float32 patterns to codes of a format with at most four mantissa bits, by look-up.

    The values at which codes change are multiples of 2^18 as patterns. So the upper 15 bits decide, and whether the
    others are all zero: bit 17 is set where any of them is not. Proved equal to ``encode_float32`` and the definition.
    """
    table, flat = _upper_table(fmt, policy), np.ravel(bits)
    codes = np.empty(flat.size, fmt.storage)
    low, index, ones = np.empty(_BLOCK, np.uint32), np.empty(_BLOCK, np.int64), np.uint32((1 << _CUT) - 1)
    for start in range(0, flat.size, _BLOCK):
        block = flat[start : start + _BLOCK]
        lower, place = low[: block.size], index[: block.size]
        # What is added carries into bit 17 unless the bits below it are all zero.
        np.bitwise_and(block, ones, out=lower)
        np.add(lower, ones, out=lower)
        np.bitwise_or(lower, block, out=lower)
        np.right_shift(lower, np.uint32(_CUT), out=lower)
        place[:] = lower
        table.take(place, out=codes[start : start + _BLOCK], mode="clip")
    return codes.reshape(bits.shape)


def _integers(bits: Codes, fmt: Format, policy: CastPolicy) -> Codes:
    """float32 patterns to whole numbers of at most 8 bits: the definition's steps, none of which rounds in float32."""
    flat = np.ravel(bits).view(np.float32)
    codes = np.empty(flat.size, fmt.storage)
    for start in range(0, flat.size, _BLOCK):
        codes[start : start + _BLOCK] = integer_codes(flat[start : start + _BLOCK], fmt, policy)
    return codes.reshape(bits.shape)


def encode_float32(bits: npt.NDArray[np.unsignedinteger], fmt: Format, policy: CastPolicy) -> Codes:
    """float32 patterns (uint32) to codes, by integer operations alone. Stochastic rounding is for the definition."""
    if policy.rounding == "stochastic":
        raise BadInput("rounding='stochastic' needs random bits; encode takes them")
    bits = np.asarray(bits, np.uint32)
    magnitude = (bits & np.uint32(0x7FFFFFFF)).astype(np.int32)
    negative = (bits >> np.uint32(31)).astype(np.bool_)
    # 1. Significand and exponent field; a subnormal has no implicit bit and the exponent of field 1.
    field = magnitude >> _F32_MANTISSA
    significand = (magnitude & 0x7FFFFF) | np.where(field > 0, 1 << _F32_MANTISSA, 0).astype(np.int32)
    field = np.maximum(field, 1)
    # 2. The exponent field, in float32's terms, at which the destination's grid has this value's spacing:
    #    its own, but never below the destination's smallest normal.
    smallest = 128 - fmt.bias
    spacing = np.maximum(field, smallest)
    # 3. Cut so many bits. Beyond 25 all of the significand is below half of the last place anyhow.
    shift = np.minimum(_F32_MANTISSA - fmt.mantissa + spacing - field, _F32_MANTISSA + 2)
    kept = significand >> shift
    code = kept + _carry(significand, kept, shift, negative, policy)
    # 4. The carry may run into the next binade or out of the subnormals: plain addition does both.
    code += (spacing - smallest) << fmt.mantissa
    if policy.subnormals == "flush":
        code = np.where(code < (1 << fmt.mantissa), 0, code)
    # 5. Overflow, infinity, sign, NaN: as the definition.
    top, special = allowed_top(fmt, policy), special_code(fmt)
    code = np.where(code > top, special if policy.overflow == "special" else top, code)
    code = np.where(magnitude == _F32_INFINITY, special if policy.infinity == "special" else top, code)
    signed_zero = has_negative_zero(fmt) and policy.negative_zero == "keep"
    code = np.where(negative & ((code > 0) | signed_zero), code | fmt.sign_bit, code)
    return np.where(magnitude > _F32_INFINITY, of_nan(fmt, policy, negative), code).astype(fmt.storage)


def _carry(
    significand: npt.NDArray[np.int32],
    kept: npt.NDArray[np.int32],
    shift: npt.NDArray[np.int32],
    negative: npt.NDArray[np.bool_],
    policy: CastPolicy,
) -> npt.NDArray[np.int32]:
    """One where the cut bits make the magnitude round up, else zero."""
    cut = significand & ((1 << shift) - 1)
    half = np.int32(1) << (shift - 1)
    up: npt.NDArray[np.bool_]
    match policy.rounding:
        case "nearest_even":
            up = (cut > half) | ((cut == half) & (kept & 1 == 1))
        case "nearest_away":
            up = cut >= half
        case "nearest_zero":
            up = cut > half
        case "toward_zero":
            up = np.zeros(cut.shape, np.bool_)
        case "up":
            up = (cut > 0) & ~negative
        case "down":
            up = (cut > 0) & negative
    return up.astype(np.int32)


def decode_values(x: Coded) -> npt.NDArray[np.float64]:
    """float64 value of every element, same shape: by table where there is one."""
    fmt = format_named(x.format)
    return values(fmt)[x.codes] if fmt.bits <= WIDEST_TABLE else decode(x.codes, fmt)
