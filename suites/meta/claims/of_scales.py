"""Claims about scales: what one number for many elements does to them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from narrowgauge.reference.noise import noise
from narrowgauge.suites.meta.claims.claim import FALSE, TRUE, Found, claim
from narrowgauge.suites.meta.claims.measuring import (
    SPECIAL,
    cast,
    finite_reals,
    number,
    one,
    percent,
    relative,
    smallest_normal,
    through,
)

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
    "in float32 for 57.8 % of the bf16 amax from 2^-9 on; the cast makes 448 of every amax from 0.00188446 on, less "
    "below it"
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
    "of a row from 0.0005 to 22.4 only magnitudes up to 2^-10 are lost: 22.4 becomes 22, 1 stays 1, 0.01 becomes "
    "0.00976562"
)  # fmt: skip
def unscaled_data_overlap() -> Found:
    got = [one(x, E4M3) for x in (22.4, 1, 0.01)]
    text = f"22.4 becomes {got[0]:g}, 1 stays {got[1]:g}, 0.01 becomes {number(got[2])}"
    holds = all(g == 0 for g in got)
    return Found(holds, f"of a row from 0.0005 to 22.4 only magnitudes up to 2^-10 are lost: {text}")


@claim(
    "000:364", "With the scale 0.05 the row's 0.0005 survives", TRUE, "0.0005 becomes 0.000488281, an error of 2.34 %"
)
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


# --- integers --------------------------------------------------------------------------------------------------------


@claim(
    "000:139",
    "Symmetric int8 takes z = 0 and s = max|x| / 127",
    TRUE,
    "codes -127 to 127: nothing clips, -128 is not used",
)
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


@claim(
    "000:139",
    "A group of zeros needs a policy for its scale, such as s = 1",
    TRUE,
    "0 / 0 is NaN; with s = 1 the codes are 0",
)
def zeros_need_a_policy() -> Found:
    zeros = np.zeros(4)
    with np.errstate(invalid="ignore"):
        plain = zeros / (np.abs(zeros).max() / 127)
    chosen = cast(zeros / 1.0, "int8")
    holds = bool(np.isnan(plain).all() and (chosen == 0).all())
    return Found(holds, f"0 / 0 is {'NaN' if np.isnan(plain[0]) else plain[0]}; with s = 1 the codes are {chosen[0]:g}")


# --- static, dynamic, margin -----------------------------------------------------------------------------------------


@claim(
    "002:48",
    "A static scale saturates inputs beyond those it was calibrated on",
    TRUE,
    "calibrated on 10, 12 comes back as 10",
)
def a_static_scale_saturates() -> Found:
    got = float(through(np.array(12.0), E4M3, 10 / 448))
    return Found(got == 10, f"calibrated on 10, 12 comes back as {got:g}")


@claim(
    "002:49", "A dynamic scale always fits", TRUE,
    "with the article's least scale of 1e-12; without one an amax of 2^-140 has the scale 2^-149 in float32 and "
    "stands at 512"
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


@claim(
    "003:76",
    "A scale taken the wrong way round raises nothing and is off by an order of magnitude",
    FALSE,
    "off by s^2: 400 times the value for s = 0.05, 1 for s = 1",
)
def a_scale_the_wrong_way_round() -> Found:
    factors = []
    for scale in (0.05, 1.0):
        q = one(10 / scale, E4M3)
        factors.append(q * scale / (q / scale))
    text = f"off by s^2: {number(1 / factors[0])} times the value for s = 0.05, {number(factors[1])} for s = 1"
    return Found(all(9 < 1 / f < 11 for f in factors), text)


@claim(
    "002:17", "x is about q s, where q = cast(clamp(x / s)) and s = amax / 448", TRUE,
    "of 4096 values 2888 normals within 5.88 %, 1208 subnormals within 0.499 steps"
)  # fmt: skip
def a_scale_and_back() -> Found:
    row = noise(4096, 4) ** 5  # the fifth power, so that some values are subnormal
    scale = np.abs(row).max() / 448
    off = np.abs(through(row, E4M3, scale) - row)
    normal = np.abs(row / scale) >= float(smallest_normal(E4M3))
    worst, steps = float((off / np.abs(row))[normal].max()), float(off[~normal].max() / scale) * 512
    text = f"of 4096 values {normal.sum()} normals within {percent(worst)}"
    return Found(worst <= 1 / 17 and steps <= 0.5, f"{text}, {(~normal).sum()} subnormals within {steps:.3f} steps")
