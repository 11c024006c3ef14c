# SPDX-License-Identifier: Apache-2.0
"""Properties of every recipe of the catalogue, as its steps imply them: recipe_properties.py has what is declared."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.fast_codec import decode_values, to_float32
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.suites.meta.recipe_data import COLUMNS, F32, ROWS, amax, data, edges, matrices
from narrowgauge.suites.meta.recipe_properties import NOT_IDEMPOTENT, NOT_SYMMETRIC, SUBJECTS, Subject

pytestmark = pytest.mark.meta

each = pytest.mark.parametrize("subject", SUBJECTS, ids=str)
few = settings(max_examples=settings().max_examples // 5)  # of 25, or of a night's 1,000: recipes are many
NO_BOUND = Coded("float32", np.array([[0x7F800000]], np.uint32))
seeds = st.integers(0, 10**6)


def far_from_a_power(subject: Subject, x: F32) -> bool:
    """Whether no block's scale lies within 2^-16 above a power of two, where a logarithm in float32 may drop it."""
    mantissa = np.frexp(amax(subject, x) / subject.destination.bound)[0] * 2
    return not bool(((mantissa > 1) & (mantissa < 1 + 2.0**-16)).any())


def clear_of_ties(subject: Subject, x: F32) -> bool:
    """Whether no zero point lies within 2^-10 of a tie, where its rounding and that of the elements may part."""
    done = subject.run(x)
    if "zero_point" not in done:
        return True
    low = x.reshape(1, -1) if subject.recipe.blocks.rows == 0 else x
    width = subject.recipe.blocks.columns or low.shape[1]
    least = low.reshape(low.shape[0], -1, width).min(axis=2).astype(np.float64)
    way = least / to_float32(done["scale"]) % 1
    return bool((np.abs(way - 0.5) > 2.0**-10).all())


# --- scales and powers of two ----------------------------------------------------------------------------------------


@each
@few
@given(seeds, st.integers(-60, 60))
def test_scales_follow_a_power_of_two_and_codes_stay(subject: Subject, seed: int, k: int) -> None:
    """From the recipe's floor on, which is read off its steps; k is brought above it."""
    x = data(seed)
    assume(not subject.by_logarithm or far_from_a_power(subject, x))
    if subject.floor:
        least = min(amax(subject, x).min(), to_float32(subject.given().get("upper_bound", NO_BOUND)).item())
        k = max(k, int(np.ceil(np.log2(subject.floor * (1 + 2.0**-20) / least))))
    before, after = subject.run(x), subject.run(np.ldexp(x, k), k)
    assert after["codes"].data.tolist() == before["codes"].data.tolist()
    for name in before.keys() - {"codes"}:
        numbers = [decode_values(run[name]) for run in (before, after)]
        assert numbers[1].tolist() == np.ldexp(numbers[0], k * subject.follows(name)).tolist(), name


@pytest.mark.parametrize("subject", [s for s in SUBJECTS if s.floor], ids=str)
def test_below_its_floor_a_scale_stays(subject: Subject) -> None:
    """Else the floor that was read off the steps would be too high. An 8th of it, since a scale of a range is of 2 amax
    at most; and at the floor's double the scale has left it."""
    x = data(3)
    top = float(amax(subject, x).max())
    low, lower, high = (
        subject.run(np.asarray(x / top * subject.floor * part, np.float32))["scale"].data for part in (0.125, 0.0625, 4)
    )
    assert len(np.unique(low)) == 1
    assert low.tolist() == lower.tolist()
    assert high.max() > low.max()


def test_a_logarithm_in_float32_swallows_what_lies_above_a_power_of_two() -> None:
    """1 ulp above 2^-5 it is gone, 1 ulp above 2^-1 it is not: there the codes of 2^-4 times x are others.

    The half ulp of log2 is 2^-22 near -5, and 2^-24 near -1; an ulp is 1.44 * 2^-23 of it.
    """
    by_logarithm = {s.recipe.name for s in SUBJECTS if s.by_logarithm}
    assert by_logarithm == {
        "vllm.fp8_native_group_ue8m0", "vllm.fp8_group_ue8m0", "vllm.fp8_group_triton_ue8m0", "vllm.fp8_block_ue8m0",
        "vllm.mxfp8_torch", "vllm.mxfp8_triton", "sglang.mxfp8_kv", "modelopt.mxfp8",
    }  # fmt: skip
    subject = next(s for s in SUBJECTS if s.recipe.name == "modelopt.mxfp8")
    x = np.full((1, 32), np.nextafter(np.float32(448), np.float32(500)), np.float32)
    small, large = (decode_values(subject.run(np.ldexp(x, k))["scale"])[0, 0] for k in (-5, -1))
    assert (small, large) == (2.0**-5, 1.0)


