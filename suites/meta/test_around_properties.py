# SPDX-License-Identifier: Apache-2.0
"""What must hold of functions around recipes, whatever the data."""

from __future__ import annotations

import doctest
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.recipe import Blocks
from narrowgauge.reference.around import calibration, delayed, four_over_six, hadamard, padding, smooth, zero_points
from narrowgauge.reference.fast_codec import decode_values, to_float32
from narrowgauge.reference.noise import noise
from narrowgauge.reference.quantize import quantize
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.suites.meta.around_sets import F32, coded

pytestmark = pytest.mark.meta

seeds = st.integers(0, 10**6)


def random(seed: int, *shape: int) -> F32:
    """Rows of about 2^-8 to 2^7 in magnitude."""
    power = np.ldexp(np.float32(1), np.arange(shape[0]) % 16 - 8)[:, None]
    return np.asarray(noise(int(np.prod(shape)), seed).reshape(shape) * power, np.float32)


@given(seeds, st.integers(0, 8), st.integers(1, 3))
def test_the_transform_is_orthogonal(seed: int, power: int, blocks: int) -> None:
    """b times x comes back: exact, since sums of b = 2^power whole numbers up to 2^7 stay below 2^24 both ways."""
    size = 2**power * (blocks if blocks != 2 else 1)
    x = np.rint(np.clip(random(seed, 4, size), -128, 128))
    signs = np.where(noise(size, seed + 1) > 0, 1, -1).astype(np.float32)
    turned = hadamard.transformed(coded(x), signs)
    back = to_float32(hadamard.transformed(turned, signs, inverse=True))
    assert (back == x * hadamard.block_size(size)).all()
    energy = (to_float32(turned).astype(np.float64) ** 2).sum(axis=1)
    assert (energy == hadamard.block_size(size) * (x.astype(np.float64) ** 2).sum(axis=1)).all()


@given(seeds, st.lists(st.integers(-20, 20), min_size=1, max_size=8))
def test_smoothing_leaves_the_product(seed: int, powers: list[int]) -> None:
    """By powers of two nothing is rounded: each x times w is the same number after as before."""
    x, w = random(seed, 3, len(powers)), random(seed + 1, 2, len(powers))
    s = np.ldexp(np.float32(1), np.array(powers))
    turned, weights = (to_float32(c).astype(np.float64) for c in smooth.migrated(coded(x), coded(w), s))
    assert (turned[:, None] * weights[None] == x.astype(np.float64)[:, None] * w.astype(np.float64)[None]).all()


@given(seeds)
def test_factors_balance_the_two_at_one_half(seed: int) -> None:
    """alpha = 1/2 and powers of four: x and w have the same largest magnitude in every channel, exactly."""
    powers = (noise(2 * 6, seed).reshape(2, 6) * 4).astype(np.int32)
    x_amax, w_amax = np.ldexp(np.float32(1), 2 * powers)
    x_amax, w_amax = np.maximum(x_amax, 2.0**-6), np.maximum(w_amax, np.float32(2.0**-6))
    x_after, w_after = smooth.migrated(coded([x_amax]), coded([w_amax]), smooth.factors(x_amax, w_amax))
    assert x_after.data.tolist() == w_after.data.tolist()


@given(seeds, st.sampled_from(["max", "most_recent"]), st.integers(1, 5), st.integers(1, 4))
def test_a_constant_history_is_the_dynamic_recipe(seed: int, reduction: Any, length: int, calls: int) -> None:
    """Transformer Engine's current scaling takes 448 / amax and its reciprocal too, at once."""
    x = coded(random(seed, 3, 20))
    state = delayed.start(length)
    for _ in range(calls):
        state = delayed.updated(delayed.recorded(state, 0, x), 448, 0, reduction)
    recipe = RECIPES["transformer_engine.fp8_delayed"]
    late = quantize(x, recipe, "float8_e4m3fn", given=delayed.given(state, 0, recipe))
    now = quantize(x, RECIPES["transformer_engine.fp8_current"], "float8_e4m3fn")
    for name in ("codes", "scale"):
        assert late[name].data.tolist() == now[name].data.tolist()
    static = RECIPES["vllm.fp8_static_tensor"]
    assert delayed.given(state, 0, static)["scale"].data.tolist() == now["scale"].data.tolist()


