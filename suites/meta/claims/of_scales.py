"""Claims about scales: what one number for many elements does to them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from narrowgauge.suites.meta.claims.claim import FALSE, TRUE, Found, claim
from narrowgauge.suites.meta.claims.measuring import (
    SPECIAL,
    Reals,
    cast,
    finite_reals,
    largest,
    number,
    one,
    percent,
    relative,
    smallest_normal,
    sqnr,
    through,
)
from narrowgauge.reference.inputs import noise

E4M3, E5M2 = "float8_e4m3fn", "float8_e5m2"
F32 = np.float32
F32s = npt.NDArray[np.float32]


def every_bf16() -> F32s:
    """Every positive bf16 value, as float32."""
    return finite_reals("bfloat16")[1:].astype(F32)


# --- 22.4 / 448 ------------------------------------------------------------------------------------------------------


@claim("000:364", "22.4 / 448 is 0.05, so elements are multiplied by 20", TRUE, "in float32: 0.05 and 20")
def scale_of_22_4() -> Found:
    scale = F32(22.4) / F32(448)
    factor = F32(1) / scale
    return Found(bool(scale == F32(0.05) and factor == F32(20)), f"in float32: {number(scale)} and {number(factor)}")


@claim(
    "000:364", "A bf16 row can have an amax of 22.4, and the scale 0.05", FALSE,
    "the nearest bf16 is 22.375: scale 0.0499442, factor 20.0223"
)  # fmt: skip
def scale_of_22_4_in_bf16() -> Found:
    amax = one(22.4, "bfloat16")
    scale = F32(amax) / F32(448)
    text = f"the nearest bf16 is {amax:g}: scale {number(scale)}, factor {number(F32(1) / scale)}"
    return Found(bool(scale == F32(0.05)), text)


@claim(
    "000:364", "Multiplied by the reciprocal of its scale, the largest element lands exactly on 448", FALSE,
    "in float32 for 57.8 % of the bf16 amax from 2^-9 on; the cast makes 448 of every amax from 0.00188446 on, less below it"
)  # fmt: skip
def the_largest_lands_on_448() -> Found:
    amax = every_bf16()
    with np.errstate(over="ignore"):
        scale = np.maximum(amax / F32(448), F32(1) / (F32(448) * F32(512)))
        scaled = amax * (F32(1) / scale)
    exact = float((scaled[amax >= 2.0**-9] == 448).mean())
    codes = cast(scaled.astype(np.float64), E4M3)
    full = amax[codes == 448].min()
    assert (codes[amax >= full] == 448).all()
    text = f"in float32 for {percent(exact)} of the bf16 amax from 2^-9 on"
    return Found(exact == 1, f"{text}; the cast makes 448 of every amax from {number(full)} on, less below it")


@claim(
    "000:364", "Unscaled, E4M3's range does not overlap such data", FALSE,
    "of a row from 0.0005 to 22.4 only magnitudes up to 2^-10 are lost: 22.4 becomes 22, 1 stays 1, 0.01 becomes 0.00976562"
)  # fmt: skip
def unscaled_data_overlap() -> Found:
    got = [one(x, E4M3) for x in (22.4, 1, 0.01)]
    text = f"22.4 becomes {got[0]:g}, 1 stays {got[1]:g}, 0.01 becomes {number(got[2])}"
    holds = all(g == 0 for g in got)
    return Found(holds, f"of a row from 0.0005 to 22.4 only magnitudes up to 2^-10 are lost: {text}")


@claim("000:364", "With the scale 0.05 the row's 0.0005 survives", TRUE, "0.0005 becomes 0.000488281, an error of 2.34 %")
def a_scaled_value_survives() -> Found:
    got = float(through(np.array(0.0005), E4M3, 0.05))
    return Found(got > 0, f"0.0005 becomes {number(got)}, an error of {percent(relative(got, 0.0005))}")


@claim(
    "000:365", "Multiplying by the reciprocal and dividing by the scale quantize alike", FALSE,
    "4133 of 16384 bf16 pairs (amax, x) differ in float32, 8 in the code"
)  # fmt: skip
def reciprocal_and_division_agree() -> Found:
    amax = 1 + np.arange(128, dtype=F32)[:, None] / 128
    x = (1 + np.arange(128, dtype=F32) / 128) * F32(0.5)
    scale = amax / F32(448)
    times, over = x * (F32(1) / scale), x / scale
    wide = [cast(np.asarray(s, np.float64), E4M3) for s in (times, over)]
    same = wide[0] == wide[1]
    text = f"{(times != over).sum()} of {same.size} bf16 pairs (amax, x) differ in float32, {(~same).sum()} in the code"
    return Found(bool((times == over).all()), text)


# --- outliers --------------------------------------------------------------------------------------------------------


@claim("000:139", "Symmetric int8 takes z = 0 and s = max|x| / 127", TRUE, "codes -127 to 127: nothing clips, -128 is not used")
def symmetric_int8() -> Found:
    row = noise(4096, 1)
    row = np.concatenate([row, -row])
    codes = cast(row / (np.abs(row).max() / 127), "int8")
    holds = codes.min() == -127 and codes.max() == 127
    return Found(bool(holds), f"codes {codes.min():g} to {codes.max():g}: nothing clips, -128 is not used")


@claim(
    "000:129", "A zero point lets an integer format hold a range that is not centred on zero", TRUE,
    "values 0 to 20 use 256 codes of uint8 with a zero point, 128 of int8 without: step 0.0784314 for 0.15748"
)  # fmt: skip
def a_zero_point_helps() -> Found:
    x = np.linspace(0, 20, 4001)
    steps = 20 / 255, 20 / 127
    counts = [len(set(cast(x / s, name).tolist())) for s, name in zip(steps, ("uint8", "int8"), strict=True)]
    text = f"values 0 to 20 use {counts[0]} codes of uint8 with a zero point, {counts[1]} of int8 without"
    return Found(counts[0] == 2 * counts[1], f"{text}: step {number(steps[0])} for {number(steps[1])}")


@claim("000:139", "A group of zeros needs a policy for its scale, such as s = 1", TRUE, "0 / 0 is NaN; with s = 1 the codes are 0")
def zeros_need_a_policy() -> Found:
    zeros = np.zeros(4)
    with np.errstate(invalid="ignore"):
        plain = zeros / (np.abs(zeros).max() / 127)
    chosen = cast(zeros / 1.0, "int8")
    holds = bool(np.isnan(plain).all() and (chosen == 0).all())
    return Found(holds, f"0 / 0 is {'NaN' if np.isnan(plain[0]) else plain[0]}; with s = 1 the codes are {chosen[0]:g}")


def with_outlier(outlier: float) -> Reals:
    """4096 values of about a normal distribution, the first of which is the outlier."""
    row = noise(4096, 2)
    row[0] = outlier
    return row


def loss_by_outlier(name: str) -> tuple[float, float]:
    """SQNR in decibels of the elements but the first, where the first is 4 and where it is 400."""
    ratios = []
    for outlier in (4.0, 400.0):
        row = with_outlier(outlier)
        ratios.append(sqnr(row[1:], through(row, name, np.abs(row).max() / float(largest(name)))[1:]))
    return ratios[0], ratios[1]


@claim("000:145", "With one scale, one outlier costs every other element its precision: int8", TRUE, "an outlier of 400 for 4: 40.9 dB become 1.5")
def an_outlier_costs_int8() -> Found:
    before, after = loss_by_outlier("int8")
    return Found(before - after > 30, f"an outlier of 400 for 4: {before:.1f} dB become {after:.1f}")


@claim(
    "002:40", "With one scale, the largest element sets the step of every other: fp8", FALSE,
    "E4M3's steps are relative: an outlier of 400 for 4 takes 31.6 dB to 31.7"
)  # fmt: skip
def an_outlier_costs_fp8() -> Found:
    before, after = loss_by_outlier(E4M3)
    text = f"E4M3's steps are relative: an outlier of 400 for 4 takes {before:.1f} dB to {after:.1f}"
    return Found(before - after > 6, text)


@claim(
    "002:40", "An outlier of 100 times the median pushes ordinary values into E4M3's subnormals", FALSE,
    "the median stands at 4.48, 287 times the smallest normal; subnormal is what lies 28672 times below the outlier"
)  # fmt: skip
def an_outlier_makes_subnormals() -> Found:
    smallest, end = smallest_normal(E4M3), largest(E4M3)
    median = end / 100
    text = f"the median stands at {number(median)}, {number(round(median / smallest))} times the smallest normal"
    return Found(median < smallest, f"{text}; subnormal is what lies {number(end / smallest)} times below the outlier")


@claim("002:42", "With blocks, an outlier harms its own block alone", TRUE, "in 32 blocks of 128 an outlier of 400 changes elements of 1 block")
def an_outlier_stays_in_its_block() -> Found:
    names = [with_outlier(outlier).reshape(32, 128) for outlier in (4.0, 400.0)]
    before, after = (through(row, "int8", np.abs(row).max(axis=1, keepdims=True) / 127) for row in names)
    changed = (before[:, 1:] != after[:, 1:]).any(axis=1)
    text = f"in 32 blocks of 128 an outlier of 400 changes elements of {changed.sum()} block"
    return Found(changed.tolist() == [True] + [False] * 31, text)


@claim(
    "003:80", "With one scale per tensor, an outlier squeezes the other FP4 values to 0", TRUE,
    "beside an outlier of 100 everything up to 4.16667 becomes 0"
)  # fmt: skip
def an_outlier_squeezes_fp4() -> Found:
    others = np.array([0.01, 1, 4, 100 / 24, 4.17])
    got = cast(others / (100 / 6), "float4_e2m1fn")
    holds = got.tolist() == [0, 0, 0, 0, 0.5]
    return Found(holds, f"beside an outlier of 100 everything up to {number(100 / 24)} becomes 0")


@claim("000:334", "Four bits of integer cannot hold a distribution with outliers", TRUE, "beside 100 int4 makes 0 of everything up to 7.14286: 63 of 64 values of 1")
def int4_beside_an_outlier() -> Found:
    row = np.ones(64)
    row[0] = 100
    got = cast(row / (100 / 7), "int4")
    return Found(bool((got[1:] == 0).all()), f"beside 100 int4 makes 0 of everything up to {number(100 / 14)}: {(got == 0).sum()} of 64 values of 1")


@claim("000:334", "A Hadamard transform spreads an outlier over the channels", TRUE, "100 in one of 128 channels becomes 8.83883 in each")
def hadamard_spreads() -> Found:
    matrix = np.ones((1, 1))
    for _ in range(7):
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    spread = np.abs(matrix[:, 5] * 100 / np.sqrt(128))
    same = bool((spread == spread[0]).all())
    return Found(same, f"100 in one of 128 channels becomes {number(spread[0])} in each")


# --- static, dynamic, margin -----------------------------------------------------------------------------------------


@claim("002:48", "A static scale saturates inputs beyond those it was calibrated on", TRUE, "calibrated on 10, 12 comes back as 10")
def a_static_scale_saturates() -> Found:
    got = float(through(np.array(12.0), E4M3, 10 / 448))
    return Found(got == 10, f"calibrated on 10, 12 comes back as {got:g}")


@claim(
    "002:49", "A dynamic scale always fits", TRUE,
    "with the article's least scale of 1e-12; without one an amax of 2^-140 has the scale 2^-149 in float32 and stands at 512"
)  # fmt: skip
def a_dynamic_scale_fits() -> Found:
    amax = np.concatenate([every_bf16(), np.ldexp(F32(1), np.arange(-149, -126))])
    floored = amax / np.maximum(amax / F32(448), F32(1e-12))
    assert (cast(floored.astype(np.float64), E4M3, SPECIAL) <= 448).all()  # a cast that does not clamp makes no NaN
    tiny = F32(2.0**-140)
    scale = tiny / F32(448)
    assert scale == 2.0**-149
    text = f"without one an amax of 2^-140 has the scale 2^-149 in float32 and stands at {tiny / scale:g}"
    return Found(bool((floored <= 448 * (1 + 2.0**-22)).all()), f"with the article's least scale of 1e-12; {text}")


@claim(
    "002:61", "A margin lowers the scale by powers of two, for headroom", FALSE,
    "by the article's own s = amax / 448: halved, amax stands at 896; doubled, at 224"
)  # fmt: skip
def a_margin_lowers_the_scale() -> Found:
    scale = 10 / 448
    lowered, raised = 10 / (scale / 2), 10 / (scale * 2)
    text = f"by the article's own s = amax / 448: halved, amax stands at {lowered:g}; doubled, at {raised:g}"
    return Found(lowered < 448, text)


@claim(
    "002:61", "A scale from a high percentile protects against outliers not seen", FALSE,
    "of an unseen 1.2 amax there come back 66.9 %, 83.3 %, 95.2 %: scale from the 99th percentile, the largest, "
    "twice the largest"
)  # fmt: skip
def a_percentile_protects() -> Found:
    row = np.sort(np.abs(noise(4096, 3)))
    top, percentile = row[-1], row[4096 * 99 // 100]
    unseen = 1.2 * top
    got = [float(through(np.array(unseen), E4M3, amax / 448)) / unseen for amax in (percentile, top, 2 * top)]
    text = f"of an unseen 1.2 amax there come back {', '.join(percent(g) for g in got)}"
    return Found(got[0] > got[1], f"{text}: scale from the 99th percentile, the largest, twice the largest")


@claim("003:76", "A scale taken the wrong way round raises nothing and is off by an order of magnitude", FALSE, "off by s^2: 400 times the value for s = 0.05, 1 for s = 1")
def a_scale_the_wrong_way_round() -> Found:
    factors = []
    for scale in (0.05, 1.0):
        q = one(10 / scale, E4M3)
        factors.append(q * scale / (q / scale))
    text = f"off by s^2: {number(1 / factors[0])} times the value for s = 0.05, {number(factors[1])} for s = 1"
    return Found(all(9 < 1 / f < 11 for f in factors), text)


# --- a row of 4096 with one outlier of 600 ---------------------------------------------------------------------------

S_E4M3, S_E5M2 = 600 / 448, 600 / 57344


def row_of_600() -> Reals:
    """The article's row: magnitudes 0.5 to 2, a quarter of them 0.01, one outlier of 600."""
    return np.concatenate([np.linspace(0.5, 2, 3071), np.full(1024, 0.01), [600.0]])


