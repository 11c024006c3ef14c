"""The same casts by integer operations on float32 patterns, and by table for 16-bit sources.

``cast`` is what the rest of the reference uses. It is proved equal to ``codec.encode`` in every policy.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import Codes, Format, format_named
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.reference.codec import (
    WIDEST_TABLE,
    allowed_top,
    decode,
    encode,
    has_negative_zero,
    nan_code,
    special_code,
    values,
)

_F32_MANTISSA = 23
_F32_INFINITY = 0x7F800000


def cast(x: Coded, format_name: str, policy: CastPolicy) -> Coded:
    """Codes of ``x`` in another format, same shape. Raises ``BadInput`` for a destination of more than 16 bits."""
    source, fmt = format_named(x.format), format_named(format_name)
    if source.bits <= WIDEST_TABLE:
        return Coded(fmt.name, _table(source, fmt, policy)[x.codes])
    return Coded(fmt.name, encode_float32(x.codes, fmt, policy))


def to_float32(x: Coded) -> npt.NDArray[np.float32]:
    """The values as float32, exact for every format here, same shape."""
    fmt = format_named(x.format)
    if fmt.name == "float32":
        return x.codes.view(np.float32)
    with np.errstate(invalid="ignore"):
        return _float32_values(fmt)[x.codes]


@cache
def _float32_values(fmt: Format) -> npt.NDArray[np.float32]:
    return values(fmt).astype(np.float32)


@cache
def _table(source: Format, fmt: Format, policy: CastPolicy) -> Codes:
    """The destination code of every source code. It is filled from the definition."""
    return encode(values(source), fmt, policy)


def encode_float32(bits: npt.NDArray[np.unsignedinteger], fmt: Format, policy: CastPolicy) -> Codes:
    """float32 patterns (uint32) to codes, by integer operations alone."""
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
    of_nan = {"nan": nan_code(fmt), "max": top, "zero": 0}[policy.nan]
    return np.where(magnitude > _F32_INFINITY, of_nan, code).astype(fmt.storage)


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
