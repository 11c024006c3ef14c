# SPDX-License-Identifier: Apache-2.0
"""What goes around recipes against its second derivation, bit for bit; and what each function refuses."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.recipe import TENSOR, Blocks
from narrowgauge.reference.around import calibration, delayed, four_over_six, hadamard, padding, smooth, zero_points
from narrowgauge.reference.fast_codec import decode_values, to_float32
from narrowgauge.reference.inputs import noise
from narrowgauge.reference.quantize import quantize
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.suites.meta import second_around
from narrowgauge.suites.meta.second_derivation import LAYOUTS, Number, decode
from narrowgauge.suites.meta.second_quantizers import divide, multiply
from narrowgauge.suites.meta.second_recipes import SECOND, float32_bits

pytestmark = pytest.mark.meta

F32 = npt.NDArray[np.float32]


def f32(values: Any) -> F32:
    return np.array(values, np.float32)


def coded(values: Any) -> Coded:
    return Coded("float32", np.ascontiguousarray(values, np.float32).view(np.uint32))


def as_bfloat16(values: F32) -> Coded:
    """Cut, which any bfloat16 may be."""
    return Coded("bfloat16", (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16))


def numbers(values: Any) -> list[Number]:
    return [decode(int(b), "float32") for b in np.ascontiguousarray(values, np.float32).view(np.uint32).ravel()]


def bits(values: Any) -> list[int]:
    return [int(b) for b in np.ascontiguousarray(values, np.float32).view(np.uint32).ravel()]


def random(*shape: int, seed: int = 1) -> F32:
    return noise(int(np.prod(shape)), seed).reshape(shape).astype(np.float32)


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
    recipe = RECIPES["aiter.fp8_hip_smooth_token"]
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


# --- Hadamard --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 8, 64, 96, 12, 7])
@pytest.mark.parametrize("inverse", [False, True])
def test_butterflies_are_the_matrix(size: int, inverse: bool) -> None:
    """Whole numbers, on which every step is exact."""
    x = np.rint(random(3, size) * 50).astype(np.float32)
    signs = np.where(random(size, seed=4) > 0, 1, -1).astype(np.float32)
    block = next(b for b in (64, 32, 16, 8, 4, 2, 1) if size % b == 0)
    assert hadamard.block_size(size) == block
    got = to_float32(hadamard.transformed(coded(x), signs, inverse))
    for row in range(3):
        whole = [Fraction(int(v)) for v in x[row]]
        ones = [int(s) for s in signs]
        plain = second_around.by_matrix(whole, [1] * size, block)
        want = (
            [s * v for s, v in zip(ones, plain, strict=True)]
            if inverse
            else second_around.by_matrix(whole, ones, block)
        )
        assert got[row].tolist() == [float(v) for v in want]


def test_butterflies_are_rounded_from_the_inside_out() -> None:
    x = random(2, 32, seed=9)
    got = hadamard.transformed(coded(x), np.ones(32, np.float32))
    for row in range(2):
        want = [float32_bits(n) for n in second_around.by_halves(numbers(x[row]))]
        assert [int(b) for b in got.data[row]] == want


def test_the_signs_are_vllm_s() -> None:
    """The recorded digest and sum of 128 of them."""
    signs = hadamard.vllm_signs(128)
    assert hashlib.sha256((signs > 0).astype(np.uint8).tobytes()).hexdigest().startswith("c9e8e78c3a9941f1")
    assert signs.sum() == -10
    assert hadamard.vllm_signs(64).tolist() == signs[:64].tolist()


def test_rotated_heads_are_rounded_to_bfloat16() -> None:
    """Sums of whole numbers beyond 256 need it: 257 lies between 256 and 258, and goes to the even one."""
    x = coded([[257.0, 0.0], [259.0, 0.0]])
    got = hadamard.rotated_heads(x, np.ones(2, np.float32))
    assert got.format == "bfloat16"
    assert decode_values(got).tolist() == [[256, 256], [260, 260]]


def test_a_head_of_one_sign_collapses() -> None:
    """A known failure of the engine: a vector c * e_0 becomes constant, its range 0, and is read as nothing."""
    x = np.zeros((1, 128), np.float32)
    x[0, 0] = 100
    rotated = hadamard.rotated_heads(coded(x), hadamard.vllm_signs(128))
    done = quantize(rotated, RECIPES["vllm.int4_per_token_head"], "uint4")
    (scale,), (zero,) = to_float32(done["scale"])[0], decode_values(done["zero_point"])[0]
    values = (decode_values(done["codes"]) - zero) * scale
    back = to_float32(hadamard.transformed(coded(values), hadamard.vllm_signs(128), inverse=True)) / 128
    assert scale == np.float32(1e-6)
    assert np.linalg.norm(back - x) / np.linalg.norm(x) > 0.999


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: hadamard.vllm_signs(96), "signs of 96 elements are not recorded; known: 64, 128, 256"),
        (lambda: hadamard.block_size(0), "a head of 0 elements; expected at least one"),
        (lambda: hadamard.transformed(coded([[1, 2]]), np.ones(4, np.float32)), r"x \[1, 2\] and signs \[4\]"),
        (lambda: hadamard.transformed(coded([[1, 2]]), f32([1, 0])), r"signs other than \+1 and -1"),
    ],
)
def test_rotating_refuses(make: Any, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        make()


# --- zero points -----------------------------------------------------------------------------------------------------


def _ranges(count: int) -> F32:
    """Blocks of many kinds: of one sign, symmetric, far from zero, constant, zero, tiny."""
    x = random(12, count, seed=7)
    x[1], x[2], x[3] = np.abs(x[1]), -np.abs(x[2]), x[3] + np.float32(100)
    x[4], x[5], x[6] = 3.0, 0.0, x[6] * np.float32(1e-9)
    x[7], x[8], x[9] = np.float32(-2.5), x[8] * np.float32(1e6), np.rint(x[9] * 4)
    x[10, 0], x[11] = 40.0, np.resize(f32([-7.5, 7.5, 0.5, 1.5]), count)
    return x


@pytest.mark.parametrize("name", second_around.ASYMMETRIC)
def test_recipes_with_zero_points(name: str) -> None:
    recipe = replace(RECIPES[name], blocks=Blocks(1, 16))
    format_name = recipe.destinations[0].format
    x = _ranges(16)
    got = quantize(coded(x), recipe, format_name)
    for row in range(len(x)):
        want = second_around.ASYMMETRIC[name](numbers(x[row]))
        assert bits(got["scale"].data[row].view(np.float32)) == [float32_bits(want.scale)]
        assert decode_values(got["zero_point"])[row].tolist() == [want.zero_point]
        assert decode_values(got["codes"])[row].tolist() == want.codes


@pytest.mark.parametrize("name", [*second_around.ASYMMETRIC, "vllm.int8_per_token_dynamic_azp"])
def test_a_calibrated_zero_point_is_the_dynamic_one(name: str) -> None:
    """Where the batches are the tensor, block by block; and the static recipe then gives vLLM's dynamic codes."""
    recipe, x = RECIPES[name], _ranges(32)[[0, 1, 2, 3, 8, 9, 10, 11]]
    for row in x:
        one = coded(row.reshape(1, -1))
        dynamic = quantize(one, replace(recipe, blocks=TENSOR), recipe.destinations[0].format)
        given = zero_points.from_range(*zero_points.observed([one]), recipe)
        assert given.keys() == {"scale", "zero_point"}
        for output, value in given.items():
            assert value.data.tolist() == dynamic[output].data.tolist()
        if name == "vllm.int8_per_token_dynamic_azp":
            static = quantize(one, RECIPES["vllm.int8_static_azp"], "int8", given=given)
            assert static["codes"].data.tolist() == dynamic["codes"].data.tolist()