@claim("002:97", "600 / 448 is 1.34", TRUE, "1.33929")
def scale_of_600() -> Found:
    return Found(round(S_E4M3, 2) == 1.34, number(S_E4M3))


@claim(
    "002:97", "There 0.01 stands at 0.0075, below the smallest normal 0.0156, and rounds to 4 steps, 0.0078: 5 % off", TRUE,
    "0.00746667, 4 steps of 0.00195312, 4.63 % off"
)  # fmt: skip
def one_hundredth_beside_600() -> Found:
    scaled = 0.01 / S_E4M3
    got = one(scaled, E4M3)
    error = relative(got, scaled)
    holds = scaled < smallest_normal(E4M3) and got == 4 * 2.0**-9 and round(100 * error) == 5
    return Found(bool(holds), f"{number(scaled)}, {got * 512:g} steps of {number(2.0**-9)}, {percent(error)} off")


@claim("002:97", "There 0.003 stands at 0.0022 and rounds to 0.00195: 13 % off", TRUE, "0.00224, 0.00195312, 12.8 % off")
def three_thousandths_beside_600() -> Found:
    scaled = 0.003 / S_E4M3
    got = one(scaled, E4M3)
    error = relative(got, scaled)
    return Found(got == 2.0**-9 and round(100 * error) == 13, f"{number(scaled)}, {number(got)}, {percent(error)} off")


