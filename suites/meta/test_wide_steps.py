# SPDX-License-Identifier: Apache-2.0
"""Each step of wide operations by itself: it holds the worst that documents allow, and little more."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.reference.noise import noise
from narrowgauge.reference.wide.ends import Ends, U, exactly, held_in, product, widened
from narrowgauge.reference.wide.steps import STEPS, STRETCHES, Work
from narrowgauge.suites.meta.test_wide import moved

pytestmark = pytest.mark.meta

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
N = 16
ONE = np.abs(noise(6 * N, 1)).reshape(6, N).astype(np.float32) + np.float32(0.25)
TWO = np.abs(noise(6 * N, 2)).reshape(6, N).astype(np.float32) + np.float32(0.25)


def run(name: str, *operands: str | float, **held: F32 | F64 | Ends) -> Ends:
    """What a step gives of numbers that are exactly known, or of intervals."""
    ends = {key: v if isinstance(v, Ends) else exactly(v.astype(np.float64)) for key, v in held.items()}
    with np.errstate(all="ignore"):
        return STEPS[name](Work(ends, "float32", "float32"), "out", *operands)["out"]


def nearest(value: F64) -> F32:
    return value.astype(np.float32)


#: name of a step: operands, what is exact, how many ulp a function may be off beyond the nearest number, and how wide
#: in u an interval may be: twice the relative error
EACH: dict[str, tuple[tuple[str | float, ...], Callable[[F64, F64], F64], int, float]] = {
    "times": (("a", "b"), lambda a, b: a * b, 0, 2.1),
    "over": (("a", "b"), lambda a, b: a / b, 2, 10.1),
    "add_near": (("a", "b"), lambda a, b: a + b, 0, 2.1),
    "plus": (("a", 1.0), lambda a, b: a + 1, 0, 2.1),
    "rsqrt": (("a",), lambda a, b: 1 / np.sqrt(a), 2, 10.1),
    "log": (("a",), lambda a, b: np.log(a), 2, np.inf),
    "sigmoid": (("a",), lambda a, b: 1 / (1 + np.exp(-a)), 2, 2 * (6 + 2 * 4 + 1 + 5) + 0.1),
    "silu": (("a",), lambda a, b: a / (1 + np.exp(-a)), 2, 2 * (6 + 2 * 4 + 2 + 5) + 0.1),
}


@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize("flip", [1, -1])
def test_a_step_holds_what_documents_allow_and_little_more(name: str, flip: int) -> None:
    operands, exact, ulps, width = EACH[name]
    a, b = ONE, TWO
    value = exact(a.astype(np.float64), b.astype(np.float64))
    found = run(name, *operands, a=a, b=b)
    for off in {0, ulps, -ulps}:
        assert (found.low <= moved(nearest(value), flip * off)).all()
        assert (moved(nearest(value), flip * off) <= found.high).all()
    assert (found.high - found.low <= width * U * np.abs(value) + 2.0**-124).all()
    assert (found.low < value).all()
    assert (value < found.high).all()


def test_a_constant_is_what_float32_has_or_itself() -> None:
    """1e-6 is no number of float32: a kernel adds the nearest, or the constant in double precision."""
    zero = np.zeros((1, 1), np.float32)
    found = run("plus", "a", 1e-6, a=zero)
    assert found.low < min(1e-6, float(np.float32(1e-6))) * (1 - 0.99 * U)
    assert found.high > max(1e-6, float(np.float32(1e-6))) * (1 + 0.99 * U)


def test_a_mean_holds_every_order_of_its_sum() -> None:
    """One to one side: 4,096 squares of which each addition rounds down."""
    x = np.full((1, 4096), 1 / 3, np.float32)
    total = np.float32(0)
    for square in (x * x).ravel():
        total = total + square
    found = run("square_mean", "a", a=x)
    exact = float((x.astype(np.float64) ** 2).mean())
    assert found.low < total / np.float32(4096) < found.high
    assert abs(float(total / np.float32(4096)) - exact) > 30 * U * exact
    assert found.high - found.low <= 2.02 * 4098 * U * exact


def test_the_mean_of_squares_of_an_interval_about_zero_begins_at_zero() -> None:
    ends = Ends(np.array([[-1.0, 2.0]]), np.array([[3.0, 2.0]]))
    found = run("square_mean", "a", a=ends)
    assert 1.9 < found.low[0, 0] < 2.0 < 6.5 < found.high[0, 0] < 6.6


def test_exp_and_the_largest_hold_base_2_and_every_stretch() -> None:
    """Rows far from 0, whose products with log2 e lose most; and rows that rise from stretch to stretch, so that the
    first power is rescaled each time, by an exp that is 3 ulp too large, and rounded."""
    far = (1000 + noise(N, 3)).astype(np.float32)[None]
    log2_e = np.float32(np.log2(np.e))
    exponent = (far * log2_e - far.max() * log2_e).astype(np.float64)
    power = nearest(np.exp2(exponent))
    of_far = run("exp", "s", s=run("below_largest", "a", a=far))
    assert (of_far.low <= power).all()
    assert (power <= of_far.high).all()
    off = np.abs(power / np.exp((far - far.max()).astype(np.float64)) - 1)
    assert off.max() > 2 * STRETCHES * 7 * U  # more than all else that is allowed

    rising = np.arange(STRETCHES, dtype=np.float32)[None] / 8
    first = np.float32(1)
    for one, two in zip(rising[0], rising[0, 1:], strict=False):
        first = first * moved(nearest(np.exp(np.float64(one - two)))[None], 3)[0]
    found = run("exp", "s", s=run("below_largest", "a", a=rising))
    assert found.low[0, 0] <= first <= found.high[0, 0]
    assert first / np.exp(-np.float64(rising[0, -1])) - 1 > 40 * U  # more than one exp is allowed


def test_the_largest_of_a_row_of_intervals_is_not_exceeded() -> None:
    ends = Ends(np.array([[0.0, 1.0]]), np.array([[2.0, 3.0]]))
    found = run("below_largest", "a", a=ends)
    assert (found.low < np.array([[-3.0, -2.0]])).all()
    assert (found.low > np.array([[-3.0, -2.0]]) - 40 * U).all()
    assert (found.high <= 40 * U).all()


def test_a_logarithm_near_0_is_off_by_an_absolute_error() -> None:
    """PTX ISA, lg2.approx: 2^-22 absolute where the argument is near 1, times ln 2."""
    x = np.array([[1 + 2.0**-20]], np.float32)
    found, off = run("log", "a", a=x), 2.0**-22 * np.log(2)
    exact = np.log(float(x[0, 0]))
    assert found.low[0, 0] < exact - off < exact + off < found.high[0, 0]
    assert found.high[0, 0] - found.low[0, 0] < 4 * off


def test_what_is_taken_off_may_be_added_to_the_largest_first() -> None:
    """x - (largest + log) and x - largest - log: of a row far from 0 the first loses more."""
    x = (1000 + noise(N, 4)).astype(np.float32)[None]
    s, total = x - x.max(), np.full((1, 1), 1.7, np.float32)
    found = run("minus", "s", "total", "x", s=s, total=total, x=x)
    for way in (s - total, x - (x.max() + total)):
        assert (found.low <= way).all()
        assert (way <= found.high).all()
    assert (found.high - found.low <= 2.1 * U * (np.abs(x).max() + 1.7 + np.abs(s - total))).all()
    assert (np.abs(x - (x.max() + total) - (s.astype(np.float64) - 1.7)) > 100 * U).any()


def test_a_sigmoid_holds_the_form_of_a_tanh() -> None:
    """Far below 0 that is 0, or a unit in the last place of 1."""
    x = np.linspace(-30, 5, 300, dtype=np.float32)[None]
    half = np.float32(0.5)
    found = run("sigmoid", "a", a=x)
    for off in (-2, 0, 2):
        tanh = moved(np.tanh((half * x).astype(np.float64)).astype(np.float32), off)
        way = half + half * np.clip(tanh, -1, 1)  # no function tanh leaves its range
        assert (found.low <= way).all()
        assert (way <= found.high).all()
    assert (found.high - found.low <= 2 * (6 + 2 * 30 + 6 + 3) * U).all()
    assert (found.low >= 0).all()


def test_a_quotient_by_what_may_be_0_is_anything_above() -> None:
    found = run("over", "a", "b", a=np.array([[1.0, 0.0]], np.float32), b=Ends(np.zeros((1, 1)), np.full((1, 1), 2.0)))
    assert (found.low[0, 0], found.high[0, 0]) == (0.5 * (1 - 5 * U * (1 + 2.0**-10)) - 2.0**-126, np.inf)
    assert (found.low[0, 1], found.high[0, 1]) == (0.0, 0.0)


def test_the_sum_of_a_row_holds_every_order() -> None:
    x = np.full((1, 4096), 1 / 3, np.float32)
    total = np.float32(0)
    for each in x.ravel():
        total = total + each
    found = run("sum", "a", a=x)
    assert found.low < total < found.high
    assert found.high - found.low <= 2.02 * 4096 * U * float(x.sum(dtype=np.float64))


def test_a_cap_holds_the_forms_that_cancel() -> None:
    """Near 0 the difference of two numbers near 1 is off by some u of 1, whatever is left."""
    x = (np.arange(1, 400) / 4096).astype(np.float32)[None]
    found = run("soft_cap", "a", 1.0, a=x)
    form = np.float32(1) - np.float32(2) / (np.exp(2 * x) + np.float32(1))
    assert (found.low <= form).all()
    assert (form <= found.high).all()
    assert (np.abs(form - np.tanh(x.astype(np.float64))) > 8 * U * x).any()
    assert (found.high - found.low <= 2 * (20 + 7) * U + 1e-12).all()


def test_a_rotation_holds_both_fused_forms_and_little_more() -> None:
    cos, sin = ONE[:, : N // 2], TWO[:, : N // 2]
    found = run("rotated", "x", "cos", "sin", "halves", x=ONE, cos=cos, sin=sin)
    a, b = ONE[:, : N // 2].astype(np.float64), ONE[:, N // 2 :].astype(np.float64)
    size = np.concatenate([np.abs(a * cos) + np.abs(b * sin), np.abs(b * cos) + np.abs(a * sin)], 1)
    assert (found.high - found.low <= 4.1 * U * size).all()
    assert (found.high - found.low >= 3.9 * U * size).all()


def test_a_sum_of_two_float32_is_exact_but_for_subnormals() -> None:
    tiny = np.float32(2.0**-130)
    one, two = (
        np.array([[1.5, tiny, -tiny, -0.0, 3.0]], np.float32),
        np.array([[2.0**-24, tiny, -tiny, -0.0, -3.0]], np.float32),
    )
    found = run("add", "a", "b", a=one, b=two)
    assert found.low[0].tolist() == [1.5, 0.0, -2 * tiny, 0.0, 0.0]
    assert found.high[0].tolist() == [1.5, 2 * tiny, 0.0, 0.0, 0.0]
    assert np.signbit(found.low[0]).tolist() == np.signbit([1.0, 1, -1, -0.0, 0]).tolist()


def test_no_rounding_changes_a_sign_and_what_is_zero_stays_so() -> None:
    value = np.array([[1e-38, -1e-38, 0.0, -0.0, np.inf, np.nan]])
    with np.errstate(invalid="ignore"):
        found = widened(exactly(value), 4 * U)
    assert found.low[0, :2].tolist() == [0.0, -1e-38 - 1e-38 * 4 * U * (1 + 2.0**-10) - 2.0**-126]
    assert found.high[0, 1] == 0.0
    assert np.signbit(found.high[0, 1])
    for end in (found.low, found.high):
        assert end[0, 2:5].tolist() == [0.0, 0.0, np.inf]
        assert np.isnan(end[0, 5])


def test_what_is_beyond_float32_is_infinite() -> None:
    found = widened(exactly(np.array([[2.0**128 - 2.0**103, 2.0**127]])), U)
    assert found.high[0, 0] == np.inf
    assert found.high[0, 1] < np.inf
    assert found.low[0, 0] == 2.0**128 - 2.0**103 - (2.0**128 - 2.0**103) * U * (1 + 2.0**-10) - 2.0**-126


def test_products_and_roundings_of_intervals_are_taken_at_their_corners() -> None:
    one, two = Ends(np.array([[-2.0]]), np.array([[3.0]])), Ends(np.array([[-5.0]]), np.array([[4.0]]))
    assert (product(one, two).low[0, 0], product(one, two).high[0, 0]) == (-15.0, 12.0)
    ends = held_in(Ends(np.array([[1 + 2.0**-9]]), np.array([[1 + 3 * 2.0**-9]])), "bfloat16")
    assert (ends.low[0, 0], ends.high[0, 0]) == (1.0, 1 + 2.0**-7)
