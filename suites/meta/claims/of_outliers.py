"""Claims about outliers: what one large element does to those that share its scale."""

from __future__ import annotations

import numpy as np

from narrowgauge.reference.noise import noise
from narrowgauge.suites.meta.claims.claim import FALSE, TRUE, Found, claim
from narrowgauge.suites.meta.claims.measuring import (
    Reals,
    cast,
    largest,
    number,
    one,
    percent,
    relative,
    smallest_normal,
    sqnr,
    through,
)

E4M3, E5M2 = "float8_e4m3fn", "float8_e5m2"


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


@claim(
    "000:145",
    "With one scale, one outlier costs every other element its precision: int8",
    TRUE,
    "an outlier of 400 for 4: 40.9 dB become 1.5",
)
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


@claim(
    "002:42",
    "With blocks, an outlier harms its own block alone",
    TRUE,
    "in 32 blocks of 128 an outlier of 400 changes elements of 1 block",
)
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


@claim(
    "000:334",
    "Four bits of integer cannot hold a distribution with outliers",
    TRUE,
    "beside 100 int4 makes 0 of everything up to 7.14286: 63 of 64 values of 1",
)
def int4_beside_an_outlier() -> Found:
    row = np.ones(64)
    row[0] = 100
    got = cast(row / (100 / 7), "int4")
    return Found(
        bool((got[1:] == 0).all()),
        f"beside 100 int4 makes 0 of everything up to {number(100 / 14)}: {(got == 0).sum()} of 64 values of 1",
    )


@claim(
    "000:334",
    "A Hadamard transform spreads an outlier over the channels",
    TRUE,
    "100 in one of 128 channels becomes 8.83883 in each",
)
def hadamard_spreads() -> Found:
    matrix = np.ones((1, 1))
    for _ in range(7):
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    spread = np.abs(matrix[:, 5] * 100 / np.sqrt(128))
    same = bool((spread == spread[0]).all())
    return Found(same, f"100 in one of 128 channels becomes {number(spread[0])} in each")


# --- a row of 4096 with one outlier of 600 ---------------------------------------------------------------------------

S_E4M3, S_E5M2 = 600 / 448, 600 / 57344


def row_of_600() -> Reals:
    """The article's row: magnitudes 0.5 to 2, a quarter of them 0.01, one outlier of 600."""
    return np.concatenate([np.linspace(0.5, 2, 3071), np.full(1024, 0.01), [600.0]])


@claim("002:97", "600 / 448 is 1.34", TRUE, "1.33929")
def scale_of_600() -> Found:
    return Found(round(S_E4M3, 2) == 1.34, number(S_E4M3))


@claim(
    "002:97", "There 0.01 stands at 0.0075, below the smallest normal 0.0156, and rounds to 4 steps, 0.0078: 5 % off",
    TRUE, "0.00746667, 4 steps of 0.00195312, 4.63 % off"
)  # fmt: skip
def one_hundredth_beside_600() -> Found:
    scaled = 0.01 / S_E4M3
    got = one(scaled, E4M3)
    error = relative(got, scaled)
    holds = scaled < smallest_normal(E4M3) and got == 4 * 2.0**-9 and round(100 * error) == 5
    return Found(bool(holds), f"{number(scaled)}, {got * 512:g} steps of {number(2.0**-9)}, {percent(error)} off")


@claim(
    "002:97", "There 0.003 stands at 0.0022 and rounds to 0.00195: 13 % off", TRUE, "0.00224, 0.00195312, 12.8 % off"
)
def three_thousandths_beside_600() -> Found:
    scaled = 0.003 / S_E4M3
    got = one(scaled, E4M3)
    error = relative(got, scaled)
    return Found(got == 2.0**-9 and round(100 * error) == 13, f"{number(scaled)}, {number(got)}, {percent(error)} off")


@claim(
    "002:97",
    "There smaller values lose more",
    FALSE,
    "0.01 is 4.63 % off, 0.0026 is 0.607 % off: in the subnormals only the bound grows",
)
def smaller_values_lose_more() -> Found:
    errors = [relative(float(through(np.array(x), E4M3, S_E4M3)), x) for x in (0.01, 0.0026)]
    text = (
        f"0.01 is {percent(errors[0])} off, 0.0026 is {percent(errors[1])} off: in the subnormals only the bound grows"
    )
    return Found(errors[1] > errors[0], text)


@claim("002:97", "There values near 1 stand at 0.75, a normal", TRUE, "0.746667")
def one_beside_600() -> Found:
    scaled = 1 / S_E4M3
    return Found(round(scaled, 2) == 0.75 and scaled >= smallest_normal(E4M3), number(scaled))


@claim(
    "002:98",
    "600 / 57344 is 0.0105, and small values stay normal",
    TRUE,
    "0.0104632; 0.01 stands at 0.955733, 0.003 at 0.28672",
)
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


@claim(
    "002:99",
    "Then the error is within 6.25 % everywhere",
    FALSE,
    "from 0.000348772 up; 0.00003 is 45.3 % off, 0.00002 becomes 0",
)
def after_smoothing_everywhere() -> Found:
    scale = 10 / 448
    least = float(smallest_normal(E4M3)) * scale
    got = through(np.array([0.00003, 0.00002]), E4M3, scale)
    error = relative(float(got[0]), 0.00003)
    text = f"from {number(least)} up; 0.00003 is {percent(error)} off, 0.00002 becomes {number(float(got[1]))}"
    return Found(error <= 1 / 16, text)
