# SPDX-License-Identifier: Apache-2.0
"""The catalogue of recipes against the second derivation, block by block and bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.recipe import INPUTS
from narrowgauge.reference.quantize import quantize
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.suites.meta.recipe_mutants import said_alike
from narrowgauge.suites.meta.second_catalogue import SECOND, SHAPES, derive, formats_of, names_of, unlike
from narrowgauge.suites.meta.second_matrices import derived, given, kinds_of, matrix, source_of

pytestmark = pytest.mark.meta


def test_every_recipe_is_derived() -> None:
    """By a rule in one of the files of rules, and a name in the table of shapes (second_catalogue)."""
    assert set(SECOND) == set(RECIPES)
    assert set(SHAPES) == set(RECIPES)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_said_as_the_second_derivation_says_it(name: str) -> None:
    """Destinations and their bounds, what is given, and whether a block may be smaller."""
    assert said_alike(RECIPES[name])


@pytest.mark.parametrize(("name", "format"), names_of(list(SHAPES)))
def test_recipe_equals_second_derivation(name: str, format: str) -> None:
    for kind in kinds_of(name):
        beside = {n: Coded(INPUTS[n], codes) for n, codes in given(name, kind).items()}
        result = quantize(Coded(source_of(name, kind), matrix(name, kind)), RECIPES[name], format, given=beside)
        got = {n: (c.format, c.codes) for n, c in result.items()}
        assert unlike(got, derived(name, format, kind), formats_of(name, format)) == [], kind


@pytest.mark.parametrize("name", [n for n, s in SHAPES.items() if s.given and set(s.given) <= {"scale", "zero_point"}])
def test_one_given_value_stands_for_all_blocks(name: str) -> None:
    shape, x, source = SHAPES[name], matrix(name, "random"), source_of(name, "random")
    one = {n: codes[:1, :1] for n, codes in given(name, "random").items()}
    result = quantize(
        Coded(source, x), RECIPES[name], shape.formats[0], given={n: Coded(INPUTS[n], c) for n, c in one.items()}
    )
    want = derive(name, x, source, shape.formats[0], one)
    assert unlike({n: (c.format, c.codes) for n, c in result.items()}, want, formats_of(name, shape.formats[0])) == []


@pytest.mark.parametrize("name", [n for n, s in SHAPES.items() if s.columns > 1 and not s.ragged])
def test_a_matrix_that_blocks_do_not_divide_is_refused(name: str) -> None:
    shape = SHAPES[name]
    x = Coded("float32", np.zeros((1, shape.columns + 1), np.uint32))
    with pytest.raises(BadInput, match="no whole number of blocks"):
        quantize(x, RECIPES[name], shape.formats[0])
