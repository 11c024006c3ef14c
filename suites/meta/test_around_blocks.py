# SPDX-License-Identifier: Apache-2.0
"""Rotations, zero points, padding and four over six against their second derivation; what they refuse."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.recipe import TENSOR, Blocks
from narrowgauge.reference.around import four_over_six, hadamard, padding, zero_points
from narrowgauge.reference.fast_codec import decode_values, to_float32
from narrowgauge.reference.quantize import quantize
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.suites.meta import second_around
from narrowgauge.suites.meta.around_sets import F32, as_bfloat16, bits, coded, f32, numbers, random
from narrowgauge.suites.meta.second_catalogue import SECOND
from narrowgauge.suites.meta.second_derivation import LAYOUTS, decode
from narrowgauge.suites.meta.second_recipes import float32_bits

pytestmark = pytest.mark.meta


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
        (lambda: hadamard.vllm_signs(96), "signs of 96 elements are not recorded; known: 16, 32, 64, 128, 256"),
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
    x[10, 0], x[11] = 40.0, np.resize(f32([-6.5, 8.5, 0.5, 1.5]), count)
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
        padding.quantize_padded(coded(random(2, 3)), RECIPES["compressed_tensors.int4_group_asymmetric"], "int4")


# --- four over six ---------------------------------------------------------------------------------------------------


def _fours(rows: int) -> F32:
    """Blocks of 16 on which 6 is better, 4 is, both are alike, none counts."""
    x = random(rows, 16, seed=11)
    x[0], x[1] = 0.0, np.resize(f32([6, 3, 1.5, 0.5]), 16)
    x[2], x[3] = np.resize(f32([4, 3, 2, 1]), 16), np.resize(f32([6, 5, 5, -5]), 16)
    x[4], x[5] = 2.0, x[5] * np.float32(1e-7)
    x[6] = 5 * 2.0**-10  # of a global scale 1: the scale at 6 is 0, and that at 4 the least
    return x


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("scale", [1.0, 37.3, 0.01])
def test_four_over_six_block_by_block(threads: int, scale: float) -> None:
    x = as_bfloat16(_fours(64))
    given = {"global_scale": coded([[scale]])}
    got = four_over_six.quantize_4over6(x, given, threads)
    six_codes = quantize(x, four_over_six.SIX, four_over_six.FORMAT, given=given)["codes"]
    errors, taken = four_over_six.errors(x, six_codes, four_over_six.SIX, given, threads), set()
    for row in range(64):
        block = [decode(int(c), "bfloat16") for c in x.data[row]]
        want = second_around.four_over_six(block, numbers(scale)[0], threads)
        assert [int(c) for c in got["codes"].data[row]] == want.codes
        assert int(got["scale"].data[row, 0]) == want.scale
        six = second_around.candidate(block, numbers(scale)[0], 6, threads)
        taken.add(six.scale == want.scale)
        assert bits(errors[row]) == [float32_bits(six.error)]
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
