# SPDX-License-Identifier: Apache-2.0
"""Properties of every recipe of the catalogue, as its steps imply them: recipe_properties.py has what is declared."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import settings

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.fast_codec import decode_values, to_float32
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.suites.meta.recipe_data import F32, amax, data, edges, matrices
from narrowgauge.suites.meta.recipe_properties import (
    ASTRAY,
    CLIPPING,
    CUTTING,
    NOT_IDEMPOTENT,
    NOT_SYMMETRIC,
    SUBJECTS,
    WASTING,
    Subject,
)

pytestmark = pytest.mark.meta

each = pytest.mark.parametrize("subject", SUBJECTS, ids=str)
#: 2; in a night of 1,000 examples, 80
SEEDS = range(settings().max_examples * 2 // 25)


def far_from_a_power(subject: Subject, x: F32) -> bool:
    """Whether no block's scale lies within 2^-16 of a power of two, where a logarithm in float32 may miss it."""
    parts = [np.frexp(amax(subject, x) / part)[0] * 2 for part in (1.0, subject.destination.bound)]
    return not any(((m != 1) & ((m < 1 + 2.0**-16) | (m > 2 - 2.0**-16))).any() for m in parts)


def clear_of_ties(subject: Subject, x: F32) -> bool:
    """Whether no zero point lies within 2^-10 of a tie, where its rounding and that of the elements may part."""
    done = subject.run(x)
    if "zero_point" not in done:
        return True
    (height, width), blocks = x.shape, subject.recipe.blocks
    rows, columns = blocks.rows or height, blocks.columns or width
    least = x.reshape(height // rows, rows, width // columns, columns).min(axis=(1, 3)).astype(np.float64)
    way = least / decode_values(done["scale"]) % 1
    return bool((np.abs(way - 0.5) > 2.0**-10).all())


# --- scales and powers of two ----------------------------------------------------------------------------------------


@each
def test_what_a_code_stands_for_follows_the_largest_magnitude(subject: Subject) -> None:
    """By the steps and the reader alone: one that forgets a scale is of another power."""
    assert subject.reader.power == 1
    if not subject.recipe.inputs:
        assert 0 < subject.reader.between[0] <= subject.reader.between[1] < np.inf


@each
def test_scales_follow_a_power_of_two_and_codes_stay(subject: Subject) -> None:
    """From the recipe's floor on, and up to its ceiling, which are read off its steps; k is brought between them."""
    for seed in SEEDS:
        x, k = data(subject, seed), (seed * 53 + 17) % 121 - 60
        if subject.reader.by_logarithm and not far_from_a_power(subject, x):
            continue
        tops = amax(subject, x)
        least = min(tops.min(), *(to_float32(v).item() for n, v in subject.given().items() if n == "upper_bound"), 1e9)
        low, high = np.array(subject.span) * (1 + 2.0**-20, 1 - 2.0**-20) / (least, tops.max())
        k = max(k, int(np.ceil(np.log2(low))) if low else k)
        k = min(k, int(np.floor(np.log2(high))) if np.isfinite(high) else k)
        before, after = subject.run(x), subject.run(np.ldexp(x, k), k)
        assert after["codes"].data.tolist() == before["codes"].data.tolist()
        for name in before.keys() - {"codes"}:
            numbers = [decode_values(run[name]) for run in (before, after)]
            assert numbers[1].tolist() == np.ldexp(numbers[0], k * subject.bounded[name].power).tolist(), name


@pytest.mark.parametrize("subject", [s for s in SUBJECTS if s.floor], ids=str)
def test_below_its_floor_a_scale_stays(subject: Subject) -> None:
    """Else the floor that was read off the steps would be too high. An 8th of it, since a scale of a range is of 2 amax
    at most; and at the floor's double the scale has left it."""
    x = data(subject, 3)
    top = float(amax(subject, x).max())
    low, lower, high = (
        decode_values(subject.run(np.asarray(x / top * subject.floor * part, np.float32))["scale"])
        for part in (0.125, 0.0625, 8)
    )
    assert len(np.unique(low)) == 1
    assert low.tolist() == lower.tolist()
    assert high.max() > low.max()


def test_a_logarithm_in_float32_swallows_what_lies_above_a_power_of_two() -> None:
    """1 ulp above 2^-5 it is gone, 1 ulp above 2^-1 it is not: there the codes of 2^-4 times x are others.

    The half ulp of log2 is 2^-22 near -5, and 2^-24 near -1; an ulp is 1.44 * 2^-23 of it.
    """
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
def test_what_was_dequantized_is_quantized_to_itself(subject: Subject) -> None:
    """The same codes, but for the sign of a zero, and a scale that is the same but for roundings: the largest element
    took the largest code, or of a power of two a code of the upper binade.

    A power of two that was rounded up may come back as its half: then codes are doubled, and the values are the same.
    """
    for seed in SEEDS:
        x = data(subject, seed)
        if not clear_of_ties(subject, x):
            continue
        first, second = again(subject, x)
        if subject.reader.rounded == 1:
            assert subject.values(second).tolist() == subject.values(first).tolist()
            continue
        assert (subject.numbers(second) == subject.numbers(first)).all()
        for name in first.keys() - {"codes"}:
            before, after = decode_values(first[name]), decode_values(second[name])
            part = 0 if first[name].format.startswith("float8") else subject.slack
            assert (np.abs(after - before) <= part * np.abs(before)).all(), name


@pytest.mark.parametrize("name", sorted(NOT_IDEMPOTENT))
def test_recipes_that_are_not_idempotent(name: str) -> None:
    """Each on some data; an entry that is none is an error."""
    for subject in (s for s in SUBJECTS if s.recipe.name == name):
        changed = set()
        for seed in range(8):
            first, second = again(subject, data(subject, seed))
            if (subject.numbers(second) != subject.numbers(first)).any():
                changed.add("codes")
            before, after = subject.step(first), subject.step(second)
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
def test_codes_are_in_the_order_of_their_elements(subject: Subject) -> None:
    """Within a block, all steps rise. Columns of 1 to 256 and rows of 128 share scales: sorted along what is shared."""
    x = data(subject, SEEDS[-1])
    numbers = subject.numbers(subject.run(x))
    blocks, (height, width) = subject.recipe.blocks, x.shape
    rows, columns = blocks.rows or height, blocks.columns or width
    for top in range(0, height, rows):
        for left in range(0, width, columns):
            part = slice(top, top + rows), slice(left, left + columns)
            order = np.argsort(x[part], axis=None, kind="stable")
            found = numbers[part].ravel()[order]
            assert (np.diff(found) >= 0).all()


@pytest.mark.parametrize("subject", [s for s in SUBJECTS if not s.recipe.inputs], ids=str)
def test_a_larger_magnitude_has_no_smaller_scale(subject: Subject) -> None:
    """The largest of every block is made larger, from one ulp to 2^9 times; a tensor's own scale divides by it."""
    x = data(subject, SEEDS[-1])
    where = np.abs(x) == amax(subject, x)
    steps = []
    for factor in (1, 1 + 2.0**-23, 1 + 2.0**-10, 1.25, 1.75, 2, 448, 512):
        grown = np.where(where, (x * np.float32(factor)).astype(np.float32), x)
        steps.append(subject.step(subject.run(grown)))
    assert all((after >= before * (1 - subject.slack)).all() for before, after in pairwise(steps))
    assert (steps[-1] > steps[0]).all()


@pytest.mark.parametrize("subject", [s for s in SUBJECTS if s.recipe.name not in NOT_SYMMETRIC], ids=str)
def test_a_sign_turns_codes_round(subject: Subject) -> None:
    """By numbers: a format may have no -0, and of codes without a sign one stands for 0."""
    for seed in SEEDS:
        x = data(subject, seed)
        if not clear_of_ties(subject, x) or not clear_of_ties(subject, -x):
            continue
        plain, turned = subject.run(x), subject.run(-x)
        assert (subject.numbers(turned) == -subject.numbers(plain)).all()
        for name in plain.keys() - {"codes", "zero_point"}:
            assert turned[name].data.tolist() == plain[name].data.tolist()


@pytest.mark.parametrize("name", sorted(NOT_SYMMETRIC))
def test_recipes_that_are_not_symmetric(name: str) -> None:
    for subject in (s for s in SUBJECTS if s.recipe.name == name):
        runs = [(subject.run(x), subject.run(-x)) for x in (data(subject, seed) for seed in range(8))]
        codes = [(subject.numbers(plain), subject.numbers(turned)) for plain, turned in runs]
        assert any((turned != -plain).any() for plain, turned in codes), NOT_SYMMETRIC[name]


# --- clipping and error ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("subject", [s for s in SUBJECTS if s.reach is not None], ids=str)
def test_how_far_data_reach_beyond_the_codes(subject: Subject) -> None:
    """No further than its rule for the scale lets them: of one that is rounded up, the largest code's own value."""
    reach = subject.reach
    assert reach is not None
    for x in (edges(subject), *(data(subject, seed) for seed in SEEDS)):
        over = np.abs(x) / subject.step(subject.run(x))
        exact = subject.reader.is_power and not subject.reader.by_logarithm
        assert over.max() <= reach * (1 if exact else 1 + subject.slack)


@pytest.mark.parametrize("subject", [s for s in SUBJECTS if s.reach is not None], ids=str)
def test_a_scale_is_no_larger_than_it_must_be(subject: Subject) -> None:
    """Else codes at the top are never used, which no error of an element shows."""
    for x in (data(subject, 4), edges(subject)):
        done, tops = subject.run(x), amax(subject, x)
        used = (tops / subject.step(done))[(tops >= subject.span[0]) & (tops <= subject.span[1])]
        assert used.min() >= subject.fill * (1 - subject.slack)
        if subject.recipe.name.startswith("nvidia.nvfp4"):  # the largest block's scale is the largest of E4M3
            assert decode_values(done["scale"]).max() == 448


def test_which_scales_are_larger_than_they_must_be() -> None:
    """All others are so small that some data reach the last code, and none stay below half of it."""
    held = [s for s in SUBJECTS if s.reach is not None]
    short = 1 - 2.0**-17
    assert {s.recipe.name for s in held if (s.reach or 0) < s.top * short} == WASTING
    assert {s.recipe.name for s in held if s.fill < s.top / 2 * short} == WASTING


@pytest.mark.parametrize("subject", [s for s in SUBJECTS if "zero_point" in dict(s.recipe.steps)], ids=str)
def test_a_range_takes_all_codes(subject: Subject) -> None:
    """From the smallest to the largest element are as many steps as there are codes, less one."""
    x = data(subject, 4)
    blocks, (height, width) = subject.recipe.blocks, x.shape
    rows, columns = blocks.rows or height, blocks.columns or width
    parts = x.reshape(height // rows, rows, width // columns, columns).astype(np.float64)
    steps = (parts.max(axis=(1, 3)) - parts.min(axis=(1, 3))) / decode_values(subject.run(x)["scale"])
    codes = format_named(subject.destination.format).code_count
    assert (np.abs(steps - (codes - 1)) <= subject.slack * codes).all()


def test_which_scales_clip() -> None:
    """A floor lets 511 of 448, 7.99 of 6 and so on be clipped, the even rule 6.99 of 6; those rounded up nothing."""
    clipping = {s.recipe.name for s in SUBJECTS if s.reach is not None and s.reach > s.top * (1 + 2.0**-17)}
    assert clipping == CLIPPING
    for subject in SUBJECTS:
        if subject.recipe.name in clipping and not subject.recipe.inputs:
            over = np.abs(edges(subject)) / subject.step(subject.run(edges(subject)))
            assert over.max() > subject.top, subject


@each
def test_an_error_is_within_half_a_step(subject: Subject) -> None:
    """Half the way to the next codes times the scale, exactly, and the roundings of the recipe's own steps; for a cut
    the whole way. Beyond the last code there is no end, which the test of the reach is about."""
    for x in matrices(subject, SEEDS[-1]):
        assert not (subject.astray(x) & (borne(subject, x) | (subject.recipe.name not in ASTRAY))).any()


def borne(subject: Subject, x: F32) -> npt.NDArray[np.bool_]:
    """Elements of blocks whose magnitude every step follows."""
    tops = amax(subject, x)
    within: npt.NDArray[np.bool_] = (tops >= subject.span[0]) & (tops <= subject.span[1])
    return within


@pytest.mark.parametrize("name", ASTRAY)
def test_recipes_that_go_astray_beyond_what_their_steps_bear(name: str) -> None:
    """On some data, at one of its destinations; an entry that does not is an error."""
    subjects = [s for s in SUBJECTS if s.recipe.name == name]
    assert any(s.astray(x).any() for s in subjects for x in matrices(s, SEEDS[-1])), ASTRAY[name]


def test_every_recipe_is_here() -> None:
    assert {s.recipe.name for s in SUBJECTS} == set(RECIPES)
    assert set(NOT_IDEMPOTENT) | set(NOT_SYMMETRIC) | CLIPPING | CUTTING | WASTING | set(ASTRAY) <= set(RECIPES)
