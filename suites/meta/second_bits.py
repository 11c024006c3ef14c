# SPDX-License-Identifier: Apache-2.0
"""The second derivation of four-bit floats with a power of two for scale, and of scales made by integer operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial

from narrowgauge.suites.meta.second_derivation import Number, cast_bound, decode, is_zero, whole_number
from narrowgauge.suites.meta.second_levels import signed
from narrowgauge.suites.meta.second_quantizers import divide, multiply
from narrowgauge.suites.meta.second_recipes import (
    Answer,
    Block,
    Given,
    Rule,
    amax_drop,
    amax_keep,
    ceil_of_rounded_log2,
    code,
    constant,
    float32_bits,
    floor_log2,
    least,
    power,
    rounded,
    rule_of,
)

_ONE, _ZERO, _NAN = whole_number(1), whole_number(0), Number("nan", False, Fraction(0))
SIX, E4M3 = whole_number(6), "float8_e4m3fn"
#: the largest finite value of each format
LARGEST = {E4M3: 448, "float8_e4m3fnuz": 240, "float8_e5m2": 57344, "float4_e2m1fn": 6, "int8": 127}


def amax_all(block: Block) -> Number:
    """A maximum without a seed: NaN is dropped, unless there is nothing else."""
    return _NAN if all(x.kind == "nan" for x in block) else amax_drop(block)


def special(x: Number, format: str) -> int:
    """The cast that makes infinity of what overflows, or NaN where there is none."""
    return cast_bound(x, rule_of(format))


def finite_or_special(x: Number, format: str) -> int:
    """The cast that holds finite numbers to the largest, and makes NaN of infinity."""
    return special(x, format) if x.kind == "inf" else code(x, format)


# ---------------- E2M1 with a power of two

_BOUNDS = [Fraction(b) for b in ("0.25", "0.75", "1.25", "1.75", "2.5", "3.5", "5")]


def counted(x: Number, inclusive: bool) -> int:
    """How many bounds a magnitude is above, or at or above; an infinity is above all, and NaN above none."""
    if x.kind != "finite":
        return 7 if x.kind == "inf" else 0
    return sum(x.magnitude >= b if inclusive else x.magnitude > b for b in _BOUNDS)


def counted_blocks(
    width: str | None, inclusive: bool, low: float, zero: int, block: Block, source: str, format: str, given: Given
) -> Answer:
    """Scale 2**ceil(log2(max(amax/6, low))), the logarithm rounded to ``width`` or x's format; codes by counting.

    ``zero``: the code of a zero and of NaN. What is no number as an exponent is stored as 0.
    """
    own = width or source
    ratio = least(rounded(divide(amax_keep(block), SIX), own), rounded(constant(low), own) if low else _ZERO)
    e = None
    if ratio.kind == "finite":
        e = -127 if is_zero(ratio) else max(_ceil_log2_in(ratio, own), -127)
    scale = power(e) if e is not None else ratio
    codes = []
    for x in block:
        y = rounded(divide(x, scale), own)
        n = counted(y, inclusive)
        codes.append(zero if is_zero(y) or y.kind == "nan" else n + (8 if y.negative else 0))
    return Answer(codes, 0 if e is None else e + 127)


def _ceil_log2_in(x: Number, format: str) -> int:
    """ceil of the logarithm, rounded to a format."""
    e = ceil_of_rounded_log2(x)
    if format == "float32" or x.magnitude == Fraction(2) ** floor_log2(x):
        return e
    below = floor_log2(x)
    # the logarithm lies above `below`: it is rounded down to it where it lies within half a place
    near = rounded(_log2(x), format)
    return below if near.kind == "finite" and signed(near) == below else e


def _log2(x: Number) -> Number:
    """The logarithm to some forty digits."""
    from decimal import Context, Decimal

    context = Context(prec=60)
    ratio = context.divide(Decimal(x.magnitude.numerator), Decimal(x.magnitude.denominator))
    log = Fraction(context.divide(context.ln(ratio), context.ln(Decimal(2))))
    return Number("finite", log < 0, abs(log))


def even_nearest(block: Block, source: str, format: str, given: Given) -> Answer:
    """SGLang on ROCm: EVEN by bits of a normal amax; nearest even; NaN is 0 and no code 0 has a sign."""
    bits = float32_bits(amax_keep(block, constant(2.0**-126)))
    held = min(max((((bits + 0x200000) & 0x7F800000) >> 23) - 2, 0), 254)
    held = 254 if (bits + 0x200000) & 0x7F800000 == 0x7F800000 else held
    codes = []
    for x in block:
        y = divide(x, power(held - 127))
        made = 0 if y.kind == "nan" else code(y, format)
        codes.append(0 if made == 8 else made)
    return Answer(codes, held)


def even_kernel(
    field_of_nan: int,
    subnormal_is_zero: bool,
    cast: Callable[[Number], int],
    infinite: int,
    block: Block,
    source: str,
    format: str,
    given: Given,
) -> Answer:
    """EVEN by bits, two binades down; the field 0 as a float32 may be 0, and the multiplier then too.

    ``infinite``: the stored field of what the rounding makes an infinity of. ``field_of_nan``: of NaN alone.
    """
    amax = amax_all(block)
    field = (float32_bits(amax_drop(block)) + 0x200000) >> 23
    held = field_of_nan if amax.kind == "nan" else infinite if field == 255 else max(field - 2, 0)
    factor = _ZERO if held == 0 and subnormal_is_zero else divide(_ONE, power(held - 127))
    return Answer([cast(multiply(x, factor)) for x in block], held)


def _to_fp4(x: Number) -> int:
    return code(x, "float4_e2m1fn")


def by_bits(x: Number) -> int:
    """AITER's integers: NaN comes out as 1.5."""
    return 3 if x.kind == "nan" else _to_fp4(x)