@given(seeds, st.integers(1, 60))
def test_a_margin_moves_the_scale_and_not_the_mantissa(seed: int, margin: int) -> None:
    x = coded(random(seed, 2, 9))
    state = delayed.recorded(delayed.start(2), 0, x)
    plain, moved = (delayed.updated(state, 448, m).scale for m in (0, margin))
    assert np.ldexp(moved, margin).tolist() == plain.tolist()
    static, wide = (to_float32(calibration.static_scale(np.float32(3), 448, m)["scale"]) for m in (0, margin))
    assert wide.tolist() == np.ldexp(static, margin).tolist()


@given(seeds, st.integers(1, 40), st.lists(st.floats(0, 100), min_size=2, max_size=6))
def test_percentiles_never_fall(seed: int, count: int, percents: list[float]) -> None:
    x = [coded(random(seed, 1, count))]
    for rule in ("lower", "linear", "higher"):
        found = [calibration.percentile(x, p, rule) for p in (0, *sorted(percents), 100)]
        assert found == sorted(found)
        assert found[-1] == calibration.largest(x)
    for p in percents:
        low, middle, high = (calibration.percentile(x, p, rule) for rule in ("lower", "linear", "higher"))
        assert low <= middle <= high


@given(seeds, st.sampled_from([1.0, 3.7, 0.05]), st.sampled_from([1, 2]))
def test_the_closer_candidate_is_taken(seed: int, scale: float, threads: int) -> None:
    x, beside = coded(random(seed, 16, 32)), {"global_scale": coded([[scale]])}
    done = four_over_six.quantize_4over6(x, beside, threads)
    both = {r: quantize(x, r, four_over_six.FORMAT, given=beside) for r in (four_over_six.SIX, four_over_six.FOUR)}
    six, four = (four_over_six.errors(x, out["codes"], r, beside, threads) for r, out in both.items())
    first, second = (out["scale"].data for out in both.values())
    assert (done["scale"].data == np.where(four < six, second, first)).all()
    wide = np.repeat(four < six, 16, axis=1)
    codes = [out["codes"].data for out in both.values()]
    assert (done["codes"].data == np.where(wide, codes[1], codes[0])).all()


@given(seeds, st.integers(1, 40), st.integers(1, 40), st.integers(0, 9), st.integers(0, 9))
def test_padding_is_what_ragged_blocks_do(seed: int, rows: int, columns: int, down: int, across: int) -> None:
    x = coded(random(seed, rows, columns))
    recipe = replace(RECIPES["vllm.fp8_group_triton"], blocks=Blocks(down, across))
    ragged = quantize(x, replace(recipe, blocks=Blocks(down, across, ragged=True)), "float8_e4m3fn")
    for name, output in padding.quantize_padded(x, recipe, "float8_e4m3fn").items():
        assert output.data.tolist() == ragged[name].data.tolist()


@given(seeds, st.sampled_from(["int8_token_asymmetric", "int4_group_asymmetric"]))
def test_zero_is_a_code(seed: int, name: str) -> None:
    """compressed-tensors has 0 within every range: it becomes the zero point, and comes back as 0."""
    recipe = RECIPES[f"compressed_tensors.{name}"]
    x = random(seed, 4, 128) + np.float32(seed % 7 - 3)
    x[:, 5] = 0
    done = quantize(coded(x), recipe, recipe.destinations[0].format)
    zero = np.broadcast_to(decode_values(done["zero_point"]), (4, 1))
    assert (decode_values(done["codes"])[:, 5:6] == zero).all()


@given(st.integers(0, 0x7F7FFFFF), st.integers(0, 15))
def test_a_hidden_zero_point_is_found(scale: int, zero: int) -> None:
    """And the scale has lost at most 15 of its last units."""
    stored = zero_points.hidden(
        Coded("float32", np.array([[scale]], np.uint32)), Coded("int32", np.array([[zero]], np.uint32))
    )
    found, again = zero_points.revealed(stored)
    assert int(again.data[0, 0]) == zero
    assert 0 <= scale - int(found.data[0, 0]) <= 15


def test_the_page_s_examples_give_what_they_print() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "around.md"
    found = doctest.testfile(str(page), module_relative=False)
    assert found.attempted > 20
    assert found.failed == 0
