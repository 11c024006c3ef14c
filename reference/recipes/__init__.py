"""The recipe catalogue. Adding a quantizer of an engine is one entry in one of its files."""

from __future__ import annotations

from narrowgauge.contracts.errors import unknown
from narrowgauge.contracts.recipe import Recipe
from narrowgauge.reference.recipes import aiter, around, blocks, integers, sglang, standards, vllm

RECIPES: dict[str, Recipe] = {
    r.name: r for module in (standards, vllm, sglang, aiter, blocks, integers, around) for r in module.RECIPES
}


def recipe_named(name: str) -> Recipe:
    """The recipe of that name. Raises ``BadInput`` with near names."""
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    return RECIPES[name]


def resolve(recipe: str | Recipe) -> Recipe:
    """A recipe given by name or as data."""
    return recipe_named(recipe) if isinstance(recipe, str) else recipe
