"""The recipe catalogue. Adding a quantizer of an engine is one entry in one of its files."""

from __future__ import annotations

from narrowgauge.contracts.errors import unknown
from narrowgauge.contracts.recipe import Recipe
from narrowgauge.reference.recipes import (
    aiter,
    around,
    blocks,
    compressed_tensors,
    integers,
    microxcaling,
    modelopt,
    plain_cache,
    quark,
    sglang,
    sglang_blocks,
    standards,
    torchao,
    transformer_engine,
    triton_kernels,
    vllm,
    vllm_cache,
    weights,
)

#: files of the catalogue, in the order in which people see them
MODULES = (
    standards,
    vllm,
    vllm_cache,
    sglang,
    sglang_blocks,
    aiter,
    triton_kernels,
    blocks,
    integers,
    weights,
    torchao,
    compressed_tensors,
    modelopt,
    quark,
    microxcaling,
    transformer_engine,
    around,
    plain_cache,
)
RECIPES: dict[str, Recipe] = {r.name: r for module in MODULES for r in module.RECIPES}


def recipe_named(name: str) -> Recipe:
    """The recipe of that name. Raises ``BadInput`` with near names."""
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    return RECIPES[name]


def resolve(recipe: str | Recipe) -> Recipe:
    """A recipe given by name or as data."""
    return recipe_named(recipe) if isinstance(recipe, str) else recipe
