# SPDX-License-Identifier: Apache-2.0
"""The second derivation of the libraries' quantizers: torchao, compressed-tensors, ModelOpt and their like.

Written from the words of the facts on the engines (A.2 to A.6) and on third-party libraries (section 3), as
second_recipes is. torch computes in the format of x: what is rounded to it is said by ``in_format``.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import partial, reduce

from narrowgauge.suites.meta.second_derivation import LAYOUTS, Number, decode, is_zero, whole_number
from narrowgauge.suites.meta.second_levels import OfTensor, signed, subtract
from narrowgauge.suites.meta.second_mx import (
    by_bits,
    emax,
    held,
    largest,
    microxcaling,
    quark,
    to_nearest,
    torchao_mx,
    torchao_rceil,
    unsigned_zero,
)
from narrowgauge.suites.meta.second_quantizers import divide, fmax, fmin, multiply
from narrowgauge.suites.meta.second_recipes import (
    Answer,
    Block,
    Given,
    Rule,
    amax_drop,
    amax_keep,
    ceil_of_rounded_log2,
    clamped,
    code,
    constant,
    float32_bits,
    floor_log2,
    integer,
    least,
    power,
    rounded,
)

_ONE, _ZERO, _NAN = whole_number(1), whole_number(0), Number("nan", False, Fraction(0))
_INF = Number("inf", False, Fraction(0))
_E4M3 = "float8_e4m3fn"


def in_format(x: Number, source: str) -> Number:
    """The value of x's own format nearest to a result."""
    return x if source == "float32" else rounded(x, source)


def epsilon(source: str) -> Number:
    """finfo.eps: from 1 to the next number."""
    return power(-LAYOUTS[source].mantissa_bits)


def least_normal(source: str) -> Number:
    """finfo.tiny."""
    return power(1 - LAYOUTS[source].bias)


# ---------------- compressed-tensors


def ct_symmetric(half: Fraction, block: Block, source: str, format: str, given: Given) -> Answer:
    """s = amax/half the range, the format's epsilon where it is 0; x/s, each rounded to x's format."""
    scale = _ct_scale(amax_keep(block), Number("finite", False, half), source)
    ys = [in_format(divide(x, scale), source) for x in block]
    if format == _E4M3:
        return Answer([code(held(y, largest(format)), format) for y in ys], float32_bits(scale))
    return Answer([integer(y, format, "nearest_even") for y in ys], float32_bits(scale))


def _ct_scale(amax: Number, half: Number, source: str) -> Number:
    scale = in_format(divide(amax, half), source)
    return epsilon(source) if is_zero(scale) else scale


def ends(block: Block) -> tuple[Number, Number]:
    """The least and the largest with 0 among them; NaN where there is one."""
    if any(x.kind == "nan" for x in block):
        return _NAN, _NAN
    return reduce(fmin, block, _ZERO), reduce(fmax, block, _ZERO)


def add(a: Number, b: Number) -> Number:
    """fl32(a + b)."""
    return subtract(a, Number(b.kind, not b.negative, b.magnitude))


def whole(x: Number) -> Number:
    """To the nearest whole number, ties to even."""
    return x if x.kind != "finite" else whole_number(round(signed(x)))


def ct_zero_point(lowest: int, span: int, block: Block, source: str, format: str, given: Given) -> Answer:
    """s = (max - min)/range; z = lowest - min/s, held to the range and rounded; x/s + z is rounded once, to a code."""
    low, high = ends(block)
    scale = in_format(divide(in_format(subtract(high, low), source), whole_number(span)), source)
    z = in_format(subtract(whole_number(lowest), in_format(divide(low, scale), source)), source)
    z = whole(clamped("keep", z, whole_number(lowest), whole_number(lowest + span)))
    point = 0 if z.kind == "nan" else int(signed(z))
    scale = epsilon(source) if is_zero(scale) else scale
    ys = [in_format(add(in_format(divide(x, scale), source), whole_number(point)), source) for x in block]
    return Answer([integer(y, format, "nearest_even") for y in ys], float32_bits(scale), point % 2**32)