def test_observed_ends() -> None:
    low, high = zero_points.observed([coded([[3, np.nan]]), coded([-1, 2])])
    assert (low.tolist(), high.tolist()) == ([[-1]], [[3]])


def test_a_zero_point_hides_in_its_scale() -> None:
    scale, zero = coded([[1 / 3, 2.0]]), Coded("int32", np.array([[11, 0]], np.uint32))
    stored = zero_points.hidden(scale, zero)
    for word, before, low in zip(stored.data[0], scale.data[0], (11, 0), strict=True):
        assert struct.pack("<I", word)[1:] == struct.pack("<I", before)[1:]
        assert (int(word) % 16, int(word) % 256 // 16) == (low, int(before) % 256 // 16)
    back, again = zero_points.revealed(stored)
    assert again.data.tolist() == zero.data.tolist()
    assert back.data.tolist() == [[int(scale.data[0, 0]) // 16 * 16, int(scale.data[0, 1])]]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: zero_points.from_range(np.ones((1, 1), np.float32), np.ones((1, 1), np.float32), RECIPES["ocp.mxfp4"]),
         "makes none of a smallest"),
        (lambda: zero_points.from_range(np.ones((1, 1), np.float32), np.zeros((1, 1), np.float32),
                                        RECIPES["vllm.int4_per_token_head"]), "none smallest above its largest"),
        (lambda: zero_points.from_range(np.ones((1, 2), np.float32), np.ones((2, 1), np.float32),
                                        RECIPES["vllm.int4_per_token_head"]), r"\[1, 2\] and largest \[2, 1\]"),
        (lambda: zero_points.observed([coded([np.nan])]), "1 batches without a number"),
        (lambda: zero_points.hidden(coded([1.0]), Coded("int32", np.array([16], np.uint32))), "not within 0 to 15"),
    ],
)  # fmt: skip
def test_zero_points_refuse(make: Any, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        make()


# --- padding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1), (3, 129), (4, 128), (7, 40), (130, 5)])
@pytest.mark.parametrize("name", ["vllm.fp8_group", "vllm.fp8_block", "ocp.mxfp4", "aiter.fp8_hip_token"])
def test_padded_blocks_are_the_real_elements_alone(name: str, shape: tuple[int, int]) -> None:
    """Each block by the second derivation, which is handed only what is in the matrix."""
    recipe = RECIPES[name]
    format_name, x = recipe.destinations[0].format, random(*shape, seed=3)
    got = padding.quantize_padded(coded(x), recipe, format_name)
    rows, columns = recipe.blocks.rows or shape[0], recipe.blocks.columns or shape[1]
    assert got["codes"].shape == shape
    assert got["scale"].shape == (-(-shape[0] // rows), -(-shape[1] // columns))
    for (i, j), scale in np.ndenumerate(got["scale"].data):
        part = slice(i * rows, i * rows + rows), slice(j * columns, j * columns + columns)
        answer = SECOND[name](numbers(x[part]), "float32", format_name, {})
        assert [int(c) % LAYOUTS[format_name].codes for c in got["codes"].data[part].ravel()] == answer.codes
        assert int(scale) == answer.scale


def test_what_needs_no_padding_is_left_alone() -> None:
    x = coded(random(2, 64))
    assert padding.padded(x, Blocks(1, 32)) is x
    assert padding.padded(x, Blocks(0, 0)) is x
    assert padding.padded(x, Blocks(3, 50)).shape == (3, 100)
    assert not padding.padded(x, Blocks(3, 50)).data[2:].any()
    assert not padding.padded(x, Blocks(3, 50)).data[:, 64:].any()


def test_padding_refuses() -> None:
    with pytest.raises(BadInput, match=r"padding: x has shape \[2\]"):
        padding.padded(coded([1, 2]), TENSOR)
    with pytest.raises(BadInput, match="looks at the smallest and the largest element"):
        padding.quantize_padded(coded(random(2, 3)), RECIPES["compressed_tensors.int4_asymmetric_group"], "int4")


# --- four over six ---------------------------------------------------------------------------------------------------


def _fours(rows: int) -> F32:
    """Blocks of 16 on which 6 is better, 4 is, both are alike, none counts."""
    x = random(rows, 16, seed=11)
    x[0], x[1] = 0.0, np.resize(f32([6, 3, 1.5, 0.5]), 16)
    x[2], x[3] = np.resize(f32([4, 3, 2, 1]), 16), np.resize(f32([6, 5, 5, -5]), 16)
    x[4], x[5] = 2.0, x[5] * np.float32(1e-7)
    return x


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("scale", [1.0, 37.3, 0.01])
def test_four_over_six_block_by_block(threads: int, scale: float) -> None:
    x = as_bfloat16(_fours(64))
    given = {"global_scale": coded([[scale]])}
    got = four_over_six.quantize_4over6(x, given, threads)
    taken = set()
    for row in range(64):
        block = [decode(int(c), "bfloat16") for c in x.data[row]]
        want = second_around.four_over_six(block, numbers(scale)[0], threads)
        assert [int(c) for c in got["codes"].data[row]] == want.codes
        assert int(got["scale"].data[row, 0]) == want.scale
        six = second_around.candidate(block, numbers(scale)[0], 6, threads)
        taken.add(six.scale == want.scale)
    assert taken == {True, False}


def test_equal_errors_leave_six() -> None:
    """A block of zeros, and one on which both candidates are exact: scale code 1 / 6 is no E4M3, 1.5 and 1 are."""
    given = {"global_scale": coded([[1.0]])}
    x = np.zeros((2, 16), np.float32)
    x[1] = np.resize(f32([6, -3, 0, 1.5]), 16)  # 6 = 6 * 1 = 4 * 1.5; 3 = 3 * 1 = 2 * 1.5; 1.5 = 1.5 * 1 = 1 * 1.5
    done = four_over_six.quantize_4over6(coded(x), given)
    assert done["scale"].data[:, 0].tolist() == [0, 0x38]
    assert decode_values(done["codes"])[1].tolist() == x[1].tolist()


def test_an_error_that_is_nan_leaves_six() -> None:
    x = f32(_fours(8))
    x[2, 3] = np.nan  # the row on which 4 is better
    given = {"global_scale": coded([[1.0]])}
    done = four_over_six.quantize_4over6(coded(x), given)
    six = quantize(coded(x), four_over_six.SIX, four_over_six.FORMAT, given=given)
    assert done["scale"].data[2].tolist() == six["scale"].data[2].tolist()
    clean = four_over_six.quantize_4over6(coded(_fours(8)), given)
    assert clean["scale"].data[2].tolist() != six["scale"].data[2].tolist()


def test_four_over_six_refuses() -> None:
    with pytest.raises(BadInput, match="3 threads to a block; expected 1 or 2"):
        four_over_six.quantize_4over6(coded(np.zeros((1, 16))), {"global_scale": coded([[1.0]])}, 3)
    with pytest.raises(BadInput, match="nothing of that name came"):
        four_over_six.quantize_4over6(coded(np.zeros((1, 16))), {})