@claim("002:97", "There smaller values lose more", FALSE, "0.01 is 4.63 % off, 0.0026 is 0.607 % off: in the subnormals only the bound grows")
def smaller_values_lose_more() -> Found:
    errors = [relative(float(through(np.array(x), E4M3, S_E4M3)), x) for x in (0.01, 0.0026)]
    text = f"0.01 is {percent(errors[0])} off, 0.0026 is {percent(errors[1])} off: in the subnormals only the bound grows"
    return Found(errors[1] > errors[0], text)


@claim("002:97", "There values near 1 stand at 0.75, a normal", TRUE, "0.746667")
def one_beside_600() -> Found:
    scaled = 1 / S_E4M3
    return Found(round(scaled, 2) == 0.75 and scaled >= smallest_normal(E4M3), number(scaled))


@claim("002:98", "600 / 57344 is 0.0105, and small values stay normal", TRUE, "0.0104632; 0.01 stands at 0.955733, 0.003 at 0.28672")
def scale_of_600_in_e5m2() -> Found:
    scaled = [x / S_E5M2 for x in (0.01, 0.003)]
    holds = round(S_E5M2, 4) == 0.0105 and min(scaled) >= smallest_normal(E5M2)
    return Found(bool(holds), f"{number(S_E5M2)}; 0.01 stands at {number(scaled[0])}, 0.003 at {number(scaled[1])}")