def ct_mx(mantissa: int, block: Block, source: str, format: str, given: Given) -> Answer:
    """EVEN with one mantissa bit for fp4 and fp8, in x's format. A NaN counts as 0, a scale of 0 becomes 1.

    An infinite scale is written as 1; NaN packs as 0 in fp4 and as -0 in fp6.
    """
    amax = amax_keep(block)
    top = in_format(_even_power(_ZERO if amax.kind == "nan" else amax, mantissa), source)
    scale = in_format(fmax(divide(top, power(emax(format))), power(-127)), source)
    scale = _ONE if is_zero(scale) else scale
    ys = [held(in_format(divide(x, scale), source), largest(format)) for x in block]
    stored = 127 if scale.kind == "inf" else floor_log2(scale) + 127
    if format == "float4_e2m1fn":
        ys = [unsigned_zero(_ZERO if y.kind == "nan" else y) for y in ys]
    if format == "float6_e2m3fn":
        ys = [Number("finite", True, Fraction(0)) if y.kind == "nan" else y for y in ys]
    return Answer([code(y, format) for y in ys], stored)


def _even_power(amax: Number, mantissa: int) -> Number:
    e = by_bits("even", amax, mantissa)
    return _INF if e == 128 else _ZERO if e == -127 else power(e)


def ct_gparam(tensor: Block, source: str) -> dict[str, Number]:
    """448*6 times 1/amax, as torch divides a number by a tensor, in x's format; 1 where that is no number."""
    amax = least(amax_keep(tensor), least_normal(source))
    g = in_format(multiply(in_format(divide(_ONE, amax), source), whole_number(2688)), source)
    return {"global_scale": g if g.kind == "finite" else _ONE}


def ct_nvfp4(block: Block, source: str, format: str, given: Given) -> Answer:
    """SF = g*(amax/6) in E4M3, 0.125 where it is 0; x/(SF/g), clamped."""
    g = given["global_scale"]
    sf = multiply(g, in_format(divide(amax_keep(block), whole_number(6)), source))
    stored = code(held(sf, whole_number(448)), _E4M3)
    stored = 0x20 if stored == 0 else stored
    divisor = divide(decode(stored, _E4M3), g)
    ys = [unsigned_zero(held(divide(x, divisor), whole_number(6))) for x in block]
    return Answer([code(_ZERO if y.kind == "nan" else y, format) for y in ys], stored)


def given_scale(block: Block, source: str, format: str, given: Given) -> Answer:
    scale = given["scale"]
    return Answer([code(held(divide(x, scale), largest(format)), format) for x in block], float32_bits(scale))


# ---------------- ModelOpt


def modelopt_mxfp8(block: Block, source: str, format: str, given: Given) -> Answer:
    """ceil(log2(amax/448)) held to 127; -127 where amax is 0 or NaN. x*2^-e, clamped."""
    s = divide(amax_keep(block), whole_number(448))
    if s.kind == "finite" and not is_zero(s):
        e = min(max(ceil_of_rounded_log2(s), -127), 127)
    else:
        e = 127 if s.kind == "inf" else -127
    return Answer([code(held(multiply(x, power(-e)), whole_number(448)), format) for x in block], e + 127)


def modelopt_mxfp4(block: Block, source: str, format: str, given: Given) -> Answer:
    """ceil(max(log2(amax/6), -127)); ties toward zero, and zeros and NaN as -0. What is not finite is stored as 0."""
    s = divide(amax_keep(block), whole_number(6))
    if s.kind == "finite":
        e = -127 if is_zero(s) else max(ceil_of_rounded_log2(s), -127)
        divisor, stored = power(e), e + 127
    else:
        divisor, stored = s, 0
    ys = [divide(x, divisor) for x in block]
    return Answer([8 if y.kind == "nan" or is_zero(y) else to_nearest(y, format, "nearest_zero") for y in ys], stored)


def over_2688(tensor: Block, source: str) -> dict[str, Number]:
    return {"global_scale": divide(amax_keep(tensor), whole_number(2688))}


def modelopt_nvfp4(block: Block, source: str, format: str, given: Given) -> Answer:
    """SF = amax/(6*g), 1 where it is 0, held to 2^-9..448, in E4M3; x/(SF*g); a zero has no sign."""
    g = given["global_scale"]
    sf = divide(amax_keep(block), multiply(whole_number(6), g))
    sf = _ONE if is_zero(sf) else sf
    stored = code(clamped("keep", sf, power(-9), whole_number(448)), _E4M3)
    divisor = multiply(decode(stored, _E4M3), g)
    return Answer([code(unsigned_zero(divide(x, divisor)), format) for x in block], stored)


