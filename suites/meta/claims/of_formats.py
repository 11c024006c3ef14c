"""Claims about formats: fields, biases, special codes, precision."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np

from narrowgauge.contracts.formats import FORMATS, format_named
from narrowgauge.reference.codec import decode
from narrowgauge.suites.meta.claims.claim import FALSE, TRUE, Found, claim
from narrowgauge.suites.meta.claims.measuring import (
    FLOATS,
    all_codes,
    finite,
    largest,
    listed,
    number,
    smallest_normal,
)

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
    "002:5", "A normal value is (-1)^s 2^(e - bias) (1 + m / 2^M); an exponent field of zero has no leading 1",
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


@claim("000:42", "The gap above 1.0 is 2^-m, whatever the exponent width", TRUE, "13 of 13 formats")
def epsilon_is_set_by_the_mantissa() -> Found:
    right = [_after_one(name) - 1 == Fraction(1, 2 ** format_named(name).mantissa) for name in FLOATS]
    return Found(all(right), f"{sum(right)} of {len(right)} formats")


def _after_one(name: str) -> Fraction:
    return next(v for v in finite(name) if v > 1)


@claim(
    "000:42", "The mantissa width alone sets the relative precision", FALSE,
    "true of normal values; float8_e4m3fn's smallest subnormals lie a factor 2, then 1.5, apart"
)  # fmt: skip
def precision_is_set_by_the_mantissa() -> Found:
    values = finite("float8_e4m3fn")
    gaps = [b / a - 1 for a, b in pairwise(values[1:])]
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


@claim(
    "000:44", "Of float32, TF32, bf16, fp16, E5M2, E4M3 and E2M1, two break the rules of IEEE 754", TRUE,
    "float8_e4m3fn, float4_e2m1fn"
)  # fmt: skip
def two_formats_break_the_rules() -> Found:
    names = ("float32", "tfloat32", "bfloat16", "float16", "float8_e5m2", "float8_e4m3fn", "float4_e2m1fn")
    breaking = [name for name in names if not _top_field_is_special(name)]
    return Found(len(breaking) == 2, ", ".join(breaking))


@claim("000:44", "E2M1 has neither infinity nor NaN", TRUE, "16 of 16 codes are finite")
def e2m1_is_finite() -> Found:
    _, codes, got = all_codes("float4_e2m1fn")
    return Found(bool(np.isfinite(got).all()), f"{np.isfinite(got).sum()} of {codes.size} codes are finite")


@claim("000:68", "Of TF32's 32-bit register 19 bits count", TRUE, "1 + 8 + 10 = 19")
def tf32_has_19_bits() -> Found:
    fmt = format_named("tfloat32")
    return Found(fmt.bits == 19, f"{int(fmt.signed)} + {fmt.exponent} + {fmt.mantissa} = {fmt.bits}")


@claim(
    "000:413",
    "E5M2 has fp16's exponent field and reaches 57344",
    TRUE,
    "256 of 256 codes are upper bytes of fp16; largest 57344",
)
def e5m2_is_the_upper_byte_of_fp16() -> Found:
    _, codes, got = all_codes("float8_e5m2")
    wide = decode(codes.astype("<u2") << np.uint16(8), format_named("float16"))
    same = np.isclose(got, wide, rtol=0, atol=0, equal_nan=True)
    text = f"{same.sum()} of {codes.size} codes are upper bytes of fp16; largest {number(largest('float8_e5m2'))}"
    return Found(bool(same.all()), text)


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


@claim("002:36", "E4M3 has no infinity to overflow to; E5M2 has one", TRUE, "infinite codes: E4M3 0, E5M2 2")
def only_e5m2_has_infinity() -> Found:
    counts = [int(np.isinf(all_codes(name)[2]).sum()) for name in ("float8_e4m3fn", "float8_e5m2")]
    return Found(counts[0] == 0 < counts[1], f"infinite codes: E4M3 {counts[0]}, E5M2 {counts[1]}")


@claim(
    "003:66", "float8_e4m3fn is 1/4/3 and ends at 448; float8_e5m2 is 1/5/2, ends at 57344, with fp16's exponent width",
    TRUE, "1/4/3, 448; 1/5/2, 57344; fp16 5"
)  # fmt: skip
def fields_of_the_two_fp8() -> Found:
    two = [format_named(name) for name in ("float8_e4m3fn", "float8_e5m2")]
    layouts = [(f.exponent, f.mantissa, float(largest(f.name))) for f in two]
    fp16 = format_named("float16").exponent
    text = "; ".join(f"1/{e}/{m}, {end:g}" for e, m, end in layouts)
    return Found(layouts == [(4, 3, 448), (5, 2, 57344)] and fp16 == 5, f"{text}; fp16 {fp16}")


@claim("000:181", "E2M1 has eight magnitudes: 0, 0.5, 1, 1.5, 2, 3, 4, 6", TRUE, "0, 0.5, 1, 1.5, 2, 3, 4, 6")
def e2m1_has_eight_magnitudes() -> Found:
    return Found(finite("float4_e2m1fn") == tuple(E2M1), listed(finite("float4_e2m1fn")))


@claim(
    "003:80",
    "E2M1 has 16 codes, and 0, 0.5, 1, 1.5, 2, 3, 4, 6 on the positive side",
    TRUE,
    "16 codes, 15 values: 0 has two codes",
)
def e2m1_has_sixteen_codes() -> Found:
    _, codes, got = all_codes("float4_e2m1fn")
    distinct = len(set(got.tolist()))
    holds = codes.size == 16 and sorted({abs(v) for v in got.tolist()}) == E2M1
    return Found(holds, f"{codes.size} codes, {distinct} values: 0 has two codes")


@claim(
    "000:168",
    "An E8M0 scale is a bare power of two, without sign or mantissa",
    TRUE,
    "255 powers of two, 2^-127 to 2^127; code 255 is NaN",
)
def e8m0_is_powers_of_two() -> Found:
    fmt, codes, got = all_codes("float8_e8m0fnu")
    powers = [math.frexp(v) for v in got[np.isfinite(got)].tolist()]
    holds = not fmt.signed and fmt.mantissa == 0 and all(m == 0.5 for m, _ in powers)
    nan = codes[np.isnan(got)].tolist()
    ends = f"2^{powers[0][1] - 1} to 2^{powers[-1][1] - 1}"
    return Found(holds and nan == [255], f"{len(powers)} powers of two, {ends}; code {nan[0]} is NaN")


@claim(
    "003:92",
    "An E8M0 byte is an exponent with bias 127, and 127 means 1.0",
    TRUE,
    "127 is 1, 128 is 2, 0 is 5.87747e-39",
)
def e8m0_of_127_is_one() -> Found:
    got = decode(np.array([127, 128, 0], np.uint8), format_named("float8_e8m0fnu"))
    return Found(got.tolist() == [1.0, 2.0, 2.0**-127], f"127 is {got[0]:g}, 128 is {got[1]:g}, 0 is {number(got[2])}")
