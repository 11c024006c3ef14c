"""Claims about the ends of formats: largest and smallest values, binades."""

from __future__ import annotations

import math
from fractions import Fraction

from narrowgauge.contracts.formats import format_named
from narrowgauge.suites.meta.claims.claim import FALSE, TRUE, Found, claim
from narrowgauge.suites.meta.claims.measuring import (
    FLOATS,
    all_codes,
    largest,
    listed,
    number,
    smallest_normal,
    smallest_subnormal,
)


@claim("000:42", "The smallest positive normal is 2^(1 - bias)", TRUE, "13 of 13 formats")
def smallest_normal_is_a_power() -> Found:
    right = [smallest_normal(name) == Fraction(2) ** (1 - format_named(name).bias) for name in FLOATS]
    return Found(all(right), f"{sum(right)} of {len(right)} formats")


@claim(
    "000:42", "The exponent width alone sets the range", FALSE,
    "equal widths, other ends: bfloat16 3.38953e+38, float32 3.40282e+38; float8_e4m3fn 448, float8_e4m3fnuz 240, "
    "float8_e4m3 240"
)  # fmt: skip
def range_is_set_by_the_exponent() -> Found:
    widths = {name: format_named(name).exponent for name in FLOATS}
    same = all(largest(a) == largest(b) for a in FLOATS for b in FLOATS if widths[a] == widths[b])
    ends = [f"{name} {number(largest(name))}" for name in ("bfloat16", "float32")]
    fp8 = [f"{name} {number(largest(name))}" for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3")]
    return Found(same, f"equal widths, other ends: {', '.join(ends)}; {', '.join(fp8)}")


@claim(
    "000:38", "float32, TF32 and bf16 have one exponent width and slightly different largest values", TRUE,
    "8, 8, 8 bits; 3.40282e+38, 3.40116e+38, 3.38953e+38"
)  # fmt: skip
def wide_formats_end_apart() -> Found:
    names = ("float32", "tfloat32", "bfloat16")
    widths, ends = [format_named(n).exponent for n in names], [largest(n) for n in names]
    holds = len(set(widths)) == 1 and ends[0] > ends[1] > ends[2] > ends[0] * Fraction(99, 100)
    return Found(holds, f"{listed(widths)} bits; {listed(ends)}")


@claim(
    "000:44",
    "That gives E4M3 one more binade than IEEE rules would",
    TRUE,
    "448 = 1.75 x 2^8; by IEEE rules 240 = 1.875 x 2^7",
)
def e4m3fn_gains_a_binade() -> Found:
    ends = [float(largest(name)) for name in ("float8_e4m3fn", "float8_e4m3")]
    (a, p), (b, q) = (math.frexp(end) for end in ends)
    texts = [f"{number(end)} = {2 * m:g} x 2^{e - 1}" for end, m, e in zip(ends, (a, b), (p, q), strict=True)]
    return Found(p == q + 1, f"{texts[0]}; by IEEE rules {texts[1]}")


@claim("000:44", "E4M3's largest value is (1 + 6/8) 2^(15 - 7) = 448", TRUE, "448")
def e4m3fn_largest_by_formula() -> Found:
    formula = (1 + Fraction(6, 8)) * 2 ** (15 - 7)
    return Found(formula == largest("float8_e4m3fn") == 448, number(formula))


@claim(
    "000:61", "Largest values: E4M3 448, E5M2 57344, bf16 3.3895313892515355e+38, fp16 65504", TRUE,
    "448.0, 57344.0, 3.3895313892515355e+38, 65504.0"
)  # fmt: skip
def largest_of_floats() -> Found:
    ends = [float(largest(n)) for n in ("float8_e4m3fn", "float8_e5m2", "bfloat16", "float16")]
    return Found(ends == [448, 57344, 3.3895313892515355e38, 65504], ", ".join(map(repr, ends)))


@claim("000:65", "int4 holds -8 to 7, int8 -128 to 127", TRUE, "-8 to 7, -128 to 127")
def ends_of_integers() -> Found:
    ends = [(int(got.min()), int(got.max())) for _, _, got in map(all_codes, ("int4", "int8"))]
    return Found(ends == [(-8, 7), (-128, 127)], ", ".join(f"{low} to {high}" for low, high in ends))


@claim("000:74", "fp16 tops out at 65504", TRUE, "65504")
def fp16_ends_at_65504() -> Found:
    return Found(largest("float16") == 65504, number(largest("float16")))


@claim("000:74", "fp16's largest value is 2^16", FALSE, "65504 = 2^16 - 32; a value is infinite from 65520 on")
def fp16_ends_at_two_to_the_16() -> Found:
    end = largest("float16")
    tie = (end + 2**16) / 2  # the next value, were there one, is 2^16
    return Found(end == 2**16, f"{end} = 2^16 - {2**16 - end}; a value is infinite from {tie} on")


@claim("000:364", "E4M3's smallest subnormal is 2^-9 = 0.00195", TRUE, "0.00195312")
def e4m3fn_smallest_subnormal() -> Found:
    return Found(smallest_subnormal("float8_e4m3fn") == Fraction(1, 512), number(smallest_subnormal("float8_e4m3fn")))


@claim(
    "000:413", "E5M2 has two mantissa bits, and 128 times E4M3's range at the top", TRUE, "2 bits; 57344 / 448 = 128"
)
def e5m2_against_e4m3() -> Found:
    ratio = largest("float8_e5m2") / largest("float8_e4m3fn")
    bits = format_named("float8_e5m2").mantissa
    return Found(bits == 2 and ratio == 128, f"{bits} bits; 57344 / 448 = {ratio}")


@claim(
    "002:7", "E5M2 spans about 14 binades more than E4M3", TRUE,
    "32 and 18 with subnormals, 14 more; 30 and 15 without, 15 more"
)  # fmt: skip
def e5m2_has_14_binades_more() -> Found:
    names = ("float8_e5m2", "float8_e4m3fn")
    whole = [_binades(smallest_subnormal(n), largest(n)) for n in names]
    normal = [_binades(smallest_normal(n), largest(n)) for n in names]
    more = [whole[0] - whole[1], normal[0] - normal[1]]
    text = f"{whole[0]} and {whole[1]} with subnormals, {more[0]} more"
    return Found(more[0] == 14, f"{text}; {normal[0]} and {normal[1]} without, {more[1]} more")


def _binades(low: Fraction, high: Fraction) -> int:
    return math.frexp(float(high))[1] - math.frexp(float(low))[1] + 1


@claim("002:11", "For E4M3 FNUZ the bias is 8 and the largest value 240", TRUE, "bias 8, largest 240")
def e4m3fnuz_ends_at_240() -> Found:
    bias, end = format_named("float8_e4m3fnuz").bias, largest("float8_e4m3fnuz")
    return Found(bias == 8 and end == 240, f"bias {bias}, largest {end}")