def modelopt_fp8(block: Block, source: str, format: str, given: Given) -> Answer:
    """amax/448 and x/s in x's format; torch's cast, which saturates."""
    scale = in_format(divide(amax_keep(block), whole_number(448)), source)
    return Answer([code(in_format(divide(x, scale), source), format) for x in block], float32_bits(scale))


# ---------------- torchao, other than MX


def torchao_float8(block: Block, source: str, format: str, given: Given) -> Answer:
    """amax/max in x's format; x/s in float32, clamped. Nothing keeps a scale from being 0."""
    top = largest(format)
    scale = in_format(divide(amax_keep(block), top), source)
    return Answer([code(held(divide(x, scale), top), format) for x in block], float32_bits(scale))


def torchao_nvfp4(levels: int, block: Block, source: str, format: str, given: Given) -> Answer:
    """SF = amax/6 (over the tensor's), held to 2^-6..448, in E4M3; x*(1/SF), or x*((1/g)/SF); clamped."""
    sf = divide(amax_keep(block), whole_number(6))
    sf = divide(sf, given["global_scale"]) if levels == 2 else sf
    stored = code(clamped("keep", sf, power(-6), whole_number(448)), _E4M3)
    one = divide(_ONE, given["global_scale"]) if levels == 2 else _ONE
    factor = divide(one, decode(stored, _E4M3))
    return Answer([code(held(multiply(x, factor), whole_number(6)), format) for x in block], stored)


def torchao_int8(block: Block, source: str, format: str, given: Given) -> Answer:
    """s = amax/127.5 in x's format, at least 2^-23; x*(1/s) in float32."""
    scale = least(in_format(divide(amax_keep(block), constant(127.5)), source), power(-23))
    factor = divide(_ONE, scale)
    return Answer([integer(multiply(x, factor), format, "nearest_even") for x in block], float32_bits(scale))


def torchao_int4(block: Block, source: str, format: str, given: Given) -> Answer:
    """The same with 7.5 and the least normal number, all of it in x's format."""
    scale = least(in_format(divide(amax_keep(block), constant(7.5)), source), least_normal(source))
    factor = in_format(divide(_ONE, scale), source)
    ys = [in_format(multiply(x, factor), source) for x in block]
    return Answer([integer(y, format, "nearest_even") for y in ys], float32_bits(scale))


def torchao_asymmetric(block: Block, source: str, format: str, given: Given) -> Answer:
    """s = (max - min)/255, at least 2^-23; z = -128 - round(min/s), held; round(x*(1/s)) + z, held."""
    low, high = ends(block)
    span = in_format(subtract(high, low), source)
    scale = least(in_format(divide(span, whole_number(255)), source), power(-23))
    z = subtract(whole_number(-128), whole(in_format(divide(low, scale), source)))
    z = clamped("keep", z, whole_number(-128), whole_number(127))
    point = 0 if z.kind == "nan" else int(signed(z))
    factor = divide(_ONE, scale)
    codes = [integer(add(whole(multiply(x, factor)), whole_number(point)), format, "nearest_even") for x in block]
    return Answer(codes, float32_bits(scale), point % 2**32)


# ---------------- Transformer Engine


_MOST = decode(LAYOUTS["float32"].largest, "float32")


def te_fp8(power_of_two: bool, block: Block, source: str, format: str, given: Given) -> Answer:
    """factor = max/amax, 1 for an amax of 0 or infinity, the largest float32 where it overflows; stored 1/factor."""
    amax = amax_drop(block)
    factor = _ONE if is_zero(amax) or amax.kind == "inf" else divide(largest(format), amax)
    factor = _MOST if factor.kind == "inf" else factor
    factor = power(floor_log2(factor)) if power_of_two else factor
    return Answer([code(multiply(x, factor), format) for x in block], float32_bits(divide(_ONE, factor)))


def te_global(tensor: Block, source: str) -> dict[str, Number]:
    """The multiplier 2688/amax, at most the largest float32, and 1 where amax is 0 or infinite; and 1 over it."""
    amax = amax_drop(tensor)
    factor = _ONE if is_zero(amax) else fmin(divide(whole_number(2688), amax), _MOST)
    factor = _ONE if is_zero(factor) else factor
    return {"multiplier": factor, "global_scale": divide(_ONE, factor)}