@claim("002:98", "On such a row E5M2's SQNR is worse than E4M3's", TRUE, "49.6 dB for E4M3, 43.5 for E5M2")
def sqnr_beside_600() -> Found:
    row = row_of_600()
    ratios = [sqnr(row, through(row, name, s)) for name, s in ((E4M3, S_E4M3), (E5M2, S_E5M2))]
    return Found(ratios[1] < ratios[0], f"{ratios[0]:.1f} dB for E4M3, {ratios[1]:.1f} for E5M2")


@claim(
    "002:98", "There E5M2 improves the small values", FALSE,
    "0.003 from 12.8 % off to 8.99 %; 0.01 comes back as the same 0.0104632 from both"
)  # fmt: skip
def e5m2_improves_small_values() -> Found:
    small = np.array([0.003, 0.01])
    e4m3, e5m2 = through(small, E4M3, S_E4M3), through(small, E5M2, S_E5M2)
    before, after = np.abs(e4m3 - small) / small, np.abs(e5m2 - small) / small
    same = number(e4m3[1]) if np.isclose(e4m3[1], e5m2[1], rtol=1e-15, atol=0) else "two values"
    text = f"0.003 from {percent(before[0])} off to {percent(after[0])}; 0.01 comes back as the same {same} from both"
    return Found(bool((after < before * (1 - 1e-12)).all()), text)