# --- once more -------------------------------------------------------------------------------------------------------


def again(subject: Subject, x: F32) -> tuple[dict[str, Coded], dict[str, Coded]]:
    """A run, and the run of what a reader gets of it, rounded to float32."""
    first = subject.run(x)
    return first, subject.run(subject.values(first).astype(np.float32))


@pytest.mark.parametrize("subject", [s for s in SUBJECTS if s.recipe.name not in NOT_IDEMPOTENT], ids=str)
@few
@given(seeds)
def test_what_was_dequantized_is_quantized_to_itself(subject: Subject, seed: int) -> None:
    """The same codes and a scale that is the same but for roundings: the largest element took the largest code, or of a
    power of two a code of the upper binade.

    A power of two that was rounded up may come back as its half: then codes are doubled, and the values are the same.
    """
    x = data(seed)
    assume(clear_of_ties(subject, x))
    first, second = again(subject, x)
    if subject.power_of_two:
        assert subject.values(second).tolist() == subject.values(first).tolist()
        return
    assert second["codes"].data.tolist() == first["codes"].data.tolist()
    for name in first.keys() - {"codes"}:
        before, after = decode_values(first[name]), decode_values(second[name])
        part = subject.slack if first[name].format == "float32" else 0
        assert (np.abs(after - before) <= part * np.abs(before)).all(), name


@pytest.mark.parametrize("name", NOT_IDEMPOTENT)
def test_recipes_that_are_not_idempotent(name: str) -> None:
    """Each on some data; an entry that is none is an error."""
    for subject in (s for s in SUBJECTS if s.recipe.name == name):
        changed = set()
        for seed in range(8):
            first, second = again(subject, data(seed))
            before, after = decode_values(first["scale"]), decode_values(second["scale"])
            if second["codes"].data.tolist() != first["codes"].data.tolist():
                changed.add("codes")
            if (np.abs(after - before) > subject.slack * before).any():
                changed.add("scale")
        assert changed, NOT_IDEMPOTENT[name]


def test_a_scale_that_is_rounded_up_may_come_back_as_its_half() -> None:
    """230 of scale 1 becomes 224, which scale 1/2 holds as 448: why codes need not stay there."""
    subject = next(s for s in SUBJECTS if str(s) == "nvidia.mxfp8_e4m3-float8_e4m3fn")
    first, second = again(subject, np.full((1, 32), 230, np.float32))
    assert (decode_values(first["scale"])[0, 0], decode_values(second["scale"])[0, 0]) == (1, 0.5)
    assert (decode_values(first["codes"])[0, 0], decode_values(second["codes"])[0, 0]) == (224, 448)


# --- order and sign --------------------------------------------------------------------------------------------------


@each
@few
@given(seeds)
def test_codes_are_in_the_order_of_their_elements(subject: Subject, seed: int) -> None:
    """Within a block, all steps rise. Columns of 1 to 256 and rows of 128 share scales: sorted along what is shared."""
    x = data(seed)
    numbers = subject.numbers(subject.run(x))
    blocks = subject.recipe.blocks
    rows, columns = blocks.rows or ROWS, blocks.columns or COLUMNS
    for top in range(0, ROWS, rows):
        for left in range(0, COLUMNS, columns):
            part = slice(top, top + rows), slice(left, left + columns)
            order = np.argsort(x[part], axis=None, kind="stable")
            found = numbers[part].ravel()[order]
            assert (np.diff(found) >= 0).all()


@pytest.mark.parametrize("subject", [s for s in SUBJECTS if not s.recipe.inputs], ids=str)
@few
@given(seeds)
def test_a_larger_magnitude_has_no_smaller_scale(subject: Subject, seed: int) -> None:
    """The largest of every block is made larger, from one ulp to 2^9 times; a tensor's own scale divides by it."""
    x = data(seed)
    where = np.abs(x) == amax(subject, x)
    steps = []
    for factor in (1, 1 + 2.0**-23, 1 + 2.0**-10, 1.25, 1.75, 2, 448, 512):
        grown = np.where(where, (x * np.float32(factor)).astype(np.float32), x)
        steps.append(subject.step(subject.run(grown)))
    assert all((after >= before * (1 - subject.slack)).all() for before, after in pairwise(steps))
    assert (steps[-1] > steps[0]).all()


@pytest.mark.parametrize("subject", [s for s in SUBJECTS if s.recipe.name not in NOT_SYMMETRIC], ids=str)
@few
@given(seeds)
def test_a_sign_turns_codes_round(subject: Subject, seed: int) -> None:
    """By values: a format may have no -0."""
    x = data(seed)
    plain, turned = subject.run(x), subject.run(-x)
    assert (decode_values(turned["codes"]) == -decode_values(plain["codes"])).all()
    for name in plain.keys() - {"codes"}:
        assert turned[name].data.tolist() == plain[name].data.tolist()