def downcast(
    up: bool, cast: Callable[[Number, str], int], block: Block, source: str, format: str, given: Given
) -> Answer:
    """triton_kernels: the bits of amax/max, up or down to an exponent field, stored as it is; 1 over it, or 0 for 0.

    NaN alone is 0x7FC00000 or more: up, its carry goes to the sign and leaves 0; down, it is an infinity.
    """
    ratio = divide(amax_drop(block), whole_number(LARGEST[format]))
    bits = (float32_bits(ratio) + (0x7FFFFF if up else 0)) & 0x7F800000
    if amax_all(block).kind == "nan" and not up:
        bits = 0x7F800000
    factor = divide(_ONE, decode(bits, "float32")) if bits else _ZERO
    return Answer([cast(multiply(x, factor), format) for x in block], bits >> 23)


def cut_then_nearest(x: Number, format: str) -> int:
    """Below 1 an element keeps what is above 2**-23; then nearest even."""
    if x.kind == "finite" and x.magnitude < 1:
        x = Number("finite", x.negative, Fraction(int(x.magnitude * 2**23), 2**23))
    return code(x, format)


def away(x: Number, format: str) -> int:
    """Ties away from zero; a NaN is the largest."""
    return 7 if x.kind == "nan" else counted(x, True) + (8 if x.negative else 0)


def hip_blocks(block: Block, source: str, format: str, given: Given) -> Answer:
    """AITER: amax times fl(1/max), up to a power of two by its bits; an infinity keeps 255; x over it."""
    top = whole_number(LARGEST[format])
    ratio = multiply(amax_drop(block), divide(_ONE, top))
    bits = (float32_bits(ratio) + 0x7FFFFF) & 0x7F800000
    return Answer([code(divide(x, decode(bits, "float32")), format) for x in block], bits >> 23)


_ROUND_UP, _ROUND_DOWN = True, False

BITS: Mapping[str, Rule] = {
    "vllm.mxfp4_triton": partial(even_kernel, 0, True, _to_fp4, 254),
    "sglang.mxfp4_util": partial(counted_blocks, None, False, 0.0, 8),
    "sglang.mxfp4_rne": even_nearest,
    "sglang.fp4_kv_block16": partial(counted_blocks, "float32", True, 1e-10, 0),
    "sglang.fp4_kv_block16_eager": partial(counted_blocks, None, True, 1e-10, 0),
    "aiter.mxfp8_hip": hip_blocks,
    "aiter.mxfp4_hip": hip_blocks,
    "aiter.mxfp4_triton": partial(even_kernel, 254, False, by_bits, 254),
    "triton_kernels.mxfp8": partial(downcast, _ROUND_UP, code),
    "triton_kernels.mxfp8_down": partial(downcast, _ROUND_DOWN, code),
    "triton_kernels.mxfp4": partial(downcast, _ROUND_UP, cut_then_nearest),
    "triton_kernels.mxfp4_down": partial(downcast, _ROUND_DOWN, cut_then_nearest),
    "vllm.triton_kernels_mxfp4": partial(downcast, _ROUND_UP, away),
    "vllm.triton_kernels_mxfp4_down": partial(downcast, _ROUND_DOWN, away),
}