@claim("002:99", "With an amax of 10, s is 0.022 and 0.01 stands at 0.45, a normal", TRUE, "0.0223214; 0.448")
def after_smoothing() -> Found:
    scale = 10 / 448
    scaled = 0.01 / scale
    holds = round(scale, 3) == 0.022 and round(scaled, 2) == 0.45 and scaled >= smallest_normal(E4M3)
    return Found(bool(holds), f"{number(scale)}; {number(scaled)}")


@claim("002:99", "Then the error is within 6.25 % everywhere", FALSE, "from 0.000348772 up; 0.00003 is 45.3 % off, 0.00002 becomes 0")
def after_smoothing_everywhere() -> Found:
    scale = 10 / 448
    least = float(smallest_normal(E4M3)) * scale
    got = through(np.array([0.00003, 0.00002]), E4M3, scale)
    error = relative(float(got[0]), 0.00003)
    text = f"from {number(least)} up; 0.00003 is {percent(error)} off, 0.00002 becomes {number(float(got[1]))}"
    return Found(error <= 1 / 16, text)


@claim("002:17", "x is about q s, where q = cast(clamp(x / s)) and s = amax / 448", TRUE, "")
def a_scale_and_back() -> Found:
    row = noise(4096, 4) ** 5  # the fifth power, so that some values are subnormal
    scale = np.abs(row).max() / 448
    off = np.abs(through(row, E4M3, scale) - row)
    normal = np.abs(row / scale) >= float(smallest_normal(E4M3))
    worst, steps = float((off / np.abs(row))[normal].max()), float(off[~normal].max() / scale) * 512
    text = f"of 4096 values {normal.sum()} normals within {percent(worst)}, {(~normal).sum()} subnormals within {steps:.3f} steps"
    return Found(worst <= 1 / 17 and steps <= 0.5, text)
