# SPDX-License-Identifier: Apache-2.0
"""Every change of a recipe is noticed by the second derivation, or listed with the reason why it changes nothing."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from narrowgauge.reference.recipes import MODULES, RECIPES
from narrowgauge.reference.steps import operands_of
from narrowgauge.suites.meta.recipe_equivalents import EQUIVALENT, reason_of
from narrowgauge.suites.meta.recipe_mutants import mutants, noticed
from narrowgauge.suites.meta.recipe_unsorted import UNSORTED

pytestmark = pytest.mark.meta


@pytest.mark.parametrize("name", RECIPES)
def test_every_change_of_a_recipe_is_noticed(name: str) -> None:
    """What is not must have a reason; and what is must have none, or the reason is no true one."""
    tried = [(m.what, noticed(m)) for m in mutants(RECIPES[name])]
    assert len(tried) > 10, "a recipe without mutants proves nothing"
    unexplained = [what for what, seen in tried if not seen and reason_of(name, what) is None]
    assert len(unexplained) <= UNSORTED.get(name, 0), unexplained
    assert [what for what, seen in tried if seen and reason_of(name, what) is not None] == []


def test_every_reason_is_still_needed() -> None:
    """A stale entry would excuse something else later."""
    made = [m for name in RECIPES for m in mutants(RECIPES[name])]
    for covered in EQUIVALENT.values():
        for names, changes in covered:
            excused = (m for m in made if re.fullmatch(names, m.recipe.name) and re.fullmatch(changes, m.what))
            assert any(not noticed(m) for m in excused), (names, changes)


def test_no_step_is_without_use() -> None:
    """A named step is returned, or something below it uses it."""
    for recipe in RECIPES.values():
        returned = recipe.outputs(recipe.destinations[0].format)
        assert [n for n, _ in recipe.steps if n not in returned and n not in operands_of(recipe)] == [], recipe.name


def test_every_recipe_has_a_name_of_its_own() -> None:
    """Of two of one name the later would hide the first."""
    names = Counter(r.name for module in MODULES for r in module.RECIPES)
    assert max(names.values()) == 1
    assert set(names) == set(RECIPES)
