"""Claims about formats: fields, biases, special codes, largest and smallest values."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from narrowgauge.contracts.formats import FORMATS, format_named
from narrowgauge.reference.codec import decode
from narrowgauge.suites.meta.claims.claim import FALSE, TRUE, Found, claim
from narrowgauge.suites.meta.claims.measuring import (
    all_codes,
    finite,
    largest,
    listed,
    number,
    smallest_normal,
    smallest_subnormal,
)

#: the floating-point formats whose values fit in a table
FLOATS = [f.name for f in FORMATS.values() if f.family in ("ieee", "fn", "fnuz", "finite") and f.bits <= 19]
IEEE = [f for f in FORMATS.values() if f.family == "ieee"]
E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]


@claim("000:32", "fp16 and bf16 have equally many bits", TRUE, "16 and 16")
def fp16_and_bf16_have_16_bits() -> Found:
    bits = [format_named(name).bits for name in ("float16", "bfloat16")]
    return Found(bits[0] == bits[1], f"{bits[0]} and {bits[1]}")


@claim(
    "000:34", "A float's value is sign x 2^exponent x 1.mantissa", FALSE,
    "subnormal codes have no leading 1: float8_e4m3fn 14 of 252 non-zero values, float8_e5m2 6 of 246"
)  # fmt: skip
def value_is_one_point_mantissa() -> Found:
    parts, subnormals = [], []
    for name in ("float8_e4m3fn", "float8_e5m2"):
        nonzero = [v for v in finite(name) if v]
        subnormals.append(sum(v < smallest_normal(name) for v in nonzero))
        parts.append(f"{name} {2 * subnormals[-1]} of {2 * len(nonzero)}")
    text = f"subnormal codes have no leading 1: {' non-zero values, '.join(parts)}"
    return Found(not any(subnormals), text)


@claim(
    "002:5", "A normal value is (-1)^s 2^(e - bias) (1 + m / 2^M); with an exponent field of zero there is no leading 1",
    TRUE, "all codes of 13 formats"
)  # fmt: skip
def value_of_every_code() -> Found:
    return Found(all(_follows_the_formula(name) for name in FLOATS), f"all codes of {len(FLOATS)} formats")


def _follows_the_formula(name: str) -> bool:
    """Every step below is exact in float64 for formats of at most 19 bits."""
    fmt, codes, got = all_codes(name)
    code = codes.astype(np.int64)
    field, m = code >> fmt.mantissa & (1 << fmt.exponent) - 1, code & (1 << fmt.mantissa) - 1
    fraction = m / 2.0**fmt.mantissa + (field > 0)
    value = (-1.0) ** (code >> (fmt.bits - 1)) * 2.0 ** (np.maximum(field, 1) - fmt.bias) * fraction
    plain = np.isfinite(got)
    return bool((value[plain] == got[plain]).all())


@claim(
    "000:40", "IEEE 754 biases the exponent by 2^(e-1) - 1 and keeps the all-ones field for infinity and NaN", TRUE,
    "all of float64, float32, tfloat32, bfloat16, float16, float8_e5m2, float8_e4m3, float8_e3m4"
)  # fmt: skip
def ieee_bias_and_top_field() -> Found:
    holds = all(fmt.bias == 2 ** (fmt.exponent - 1) - 1 and _top_field_is_special(fmt.name) for fmt in IEEE)
    return Found(holds, f"all of {', '.join(fmt.name for fmt in IEEE)}")


def _top_field_is_special(name: str) -> bool:
    """Both ends of the all-ones field are not finite, and the code below it is."""
    fmt = format_named(name)
    first = ((1 << fmt.exponent) - 1) << fmt.mantissa
    ends = decode(np.array([first - 1, first, first + (1 << fmt.mantissa) - 1]).astype(fmt.storage), fmt)
    return bool(np.isfinite(ends[0]) and np.isinf(ends[1]) and np.isnan(ends[2]))


@claim("000:42", "The smallest positive normal is 2^(1 - bias)", TRUE, "13 of 13 formats")
def smallest_normal_is_a_power() -> Found:
    right = [smallest_normal(name) == Fraction(2) ** (1 - format_named(name).bias) for name in FLOATS]
    return Found(all(right), f"{sum(right)} of {len(right)} formats")


@claim("000:42", "The gap above 1.0 is 2^-m, whatever the exponent width", TRUE, "13 of 13 formats")
def epsilon_is_set_by_the_mantissa() -> Found:
    right = [_after_one(name) - 1 == Fraction(1, 2 ** format_named(name).mantissa) for name in FLOATS]
    return Found(all(right), f"{sum(right)} of {len(right)} formats")


def _after_one(name: str) -> Fraction:
    return next(v for v in finite(name) if v > 1)


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
    "000:42", "The mantissa width alone sets the relative precision", FALSE,
    "true of normal values; float8_e4m3fn's smallest subnormals lie a factor 2, then 1.5, apart"
)  # fmt: skip
def precision_is_set_by_the_mantissa() -> Found:
    values = finite("float8_e4m3fn")
    gaps = [b / a - 1 for a, b in zip(values[1:], values[2:], strict=False)]
    holds = max(gaps) <= Fraction(1, 8)
    text = f"float8_e4m3fn's smallest subnormals lie a factor {number(1 + gaps[0])}, then {number(1 + gaps[1])}, apart"
    return Found(holds, f"true of normal values; {text}")


@claim("000:36", "bf16 has float32's whole exponent", TRUE, "width 8, bias 127, smallest normal 1.17549e-38")
def bf16_has_the_exponent_of_float32() -> Found:
    narrow, wide = format_named("bfloat16"), format_named("float32")
    same = (narrow.exponent, narrow.bias) == (wide.exponent, wide.bias)
    normal = smallest_normal("bfloat16")
    holds = same and normal == Fraction(float(np.finfo(np.float32).tiny))
    return Found(holds, f"width {narrow.exponent}, bias {narrow.bias}, smallest normal {number(normal)}")


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
    "000:38", "fp16 and fp8 E5M2 cut the exponent to buy mantissa", FALSE,
    "exponent 5 and 5 bits for bf16's 8; mantissa 10 and 2 for bf16's 7: only fp16 buys any"
)  # fmt: skip
def short_exponents_buy_mantissa() -> Found:
    bf16, fp16, e5m2 = (format_named(n) for n in ("bfloat16", "float16", "float8_e5m2"))
    holds = all(f.exponent < bf16.exponent and f.mantissa > bf16.mantissa for f in (fp16, e5m2))
    widths = f"exponent {fp16.exponent} and {e5m2.exponent} bits for bf16's {bf16.exponent}"
    fractions = f"mantissa {fp16.mantissa} and {e5m2.mantissa} for bf16's {bf16.mantissa}"
    return Found(holds, f"{widths}; {fractions}: only fp16 buys any")


@claim(
    "000:44", "float8_e4m3fn has no infinity and one NaN mantissa pattern, 111, in the all-ones field", TRUE,
    "NaN codes 0x7f, 0xff; no infinity; 14 finite codes in that field"
)  # fmt: skip
def e4m3fn_specials() -> Found:
    fmt, codes, got = all_codes("float8_e4m3fn")
    nans = codes[np.isnan(got)].tolist()
    top = np.isfinite(got) & ((codes >> fmt.mantissa & 15) == 15)
    holds = nans == [0x7F, 0xFF] and not np.isinf(got).any()
    text = f"NaN codes {', '.join(map(hex, nans))}; no infinity; {top.sum()} finite codes in that field"
    return Found(holds, text)


@claim("000:44", "That gives E4M3 one more binade than IEEE rules would", TRUE, "448 = 1.75 x 2^8; by IEEE rules 240 = 1.875 x 2^7")
def e4m3fn_gains_a_binade() -> Found:
    ends = [float(largest(name)) for name in ("float8_e4m3fn", "float8_e4m3")]
    (a, p), (b, q) = (math.frexp(end) for end in ends)
    texts = [f"{number(end)} = {2 * m:g} x 2^{e - 1}" for end, m, e in zip(ends, (a, b), (p, q), strict=True)]
    return Found(p == q + 1, f"{texts[0]}; by IEEE rules {texts[1]}")


@claim("000:44", "E4M3's largest value is (1 + 6/8) 2^(15 - 7) = 448", TRUE, "448")
def e4m3fn_largest_by_formula() -> Found:
    formula = (1 + Fraction(6, 8)) * 2 ** (15 - 7)
    return Found(formula == largest("float8_e4m3fn") == 448, number(formula))


@claim("000:44", "E2M1 has neither infinity nor NaN", TRUE, "16 of 16 codes are finite")
def e2m1_is_finite() -> Found:
    _, codes, got = all_codes("float4_e2m1fn")
    return Found(bool(np.isfinite(got).all()), f"{np.isfinite(got).sum()} of {codes.size} codes are finite")


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


@claim("000:68", "Of TF32's 32-bit register 19 bits count", TRUE, "1 + 8 + 10 = 19")
def tf32_has_19_bits() -> Found:
    fmt = format_named("tfloat32")
    return Found(fmt.bits == 19, f"{int(fmt.signed)} + {fmt.exponent} + {fmt.mantissa} = {fmt.bits}")


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


@claim("000:413", "E5M2 has fp16's exponent field and reaches 57344", TRUE, "256 of 256 codes are upper bytes of fp16; largest 57344")
def e5m2_is_the_upper_byte_of_fp16() -> Found:
    _, codes, got = all_codes("float8_e5m2")
    wide = decode(codes.astype("<u2") << np.uint16(8), format_named("float16"))
    same = np.isclose(got, wide, rtol=0, atol=0, equal_nan=True)
    text = f"{same.sum()} of {codes.size} codes are upper bytes of fp16; largest {number(largest('float8_e5m2'))}"
    return Found(bool(same.all()), text)


@claim("000:413", "E5M2 has two mantissa bits, and 128 times E4M3's range at the top", TRUE, "2 bits; 57344 / 448 = 128")
def e5m2_against_e4m3() -> Found:
    ratio = largest("float8_e5m2") / largest("float8_e4m3fn")
    bits = format_named("float8_e5m2").mantissa
    return Found((bits, ratio) == (2, 128), f"{bits} bits; 57344 / 448 = {ratio}")


@claim(
    "002:7", "E5M2 spans about 14 binades more than E4M3", TRUE,
    "32 and 18 with subnormals, 14 more; 30 and 15 without, 15 more"
)  # fmt: skip
def e5m2_has_14_binades_more() -> Found:
    names = ("float8_e5m2", "float8_e4m3fn")
    whole = [_binades(smallest_subnormal(n), largest(n)) for n in names]
    normal = [_binades(smallest_normal(n), largest(n)) for n in names]
    more = [whole[0] - whole[1], normal[0] - normal[1]]
    text = f"{whole[0]} and {whole[1]} with subnormals, {more[0]} more; {normal[0]} and {normal[1]} without, {more[1]} more"
    return Found(more[0] == 14, text)


def _binades(low: Fraction, high: Fraction) -> int:
    return math.frexp(float(high))[1] - math.frexp(float(low))[1] + 1


@claim(
    "002:11", "FNUZ formats have no negative zero, one NaN where -0 would be, and a bias one higher", TRUE,
    "E4M3 bias 8 for 7, E5M2 16 for 15; NaN codes 0x80 and 0x80"
)  # fmt: skip
def fnuz_layout() -> Found:
    pairs = [("float8_e4m3fnuz", "float8_e4m3fn"), ("float8_e5m2fnuz", "float8_e5m2")]
    biases = [(format_named(a).bias, format_named(b).bias) for a, b in pairs]
    nans = [codes[np.isnan(got)].tolist() for _, codes, got in (all_codes(a) for a, _ in pairs)]
    holds = all(a == b + 1 for a, b in biases) and nans == [[0x80], [0x80]]
    holds = holds and not any(np.signbit(got[got == 0]).any() for _, _, got in (all_codes(a) for a, _ in pairs))
    (a, b), (c, d) = biases
    return Found(holds, f"E4M3 bias {a} for {b}, E5M2 {c} for {d}; NaN codes {nans[0][0]:#x} and {nans[1][0]:#x}")


@claim("002:11", "For E4M3 FNUZ the bias is 8 and the largest value 240", TRUE, "bias 8, largest 240")
def e4m3fnuz_ends_at_240() -> Found:
    bias, end = format_named("float8_e4m3fnuz").bias, largest("float8_e4m3fnuz")
    return Found((bias, end) == (8, 240), f"bias {bias}, largest {end}")


@claim("002:36", "E4M3 has no infinity to overflow to; E5M2 has one", TRUE, "infinite codes: E4M3 0, E5M2 2")
def only_e5m2_has_infinity() -> Found:
    counts = [int(np.isinf(all_codes(name)[2]).sum()) for name in ("float8_e4m3fn", "float8_e5m2")]
    return Found(counts[0] == 0 < counts[1], f"infinite codes: E4M3 {counts[0]}, E5M2 {counts[1]}")


@claim(
    "003:66", "float8_e4m3fn is 1/4/3 and ends at 448; float8_e5m2 is 1/5/2, ends at 57344, with fp16's exponent width",
    TRUE, "1/4/3, 448; 1/5/2, 57344; fp16 5"
)  # fmt: skip
def fields_of_the_two_fp8() -> Found:
    layouts = [(f.exponent, f.mantissa, largest(f.name)) for f in map(format_named, ("float8_e4m3fn", "float8_e5m2"))]
    fp16 = format_named("float16").exponent
    text = "; ".join(f"1/{e}/{m}, {end}" for e, m, end in layouts)
    return Found(layouts == [(4, 3, 448), (5, 2, 57344)] and fp16 == 5, f"{text}; fp16 {fp16}")


@claim("000:181", "E2M1 has eight magnitudes: 0, 0.5, 1, 1.5, 2, 3, 4, 6", TRUE, "0, 0.5, 1, 1.5, 2, 3, 4, 6")
def e2m1_has_eight_magnitudes() -> Found:
    return Found(finite("float4_e2m1fn") == tuple(E2M1), listed(finite("float4_e2m1fn")))


@claim("003:80", "E2M1 has 16 codes, and 0, 0.5, 1, 1.5, 2, 3, 4, 6 on the positive side", TRUE, "16 codes, 15 values: 0 has two codes")
def e2m1_has_sixteen_codes() -> Found:
    _, codes, got = all_codes("float4_e2m1fn")
    distinct = len(set(got.tolist()))
    holds = codes.size == 16 and sorted({abs(v) for v in got.tolist()}) == E2M1
    return Found(holds, f"{codes.size} codes, {distinct} values: 0 has two codes")


@claim("000:168", "An E8M0 scale is a bare power of two, without sign or mantissa", TRUE, "255 powers of two, 2^-127 to 2^127; code 255 is NaN")
def e8m0_is_powers_of_two() -> Found:
    fmt, codes, got = all_codes("float8_e8m0fnu")
    powers = [math.frexp(v) for v in got[np.isfinite(got)].tolist()]
    holds = not fmt.signed and fmt.mantissa == 0 and all(m == 0.5 for m, _ in powers)
    nan = codes[np.isnan(got)].tolist()
    ends = f"2^{powers[0][1] - 1} to 2^{powers[-1][1] - 1}"
    return Found(holds and nan == [255], f"{len(powers)} powers of two, {ends}; code {nan[0]} is NaN")


@claim("003:92", "An E8M0 byte is an exponent with bias 127, and 127 means 1.0", TRUE, "127 is 1, 128 is 2, 0 is 5.87747e-39")
def e8m0_of_127_is_one() -> Found:
    got = decode(np.array([127, 128, 0], np.uint8), format_named("float8_e8m0fnu"))
    return Found(got.tolist() == [1.0, 2.0, 2.0**-127], f"127 is {got[0]:g}, 128 is {got[1]:g}, 0 is {number(got[2])}")
