# SPDX-License-Identifier: Apache-2.0
"""The second derivation of the libraries' MX quantizers: torchao, microxcaling and Quark.

Written from the words of the facts on the engines (A.3 and A.6) and on third-party libraries (3.2 to 3.4).
"""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction

from narrowgauge.suites.meta.second_derivation import LAYOUTS, Number, cast_bound, decode, is_zero, whole_number
from narrowgauge.suites.meta.second_levels import signed
from narrowgauge.suites.meta.second_quantizers import divide, fmax, multiply
from narrowgauge.suites.meta.second_recipes import (
    Answer,
    Block,
    Given,
    amax_keep,
    ceil_of_rounded_log2,
    clamped,
    code,
    float32_bits,
    floor_log2,
    integer,
    power,
    rounded,
    rule_of,
)

_ONE, _ZERO, _NAN = whole_number(1), whole_number(0), Number("nan", False, Fraction(0))
_INF = Number("inf", False, Fraction(0))
#: 2^-126, the least normal float32
_NORMAL = power(-126)


def largest(format: str) -> Number:
    """The largest value of a format; of an integer the end of its range without a sign."""
    return decode(LAYOUTS[format].largest, format)


def emax(format: str) -> int:
    """The exponent of the largest value; of MXINT8, whose codes are multiples of 2^-6, 0."""
    return 0 if format == "int8" else floor_log2(largest(format))


def held(x: Number, top: Number) -> Number:
    """torch's clamp to both sides: NaN stays."""
    return clamped("keep", x, Number("finite", True, top.magnitude), top)


def unsigned_zero(x: Number) -> Number:
    return _ZERO if is_zero(x) else x


# ---------------- MX: exponents. 128 stands for an infinite amax


def by_bits(up: str, amax: Number, mantissa: int) -> int:
    """The exponent field of amax, as torchao and Quark take it: FLOOR, CEIL, or EVEN with so many mantissa bits."""
    if amax.kind == "inf":
        return 128
    bits = float32_bits(amax) + ((1 << (22 - mantissa)) if up == "even" else 0)
    field = (bits >> 23) - 127
    return field + 1 if up == "ceil" and bits % (1 << 23) else field


def of_mantissa(format: str) -> int:
    return LAYOUTS[format].mantissa_bits


def torchao_mx(up: str, block: Block, source: str, format: str, given: Given) -> Answer:
    """The scale is held to -127..128, whose 255 divides by infinity; code 0 divides by 2^-126. Clamped, cast."""
    amax = amax_keep(block)
    e = 128 if amax.kind == "nan" else by_bits(up, amax, of_mantissa(format)) - emax(format)
    stored = min(max(e, -127), 128) + 127
    divisor = _INF if stored == 255 else fmax(power(stored - 127), _NORMAL)
    return Answer([code(held(divide(x, divisor), largest(format)), format) for x in block], stored)


def torchao_rceil(block: Block, source: str, format: str, given: Given) -> Answer:
    """ceil(log2(amax/max)); NaN 255, infinity 254. The factor of 0 is 1, of 254 it is 2^-127, of 255 NaN."""
    s = divide(amax_keep(block), largest(format))
    if s.kind != "finite":
        stored = 255 if s.kind == "nan" else 254
    else:
        stored = 0 if is_zero(s) else min(max(ceil_of_rounded_log2(s), -127), 127) + 127
    factor = _NAN if stored == 255 else _ONE if stored == 0 else power(127 - stored)
    return Answer([code(held(multiply(x, factor), largest(format)), format) for x in block], stored)


def floor_of_rounded_log2(x: Number, source: str = "float32") -> int:
    """floor(log2 x), where the logarithm is rounded to a format first and may come to the integer above."""
    return int(_rounded_log2(x, source) // 1)


def ceil_of_log2_in(x: Number, source: str) -> int:
    return int(-(-_rounded_log2(x, source) // 1))


def _rounded_log2(x: Number, source: str) -> Fraction:
    exact = floor_log2(x)
    if x.magnitude == Fraction(2) ** exact:
        log = Fraction(exact)
    else:
        context = Context(prec=60)
        ratio = context.divide(Decimal(x.magnitude.numerator), Decimal(x.magnitude.denominator))
        log = Fraction(context.divide(context.ln(ratio), context.ln(Decimal(2))))
    near = rounded(rounded(Number("finite", log < 0, abs(log)), "float32"), source)
    return signed(near)


def microxcaling(rounding: str, block: Block, source: str, format: str, given: Given) -> Answer:
    """floor(log2 amax) - emax, a block of zeros as 2^-126; NaN for a NaN, an infinity. To nearest, ties as said."""
    amax = amax_keep(block)
    if amax.kind != "finite":
        codes = [_no_code(x, format) for x in block]
        return Answer(codes, 255)
    e = floor_of_rounded_log2(_NORMAL if is_zero(amax) else amax) - emax(format)
    stored = max(e, -127)
    ys = [divide(unsigned_zero(x), power(stored)) for x in block]
    if format == "int8":
        ys = [held(multiply(y, whole_number(64)), largest(format)) for y in ys]
        return Answer([integer(y, format, rounding) for y in ys], stored + 127)
    return Answer([to_nearest(y, format, rounding) for y in ys], stored + 127)


def to_nearest(x: Number, format: str, rounding: str, **more: str) -> int:
    """The saturating cast with another rule for ties."""
    nan = "nan" if LAYOUTS[format].nan is not None else "max"
    rule = rule_of(format, rounding=rounding, overflow="max", infinity="max", nan=nan, **more)
    return cast_bound(x, rule)


def _no_code(x: Number, format: str) -> int:
    """Of a NaN: the format's own; where it has none its largest, and 0 in integers."""
    return integer(_NAN, format, "nearest_even") if format == "int8" else code(_NAN, format)


# ---------------- MX of Quark


def quark(mode: str, block: Block, source: str, format: str, given: Given) -> Answer:
    """EVEN by bits, held to 2^-127 and 2^127; FLOOR and CEIL by log2 in x's format. Stored from 2^-126."""
    amax = amax_keep(block)
    scale = _quark_even(amax, format) if mode == "even" else _quark_log2(mode, amax, source, format)
    if scale.kind != "finite":
        return Answer([_no_code(x, format) for x in block], 255)
    stored = floor_log2(fmax(scale, _NORMAL)) + 127
    if format == "int8":
        factor = divide(_ONE, fmax(multiply(scale, power(-6)), _NORMAL))
        ys = [held(multiply(x, factor), largest(format)) for x in block]
        return Answer([integer(y, format, "nearest_even") for y in ys], stored)
    drop = {} if format.startswith("float8") else {"negative_zero": "drop"}
    return Answer([to_nearest(divide(x, scale), format, "nearest_even", **drop) for x in block], stored)


def _quark_even(amax: Number, format: str) -> Number:
    if amax.kind == "nan":
        return _NAN
    mantissa = 8 if format == "int8" else of_mantissa(format)
    field = by_bits("even", _NORMAL if is_zero(amax) else amax, mantissa)
    return power(127 if field == 128 else max(field - emax(format), -127))


def _quark_log2(mode: str, amax: Number, source: str, format: str) -> Number:
    """2^(whole number - emax) in x's format; 2^-23 where that is 0; NaN for what is not finite."""
    if amax.kind != "finite":
        return _NAN
    if is_zero(amax):
        return power(-23)
    log2 = floor_of_rounded_log2 if mode == "floor" else ceil_of_log2_in
    scale = rounded(power(log2(amax, source) - emax(format)), source)
    return power(-23) if is_zero(scale) else scale if scale.kind == "finite" else _NAN