@pytest.mark.parametrize("name", NOT_SYMMETRIC)
def test_recipes_that_are_not_symmetric(name: str) -> None:
    for subject in (s for s in SUBJECTS if s.recipe.name == name):
        runs = [(subject.run(x), subject.run(-x)) for x in map(data, range(8))]
        codes = [(decode_values(plain["codes"]), decode_values(turned["codes"])) for plain, turned in runs]
        assert any((turned != -plain).any() for plain, turned in codes), NOT_SYMMETRIC[name]


# --- clipping and error ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("subject", [s for s in SUBJECTS if s.reach is not None], ids=str)
@pytest.mark.parametrize("seed", [0, 1, 2, None])
def test_how_far_data_reach_beyond_the_codes(subject: Subject, seed: int | None) -> None:
    """No further than its rule for the scale lets them: of one that is rounded up, the largest code's own value."""
    x = edges(subject) if seed is None else data(seed)
    reach = subject.reach
    assert reach is not None
    over = np.abs(x) / subject.step(subject.run(x))
    exact = subject.power_of_two and not subject.by_logarithm
    assert over.max() <= reach * (1 if exact else 1 + subject.slack)


@pytest.mark.parametrize("subject", [s for s in SUBJECTS if s.reach is not None], ids=str)
def test_a_scale_is_no_larger_than_it_must_be(subject: Subject) -> None:
    """Else codes at the top are never used, which no error of an element shows."""
    for x in (data(4), edges(subject)):
        done = subject.run(x)
        used = amax(subject, x) / subject.step(done)
        assert used.min() >= subject.fill * (1 if subject.power_of_two else 1 - subject.slack)
        if subject.recipe.name.startswith("nvidia.nvfp4"):  # the largest block's scale is the largest of E4M3
            assert decode_values(done["scale"]).max() == 448


@pytest.mark.parametrize("subject", [s for s in SUBJECTS if "zero_point" in dict(s.recipe.steps)], ids=str)
def test_a_range_takes_all_codes(subject: Subject) -> None:
    """From the smallest to the largest element are as many steps as there are codes, less one."""
    x = data(4)
    blocks = subject.recipe.blocks
    rows, columns = blocks.rows or ROWS, blocks.columns or COLUMNS
    parts = x.reshape(ROWS // rows, rows, COLUMNS // columns, columns).astype(np.float64)
    steps = (parts.max(axis=(1, 3)) - parts.min(axis=(1, 3))) / to_float32(subject.run(x)["scale"])
    codes = format_named(subject.destination.format).code_count
    assert (np.abs(steps - (codes - 1)) <= subject.slack * codes).all()


def test_which_scales_clip() -> None:
    """A floor lets 511 of 448, 7.99 of 6 and so on be clipped, the even rule 6.99 of 6; those rounded up nothing."""
    clipping = {
        s.recipe.name for s in SUBJECTS if s.reach is not None and s.reach > s.destination.bound * (1 + 2.0**-17)
    }
    assert clipping == {
        "ocp.mxfp8_e4m3", "ocp.mxfp8_e5m2", "ocp.mxfp6_e2m3", "ocp.mxfp6_e3m2", "ocp.mxfp4", "ocp.mxint8",
        "quark.mxfp4_even", "vllm.mxfp4_cuda", "vllm.nvfp4", "vllm.nvfp4_emulated",
        "nvidia.nvfp4_divisor", "nvidia.nvfp4_multiplier",
    }  # fmt: skip
    for subject in SUBJECTS:
        if subject.recipe.name in clipping - {"vllm.nvfp4", "vllm.nvfp4_emulated"}:
            over = np.abs(edges(subject)) / subject.step(subject.run(edges(subject)))
            assert over.max() > subject.destination.bound, subject


@each
@few
@given(seeds)
def test_an_error_is_within_half_a_step(subject: Subject, seed: int) -> None:
    """Half the way to the next codes times the scale, exactly, and the roundings of the recipe's own steps; for a cut
    the whole way. Beyond the last code there is no end, which the test of the reach is about."""
    for x in matrices(subject, seed):
        done = subject.run(x)
        low, high = subject.cells(done)
        step, zero = subject.step(done), decode_values(done["codes"]) - subject.numbers(done)
        # what is added for the zero point is rounded too: to no more than 2^-24 of 256 codes
        room = subject.slack * (np.abs(x) + (256 * step if zero.any() else 0))
        assert (x >= (low - zero) * step - room).all()
        assert (x <= (high - zero) * step + room).all()


def test_every_recipe_is_here() -> None:
    assert {s.recipe.name for s in SUBJECTS} == set(RECIPES)
    assert set(NOT_IDEMPOTENT) | set(NOT_SYMMETRIC) <= set(RECIPES)
