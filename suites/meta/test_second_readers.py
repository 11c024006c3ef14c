# SPDX-License-Identifier: Apache-2.0
"""What codes stand for: the reference's readers against exact fractions, and against the quantizers that they undo."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.contracts.coded import Coded, given_with
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.operations import Claim, Dequantize
from narrowgauge.contracts.recipe import OVER_GLOBAL, TIMES_GLOBAL, Reader, Recipe
from narrowgauge.reference import policies
from narrowgauge.reference.dequantize import dequantize
from narrowgauge.reference.fast_codec import cast, decode_values
from narrowgauge.reference.given import with_given
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.suites.meta import second_readers
from narrowgauge.suites.meta.recipe_data import data
from narrowgauge.suites.meta.recipe_properties import SUBJECTS, Subject, U

pytestmark = pytest.mark.meta

WIDE = ("float32", "bfloat16", "float16")
#: readers that are not a plain product
READ = {name: recipe for name, recipe in RECIPES.items() if recipe.reader != Reader()}


def read(x: Coded, recipe: Recipe, to: str, given: dict[str, Coded]) -> Coded:
    policy = policies.resolve("ieee", to)
    return dequantize(x, recipe, to, lambda value: cast(value, to, policy), given)


def met(recipe: Recipe, format_name: str) -> tuple[Coded, dict[str, Coded]]:
    """Codes of a format, and beside them scales of every kind: powers of two, the ends, zero, NaN."""
    fmt = format_named(format_name)
    rows, columns = max(2 * recipe.blocks.rows, 3), 2 * (recipe.blocks.columns or 8) + 2
    columns -= columns % (recipe.blocks.columns or 1)
    places = np.arange(rows)[:, None] * 31 + np.arange(columns) * 7
    x = Coded(fmt.name, (places % fmt.code_count).astype(fmt.storage))
    full = with_given(Claim(Dequantize(recipe), fmt.name, "float32"), x)
    return x, dict(given_with(full))


def picked(shape: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Some 30 places of a matrix, in every block of its columns and rows."""
    rows, columns = shape
    for place in range(0, rows * columns, max(1, rows * columns // 30) | 1):
        yield divmod(place, columns)


@pytest.mark.parametrize("name", RECIPES)
def test_readers_are_what_the_facts_say(name: str) -> None:
    """To the bit, NaN as NaN: one rounding to float32 for each operation, and a last one to the wide format."""
    recipe = RECIPES[name]
    for destination in recipe.destinations:
        x, given = met(recipe, destination.format)
        found = {to: read(x, recipe, to, given).data for to in WIDE}
        for i, j in picked(x.shape):
            beside = {}
            for part, value in given.items():
                of = value.data[tuple(min(at, n - 1) for at, n in zip(block(recipe, i, j), value.shape, strict=True))]
                beside[part] = (int(of), value.format)
            for to in WIDE:
                want = second_readers.read(name, int(x.data[i, j]), x.format, beside, to)
                got = int(found[to][i, j])
                if np.isnan(decode_values(Coded(to, np.array([got, want], found[to].dtype)))).all():
                    continue  # the sign of a NaN is nobody's business
                assert got == want, (
                    f"{x.format} code {x.data[i, j]:#x} beside {beside} to {to}: {got:#x}, not {want:#x}"
                )


def block(recipe: Recipe, row: int, column: int) -> tuple[int, int]:
    """The block of an element."""
    rows, columns = recipe.blocks.rows, recipe.blocks.columns
    return row // rows if rows else 0, column // columns if columns else 0


def test_the_second_table_has_no_name_too_many() -> None:
    assert set(second_readers.READERS) == set(READ)


# --- readers undo quantizers -----------------------------------------------------------------------------------------


def undone(subject: Subject, x: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """What a reader gets in float32, and without any rounding."""
    done = subject.run(x)
    got = read(done["codes"], subject.recipe, "float32", {**subject.given(), **done})
    return decode_values(got), subject.values(done)


@pytest.mark.parametrize("subject", SUBJECTS, ids=str)
def test_float32_is_off_by_its_roundings_alone(subject: Subject) -> None:
    """Each step of a reader rounds once, by at most U = 2^-24 of a result that is normal, as these are. The product of
    n factors (1 + U) is below 1 + n U (1 + 2^-10) for n < 2^13; float64 adds as many of 2^-53. Twice is allowed for.

    A difference of whole numbers is exact, so it adds nothing to what it is later multiplied by.
    """
    got, exact = undone(subject, data(subject, 5))
    count = sum(len(chain) - 1 for chain in subject.recipe.reader.chains)
    assert (np.abs(got - exact) <= 2 * count * U * np.abs(exact)).all()
    assert (exact != 0).mean() > 0.25


def forgetful(recipe: Recipe) -> Iterator[tuple[str, Reader]]:
    """Readers that are wrong in one thing."""
    yield "forgets all but the scale", Reader()
    if recipe.reader in (OVER_GLOBAL, TIMES_GLOBAL):
        yield "the other direction", TIMES_GLOBAL if recipe.reader == OVER_GLOBAL else OVER_GLOBAL
    steps = recipe.reader.element[1:]
    for i in range(len(steps) if len(steps) > 1 else 0):
        yield f"forgets {steps[i]}", Reader(recipe.reader.blocks, ("x", *steps[:i], *steps[i + 1 :]))


@pytest.mark.parametrize("name", READ)
def test_a_reader_that_forgets_something_does_not_undo(name: str) -> None:
    """The step of the right reader holds x within half of it, that of a wrong one does not."""
    recipe = RECIPES[name]
    right = Subject(recipe, recipe.destinations[0])
    x = data(right, 2)
    assert not right.astray(x).any()
    for what, reader in forgetful(recipe):
        assert replace(right, recipe=replace(recipe, reader=reader)).astray(x).any(), what


def test_plain_readers_are_held_too() -> None:
    """One that divides where it should multiply, and one that leaves the scale out."""
    for subject in SUBJECTS[:: len(SUBJECTS) // 8]:
        x = data(subject, 2)
        for reader in (Reader((), ("x", ("div", "stored"))), Reader((), ("x", ("mul", 1.0)))):
            assert replace(subject, recipe=replace(subject.recipe, reader=reader)).astray(x).any(), subject
