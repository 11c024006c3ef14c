# SPDX-License-Identifier: Apache-2.0
"""Delayed scaling, static scales and SmoothQuant against their second derivation, bit for bit; what they refuse."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from narrowgauge.contracts.errors import BadInput
from narrowgauge.reference.around import calibration, delayed, smooth
from narrowgauge.reference.quantize import quantize
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.suites.meta import second_around
from narrowgauge.suites.meta.around_sets import bits, coded, f32, numbers, random
from narrowgauge.suites.meta.second_catalogue import SECOND
from narrowgauge.suites.meta.second_derivation import decode
from narrowgauge.suites.meta.second_quantizers import divide, multiply
from narrowgauge.suites.meta.second_recipes import code, float32_bits

pytestmark = pytest.mark.meta


# --- delayed scaling -------------------------------------------------------------------------------------------------

HISTORIES = np.array(
    [
        [3, 0, 0, np.inf, np.nan, 1e-40, 7, 2.0**-149, 448, 3.3e38],
        [5, 0, 9, 1, 2, 0, np.nan, 0, 1, 1],
        [1, 0, 2, 1, 8, 0, 6, 0, 500, 2],
    ],
    np.float32,
)


@pytest.mark.parametrize("reduction", delayed.REDUCTIONS)
@pytest.mark.parametrize(("bound", "margin"), [(448, 0), (57344, 0), (448, 3), (448, -2)])
@pytest.mark.parametrize("length", [1, 3])
def test_delayed_scales_and_histories(reduction: Any, bound: int, margin: int, length: int) -> None:
    tensors = HISTORIES.shape[1]
    scales = np.linspace(0.5, 2, tensors, dtype=np.float32)
    state = delayed.State(HISTORIES[:length], scales)
    for _ in range(3):
        new = delayed.updated(state, bound, margin, reduction)
        for i in range(tensors):
            history = numbers(state.history[:, i])
            scale = second_around.next_scale(history, numbers(state.scale[i])[0], bound, margin, reduction)
            assert bits(new.scale[i]) == [float32_bits(scale)]
            moved = [float32_bits(n) for n in second_around.next_history(history)]
            assert [b if b <= 0x7F800000 else 0x7FC00000 for b in bits(new.history[:, i])] == moved
        state = new


def test_a_call_is_recorded_where_it_belongs() -> None:
    state = delayed.recorded(delayed.start(4, 2), 1, coded([[-3, 2], [np.nan, 1]]))
    assert state.history.tolist() == [[0, 3], [0, 0], [0, 0], [0, 0]]
    state = delayed.recorded(state, 1, coded([[2.0]]))  # the smaller one changes nothing
    assert state.history[0].tolist() == [0, 3]
    assert delayed.recorded(state, 0, coded(np.zeros((0, 3)))).history[0].tolist() == [0, 3]
    assert delayed.start(4, 2).scale.tolist() == [1, 1]


def test_an_infinity_holds_the_scale_until_it_has_left_the_history() -> None:
    state = delayed.start(3)
    seen = []
    for amax in (2.0, np.inf, 4.0, 4.0, 4.0):
        state = delayed.updated(delayed.recorded(state, 0, coded([[amax]])), 448)
        seen.append(float(state.scale[0]))
    assert seen == [224, 224, 224, 224, 112]


def test_delayed_elements_are_multiplied_by_the_state_s_scale() -> None:
    """On ties of the codes, where a product and a quotient by the stored reciprocal part."""
    name, scale = "transformer_engine.fp8_delayed", f32([[149.33333]])
    x = np.concatenate([np.arange(17, 33, 2), np.arange(34, 64, 4), np.arange(68, 128, 8)]).astype(np.float32) / scale
    x = np.concatenate([np.nextafter(x, np.float32(0)), x, np.nextafter(x, np.float32(9))])
    got = quantize(coded(x), RECIPES[name], "float8_e4m3fn", given={"global_scale": coded(scale)})
    (factor,), parted = numbers(scale), 0
    for element, found in zip(numbers(x), got["codes"].data.ravel(), strict=True):
        assert int(found) == code(multiply(element, factor), "float8_e4m3fn")
        parted += int(found) != code(divide(element, divide(second_around.ONE, factor)), "float8_e4m3fn")
    assert parted


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: delayed.start(0),
            r"a history \[0, 1\] and scales \[1\]; expected \[length, tensors\] of at least one",
        ),
        (lambda: delayed.State(np.ones((2, 2), np.float32), np.ones(3, np.float32)), r"expected \[length, tensors\]"),
        (lambda: delayed.updated(delayed.start(1), 448, 0, "least"), "unknown reduction 'least'"),  # type: ignore[arg-type]
        (lambda: delayed.updated(delayed.start(1), 0), "bound 0 and margin 0; expected the destination's largest"),
        (lambda: delayed.updated(delayed.start(1), 448, 2000), "margin 2000; expected"),
        (lambda: delayed.given(delayed.start(1), 0, RECIPES["vllm.fp8_group"]), "is given nothing beside x; expected"),
        (lambda: delayed.given(delayed.start(1), 0, RECIPES["vllm.int8_static_azp"]), "is given scale, zero_point"),
    ],
)
def test_delayed_scaling_refuses(make: Any, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        make()


# --- static scales ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", calibration.RULES)
@pytest.mark.parametrize("percent", [0, 100, 50, 99.9, "99.99", 12.5, Fraction(100, 3)])
@pytest.mark.parametrize("count", [1, 2, 3, 9, 257])
def test_percentiles(rule: Any, percent: Any, count: int) -> None:
    values = np.ldexp(random(count, seed=count), np.arange(count) % 40 - 20)
    batches = [coded(values[: count // 2]), coded(values[count // 2 :].reshape(1, -1))]
    part = Fraction(str(percent)) / 100
    want = second_around.percentile([second_around.exact(n) for n in numbers(values)], part, rule)
    assert bits(calibration.percentile(batches, percent, rule)) == [float32_bits(second_around.fl(want))]


@pytest.mark.parametrize("rule", calibration.RULES)
def test_percentiles_are_those_of_numpy_where_its_steps_are_exact(rule: Any) -> None:
    values = np.arange(-64, 65, dtype=np.float32) ** 2
    for percent in (0, 12.5, 25, 37.5, 50, 62.5, 99.21875, 100):
        want = np.percentile(np.abs(values).astype(np.float64), percent, method=rule)
        assert calibration.percentile([coded(values)], percent, rule) == want


def test_a_percentile_between_two_float32_is_rounded_once() -> None:
    """1 + 2^-24 is a tie, and a little above it is none: by way of float64 alone both would become 1."""
    one, next_one = np.float32(1), np.nextafter(np.float32(1), np.float32(2))
    for percent, want in ((50, one), ("50.00000000000000001", next_one), ("49.99999999999999999", one)):
        assert calibration.percentile([coded([one, next_one])], percent) == want
    after = np.nextafter(next_one, np.float32(2))  # and from an odd one the tie goes up
    for percent, want in ((50, after), ("50.00000000000000001", after), ("49.99999999999999999", next_one)):
        assert calibration.percentile([coded([next_one, after])], percent) == want


def test_a_static_scale_is_a_largest_magnitude_over_the_bound() -> None:
    batches = [coded([[1.0, -6.0]]), coded([[3.0]])]
    assert calibration.largest(batches) == 6
    for margin, factor in ((0, 1), (2, 4), (-1, Fraction(1, 2))):
        given = calibration.static_scale(np.float32(6), 448, margin)
        assert given["scale"].shape == (1, 1)
        want = divide(second_around.real(Fraction(6) * factor), second_around.real(Fraction(448)))
        assert int(given["scale"].data[0, 0]) == float32_bits(want)


@pytest.mark.parametrize(("ones", "want"), [(127 * 127 - 1, 254), (127 * 127, 254), (127 * 127 + 1, 127)])
def test_the_least_error_by_hand(ones: int, want: float) -> None:
    """254 and many ones, to int8. At scale 2 each one is a tie, goes to 0 and costs 1; at scale 1 254 costs 127^2."""
    recipe, x = RECIPES["vllm.int8_static_tensor"], [coded([[254.0]]), coded([np.ones(ones)])]
    assert calibration.least_error(x, recipe, "int8", steps=2, smallest=0.0) == want


@pytest.mark.parametrize(("seed", "steps", "smallest"), [(7, 80, 0.2), (10, 40, 0.6)])
def test_the_least_error_among_exact_ones(seed: int, steps: int, smallest: float) -> None:
    """Every candidate by the second derivation, its error by fractions."""
    name, x = "vllm.fp8_static_tensor", random(1, 48, seed=seed)
    amax, exact = np.float32(np.abs(x).max()), second_around.exact

    def error(candidate: np.float32) -> Fraction:
        scale = divide(numbers(candidate)[0], second_around.real(Fraction(448)))
        codes = SECOND[name](numbers(x), "float32", "float8_e4m3fn", {"scale": scale}).codes
        values = [exact(decode(c, "float8_e4m3fn")) * exact(scale) for c in codes]
        return sum(((exact(n) - v) ** 2 for n, v in zip(numbers(x), values, strict=True)), Fraction(0))

    tried = [np.float32(float(amax) * (1 - i * (1 - smallest) / steps)) for i in range(steps)]
    best = min(tried, key=error)
    assert best not in (tried[0], tried[-1])
    assert calibration.least_error([coded(x)], RECIPES[name], "float8_e4m3fn", steps, smallest) == best


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: calibration.largest([]), "0 batches without an element; expected at least one element"),
        (lambda: calibration.largest([coded(np.zeros((0, 3)))]), "1 batches without an element"),
        (lambda: calibration.largest([coded([1]), coded([1, np.inf])]), "batch 1 has 1 elements that are NaN or inf"),
        (lambda: calibration.largest([coded([np.nan])]), "batch 0 has 1 elements that are NaN"),
        (lambda: calibration.percentile([coded([1])], 100.1), "percentile 100.1; expected a number from 0 to 100"),
        (lambda: calibration.percentile([coded([1])], float("nan")), "percentile nan; expected"),
        (lambda: calibration.percentile([coded([1])], "many"), "percentile many; expected"),
        (lambda: calibration.percentile([coded([1])], 50, "middle"), "unknown interpolation rule 'middle'"),  # type: ignore[arg-type]
        (lambda: calibration.static_scale(np.float32(0), 448), "largest magnitude of 0, margin 0, over 448 is a scale"),
        (lambda: calibration.static_scale(np.float32(3e38), 448, 20), "is a scale of inf; expected a finite number"),
        (lambda: calibration.least_error([coded([[1]])], RECIPES["vllm.fp8_group"], "float8_e4m3fn"), "a static one"),
        (
            lambda: calibration.least_error([coded([[1]])], RECIPES["vllm.int8_static_tensor"], "int8", 0),
            "0 steps down to 0.2; expected at least one",
        ),
    ],
)
def test_calibration_refuses(make: Any, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        make()


# --- SmoothQuant -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 0.25, 0.5, 0.75, 1.0])
def test_smoothing_factors(alpha: float) -> None:
    """The two powers by exact brackets, the rest by fractions."""
    x_amax = np.array([0, 1, 2, 3, 0.1, 600, 1e-20, 1e30, 7, 2.0**-140], np.float32)
    w_amax = np.array([1, 0, 8, 3, 1e-9, 0.02, 1, 1e-5, 0.3, 5], np.float32)
    part = Fraction(alpha)
    for x, w, s in zip(x_amax, w_amax, smooth.factors(x_amax, w_amax, alpha), strict=True):
        held = max(float(w), float(np.float32(1e-5)))
        up, down = (smooth._power(f32([v]), e)[0] for v, e in ((x, alpha), (held, 1 - alpha)))
        assert second_around.is_nearest_power(numbers(up)[0], Fraction(float(x)), part)
        assert second_around.is_nearest_power(numbers(down)[0], Fraction(held), 1 - part)
        quotient = divide(numbers(up)[0], numbers(down)[0])
        want = max(second_around.exact(quotient), Fraction(float(np.float32(1e-5))))
        assert second_around.exact(numbers(s)[0]) == want


def test_a_channel_without_x_and_one_without_weights() -> None:
    s = smooth.factors(f32([0, 4]), f32([9, 0]))
    assert s.tolist() == [np.float32(1e-5), np.float32(2) / np.float32(np.sqrt(np.float64(np.float32(1e-5))))]
    assert np.isnan(smooth.factors(f32([np.nan, 1]), f32([1, np.nan]))).all()


def test_channels_are_columns() -> None:
    assert smooth.channel_amax(coded([[1, -5, np.nan], [3, 2, 0]])).tolist()[:2] == [3, 5]
    assert np.isnan(smooth.channel_amax(coded([[1, np.nan]]))[1])
    assert smooth.channel_amax(coded(np.zeros((0, 2)))).tolist() == [0, 0]


def test_migrated_and_smoothed_elements() -> None:
    x, w, s = random(3, 5), random(4, 5, seed=2), np.abs(random(5, seed=3)) + np.float32(0.1)
    turned, weights = smooth.migrated(coded(x), coded(w), s)
    products = smooth.smoothed(coded(x), s)
    for column, factor in enumerate(numbers(s)):
        for got, matrix, step in (
            (turned, x, divide),
            (weights, w, multiply),
            (products, x, multiply),
        ):
            want = [float32_bits(step(n, factor)) for n in numbers(matrix[:, column])]
            assert [int(b) for b in got.data[:, column]] == want


def test_the_smoothed_rows_go_into_a_recipe() -> None:
    """Row by row as the kernel does it: x times the factor, then the largest magnitude, seeded."""
    x, factor = random(4, 32), np.abs(random(32, seed=5))
    x[3] = 0
    recipe = RECIPES["aiter.fp8_hip_smooth"]
    got = quantize(smooth.smoothed(coded(x), factor), recipe, "float8_e4m3fnuz")
    for row in range(4):
        block = [multiply(a, b) for a, b in zip(numbers(x[row]), numbers(factor), strict=True)]
        answer = SECOND[recipe.name](block, "float32", "float8_e4m3fnuz", {})
        assert [int(c) for c in got["codes"].data[row]] == answer.codes
        assert int(got["scale"].data[row, 0]) == answer.scale


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: smooth.channel_amax(coded([1, 2])), r"a matrix of shape \[2\]; expected \[rows, channels\]"),
        (lambda: smooth.factors(np.ones(2, np.float32), np.ones(3, np.float32)), r"of \[2\] and \[3\]; expected"),
        (lambda: smooth.factors(np.ones(2, np.float32), np.ones(2, np.float32), 1.5), "alpha 1.5; expected 0 "),
        (lambda: smooth.factors(f32([-1]), np.ones(1, np.float32)), "a negative largest magnitude"),
        (lambda: smooth.smoothed(coded([[1, 2]]), np.ones(3, np.float32)), r"\[1, 2\] and factors \[3\]; expected one"),
        (lambda: smooth.migrated(coded([[1]]), coded([[1, 2]]), np.ones(1, np.float32)), r"a matrix \[1, 2\]"),
    ],
)
def test_smoothing_refuses(make: Any, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        make()