def te_nvfp4(block: Block, source: str, format: str, given: Given) -> Answer:
    """SF = amax*(m*fl(1/6)); x*(1/(SF*(1/m))), the factor at most the largest float32."""
    sixth = multiply(given["multiplier"], divide(_ONE, whole_number(6)))
    stored = code(fmin(multiply(amax_drop(block), sixth), _MOST), _E4M3)
    factor = fmin(divide(_ONE, multiply(decode(stored, _E4M3), given["global_scale"])), _MOST)
    return Answer([code(multiply(x, factor), format) for x in block], stored)


LIBRARIES: Mapping[str, Rule] = {
    **{f"torchao.mx_{up}": partial(torchao_mx, up) for up in ("floor", "ceil")},
    **{f"torchao.mx_even_{bits}": partial(torchao_mx, "even") for bits in (1, 2, 3)},
    "torchao.mx_rceil": torchao_rceil,
    "torchao.nvfp4": partial(torchao_nvfp4, 1),
    "torchao.nvfp4_two_levels": partial(torchao_nvfp4, 2),
    "torchao.nvfp4_two_levels_given": partial(torchao_nvfp4, 2),
    "torchao.float8_row": torchao_float8,
    "torchao.float8_tensor": torchao_float8,
    "torchao.int8_row": torchao_int8,
    "torchao.int8_row_asymmetric": torchao_asymmetric,
    "torchao.int4_group": torchao_int4,
    **{f"compressed_tensors.int8_{of}": partial(ct_symmetric, Fraction(255, 2)) for of in ("channel", "tensor")},
    **{f"compressed_tensors.int4_{of}": partial(ct_symmetric, Fraction(15, 2)) for of in ("group", "channel")},
    **{
        f"compressed_tensors.fp8_{of}": partial(ct_symmetric, Fraction(448))
        for of in ("tensor", "token", "group_128", "block")
    },
    "compressed_tensors.int8_token_asymmetric": partial(ct_zero_point, -128, 255),
    "compressed_tensors.int4_group_asymmetric": partial(ct_zero_point, -8, 15),
    "compressed_tensors.fp8_static_tensor": given_scale,
    "compressed_tensors.fp8_static_channel": given_scale,
    "compressed_tensors.mxfp8": partial(ct_mx, 1),
    "compressed_tensors.mxfp6": partial(ct_mx, 3),
    "compressed_tensors.mxfp4": partial(ct_mx, 1),
    "compressed_tensors.nvfp4": ct_nvfp4,
    "modelopt.mxfp8": modelopt_mxfp8,
    "modelopt.mxfp4": modelopt_mxfp4,
    "modelopt.nvfp4": modelopt_nvfp4,
    **{f"modelopt.fp8_{of}": modelopt_fp8 for of in ("tensor", "channel", "block")},
    **{f"quark.{name}": partial(quark, "even") for name in ("mxfp4_even", "mx_even_2", "mx_even_3", "mxint8_even")},
    **{f"quark.{what}_{mode}": partial(quark, mode) for what in ("mx", "mxint8") for mode in ("floor", "ceil")},
    **{f"microxcaling.{what}_nearest": partial(microxcaling, "nearest_away") for what in ("mx", "mxint8")},
    **{f"microxcaling.{what}_even": partial(microxcaling, "nearest_even") for what in ("mx", "mxint8")},
    "transformer_engine.fp8_current": partial(te_fp8, False),
    "transformer_engine.fp8_current_power_of_two": partial(te_fp8, True),
    "transformer_engine.fp8_block_1x128": partial(te_fp8, True),
    "transformer_engine.fp8_block_128x128": partial(te_fp8, True),
    "transformer_engine.nvfp4": te_nvfp4,
}
#: values of the whole tensor, from all elements and the format of x
OF_LIBRARIES: Mapping[str, OfTensor] = {
    "torchao.nvfp4_two_levels": over_2688,
    "modelopt.nvfp4": over_2688,
    "compressed_tensors.nvfp4": ct_gparam,
    "transformer_engine.nvfp4": te_global,
}
