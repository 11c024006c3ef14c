"""Claims about one value that goes from one format to another."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np

from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.codec import decode, has_negative_zero, values
from narrowgauge.suites.meta.claims.claim import FALSE, TRUE, Found, claim
from narrowgauge.suites.meta.claims.measuring import (
    SPECIAL,
    all_codes,
    cast,
    finite,
    finite_reals,
    largest,
    listed,
    number,
    one,
    percent,
    relative,
    smallest_normal,
    smallest_subnormal,
    sqnr,
)


def worst_relative_error(name: str) -> Fraction:
    """The largest relative error of rounding a value between two normals to the nearest: at a midpoint."""
    normals = finite_reals(name)[1 << format_named(name).mantissa :]
    a, b = normals[:-1], normals[1:]
    worst = int(np.argmax((b - a) / (a + b)))
    return Fraction(b[worst] - a[worst]) / Fraction(a[worst] + b[worst])


@claim(
    "000:5", "A format that cannot hold a number saturates, rounds to zero, or rounds to infinity", FALSE,
    "1000 becomes 448 in E4M3 where the cast clamps, NaN where it does not; 1e-8 becomes 0 and 1e6 inf in fp16"
)  # fmt: skip
def three_ways_to_fail() -> Found:
    clamped, plain = one(1000, "float8_e4m3fn"), one(1000, "float8_e4m3fn", SPECIAL)
    small, big = one(1e-8, "float16", SPECIAL), one(1e6, "float16", SPECIAL)
    where = f"1000 becomes {clamped:g} in E4M3 where the cast clamps, {_of(plain)} where it does not"
    return Found(not np.isnan(plain), f"{where}; 1e-8 becomes {small:g} and 1e6 {big:g} in fp16")


def _of(x: float) -> str:
    return "NaN" if np.isnan(x) else f"{x:g}"


@claim(
    "000:72", "bf16 rounds a value to a normal with a relative error of at most 2^-8, underflow left out", TRUE,
    "1/257; 1/255 for values just below 2^-126 that round up to it, which is the underflow left out"
)  # fmt: skip
def bf16_relative_error() -> Found:
    worst = worst_relative_error("bfloat16")
    # The tie just below the smallest normal rounds to it: a normal result of a value that underflows.
    normal, step = smallest_normal("bfloat16"), smallest_subnormal("bfloat16")
    tie = normal - step / 2
    assert one(tie, "bfloat16") == normal
    below = (normal - tie) / tie
    text = f"{worst}; {below} for values just below 2^-126 that round up to it, which is the underflow left out"
    return Found(worst <= Fraction(1, 256), text)


@claim(
    "000:417",
    "Every bf16 value above 65504 becomes infinite in fp16",
    TRUE,
    "of 32640 finite magnitudes all 14336 above 65504",
)
def bf16_to_fp16_overflows() -> Found:
    bf16 = finite_reals("bfloat16")
    lost = np.isinf(cast(bf16, "float16", SPECIAL))
    above = bf16 > 65504
    holds = bool((lost == above).all())
    return Found(holds, f"of {bf16.size} finite magnitudes all {lost.sum()} above 65504")


@claim(
    "000:417", "bf16 to fp16 is the dangerous direction", TRUE,
    "to infinity: bf16 to fp16 43.9 %, fp16 to bf16 0 % of finite magnitudes"
)  # fmt: skip
def fp16_to_bf16_overflows_rarely() -> Found:
    shares = []
    for source, to in (("bfloat16", "float16"), ("float16", "bfloat16")):
        got = cast(finite_reals(source), to, SPECIAL)
        shares.append(float(np.isinf(got).mean()))
    forward, back = shares
    text = f"to infinity: bf16 to fp16 {percent(forward)}, fp16 to bf16 {percent(back)} of finite magnitudes"
    return Found(back == 0 < forward, text)


@claim("000:445", "70000 survives in bf16 and not in fp16", TRUE, "70144 and inf")
def seventy_thousand() -> Found:
    bf16, fp16 = one(70000, "bfloat16", SPECIAL), one(70000, "float16", SPECIAL)
    return Found(np.isfinite(bf16) and np.isinf(fp16), f"{bf16:g} and {fp16:g}")


@claim(
    "000:364",
    "0.0005 lies below half of E4M3's smallest subnormal and becomes zero",
    TRUE,
    "half is 0.000976562; 0.0005 becomes 0",
)
def a_small_value_becomes_zero() -> Found:
    half = smallest_subnormal("float8_e4m3fn") / 2
    got = one(0.0005, "float8_e4m3fn")
    return Found(got == 0 and half > Fraction(0.0005), f"half is {number(half)}; 0.0005 becomes {got:g}")


@claim("000:364", "0.001 becomes 0.00195 in E4M3, an error of 95 %", TRUE, "0.00195312, an error of 95.3 %")
def a_value_above_half_survives() -> Found:
    got = one(0.001, "float8_e4m3fn")
    error = relative(got, 0.001)
    return Found(got == 2.0**-9 and round(100 * error) == 95, f"{number(got)}, an error of {percent(error)}")


@claim(
    "000:411", "E4M3 rounds up to 2^-10 = 0.000977 to zero, the tie too", TRUE,
    "2^-10 becomes 0, the next float32 0.00195312"
)  # fmt: skip
def the_tie_at_half_a_subnormal() -> Found:
    tie = np.float32(2.0**-10)
    after = float(np.nextafter(tie, np.float32(1)))
    got = one(float(tie), "float8_e4m3fn"), one(after, "float8_e4m3fn")
    return Found(got == (0, 2.0**-9), f"2^-10 becomes {got[0]:g}, the next float32 {number(got[1])}")


@claim(
    "000:411", "At scale 1 an E4M3 cache clamps everything above 448", TRUE,
    "by a cast that clamps; by one that does not 448 < x <= 464 becomes 448, and 464.1 NaN"
)  # fmt: skip
def everything_above_448_is_clamped() -> Found:
    above = np.array([449, 464, 464.1, 1e4, 3e38, np.inf])
    clamped, plain = cast(above, "float8_e4m3fn"), cast(above, "float8_e4m3fn", SPECIAL)
    assert plain[:2].tolist() == [448, 448]
    text = f"by a cast that clamps; by one that does not 448 < x <= 464 becomes {plain[1]:g}, and 464.1 {_of(plain[2])}"
    return Found(bool((clamped == 448).all()), text)


@claim(
    "000:390",
    "fmaxf(-448, fminf(x, 448)) saturates, does not wrap and gives no infinity",
    TRUE,
    "1000, inf and NaN give 448, 448, 448",
)
def the_clamp_saturates() -> Found:
    x = np.array([1000, np.inf, np.nan], np.float32)
    clamped = np.fmax(np.float32(-448), np.fmin(x, np.float32(448)))  # C's fminf and fmaxf drop a NaN, as numpy's do
    got = cast(clamped.astype(np.float64), "float8_e4m3fn")
    return Found(got[:2].tolist() == [448, 448], f"1000, inf and NaN give {', '.join(map(_of, got.tolist()))}")


@claim(
    "002:7",
    "Each mantissa bit is worth about 6 dB of signal to quantization noise",
    TRUE,
    "2, 3, 4 bits: 26.5, 32.5, 38.6 dB over one binade",
)
def a_mantissa_bit_is_six_decibels() -> Found:
    binade = 1 + (2 * np.arange(4096) + 1) / 8192  # no value stands on a grid or a tie
    ratios = [sqnr(binade, cast(binade, name)) for name in ("float8_e5m2", "float8_e4m3fn", "float8_e3m4")]
    steps = [b - a for a, b in pairwise(ratios)]
    text = f"2, 3, 4 bits: {', '.join(f'{r:.1f}' for r in ratios)} dB over one binade"
    return Found(all(5.5 < step < 6.5 for step in steps), text)


@claim("002:7", "E5M2 gives up about 6 dB against E4M3", TRUE, "6.0 dB over one binade")
def e5m2_gives_up_six_decibels() -> Found:
    binade = 1 + (2 * np.arange(4096) + 1) / 8192
    lost = sqnr(binade, cast(binade, "float8_e4m3fn")) - sqnr(binade, cast(binade, "float8_e5m2"))
    return Found(5.5 < lost < 6.5, f"{lost:.1f} dB over one binade")


@claim("002:97", "A normal E4M3 value is at most 6.25 % off", TRUE, "2^-4 bounds it; the worst is 1/17 = 5.88 %")
def e4m3_relative_error() -> Found:
    worst = worst_relative_error("float8_e4m3fn")
    return Found(worst <= Fraction(1, 16), f"2^-4 bounds it; the worst is {worst} = {percent(float(worst))}")


@claim("002:98", "A normal E5M2 value is up to 12.5 % off", TRUE, "2^-3 bounds it; the worst is 1/9 = 11.1 %")
def e5m2_relative_error() -> Found:
    worst = worst_relative_error("float8_e5m2")
    return Found(worst <= Fraction(1, 8), f"2^-3 bounds it; the worst is {worst} = {percent(float(worst))}")


@claim("003:24", "bf16's 0.3 becomes 0.3125 in E4M3", TRUE, "0.300781 becomes 0.3125")
def three_tenths() -> Found:
    bf16 = one(0.3, "bfloat16")
    return Found(one(bf16, "float8_e4m3fn") == 0.3125, f"{number(bf16)} becomes {one(bf16, 'float8_e4m3fn'):g}")


@claim(
    "003:27", "bf16's 1, 0.3, 500 are the bytes 128 63 154 62 250 67, the lower one first", TRUE, "128 63 154 62 250 67"
)
def bytes_of_three_values() -> Found:
    _, codes, got = all_codes("bfloat16")
    wanted = cast([1.0, 0.3, 500.0], "bfloat16")
    found = np.array([codes[got == w][0] for w in wanted.tolist()]).astype("<u2").tobytes()
    return Found(list(found) == [128, 63, 154, 62, 250, 67], " ".join(map(str, found)))


# --- OCP bytes read as FNUZ ------------------------------------------------------------------------------------------


@claim(
    "002:13", "An E4M3 byte read as FNUZ is off by a factor of two, every one", FALSE,
    "252 of 256 codes are halved and 0 stays; 0x80 turns from -0 to NaN, 0x7f and 0xff from NaN to 240 and -240"
)  # fmt: skip
def ocp_bytes_read_as_fnuz() -> Found:
    _, codes, ocp = all_codes("float8_e4m3fn")
    fnuz = values(format_named("float8_e4m3fnuz"))
    halved = (fnuz * 2 == ocp) & (ocp != 0)
    others = codes[~halved].tolist()
    assert others == [0x00, 0x7F, 0x80, 0xFF]
    nan, ends = _of(float(fnuz[0x80])), f"{fnuz[0x7F]:g} and {fnuz[0xFF]:g}"
    text = f"{halved.sum()} of {codes.size} codes are halved and 0 stays; 0x80 turns from -0 to {nan}"
    return Found(bool(halved[1:].all()), f"{text}, 0x7f and 0xff from NaN to {ends}")


@claim("002:13", "OCP values above 240 have no FNUZ encoding", TRUE, "7 magnitudes: 256, 288, 320, 352, 384, 416, 448")
def ocp_values_beyond_fnuz() -> Found:
    beyond = sorted(set(finite("float8_e4m3fn")) - set(finite("float8_e4m3fnuz")))
    end = largest("float8_e4m3fnuz")
    above = [v for v in finite("float8_e4m3fn") if v > end]
    return Found(above == beyond, f"{len(above)} magnitudes: {listed(above)}")


@claim(
    "002:13", "A loader can convert OCP bytes to FNUZ by the scale", TRUE,
    "doubling the scale keeps all 254 finite codes, once 0x80 is written as 0"
)  # fmt: skip
def converting_by_the_scale() -> Found:
    ocp, fnuz = format_named("float8_e4m3fn"), format_named("float8_e4m3fnuz")
    codes = np.flatnonzero(np.isfinite(values(ocp))).astype(np.uint8)
    moved = np.where(codes == 0x80, 0, codes).astype(np.uint8)
    kept = 2 * decode(moved, fnuz) == decode(codes, ocp)
    assert has_negative_zero(ocp)
    assert not has_negative_zero(fnuz)
    return Found(bool(kept.all()), f"doubling the scale keeps all {kept.sum()} finite codes, once 0x80 is written as 0")
