"""A quantizer in parts: whose scales it makes, and whose codes it makes of its own scales.

A kernel that follows no recipe as a whole often follows one in its scales and another in its elements, or is wrong in
one of the two alone. So its scales are compared by themselves, and its codes with what each recipe makes under the
kernel's scales in place of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.operations import Claim
from narrowgauge.contracts.recipe import Recipe
from narrowgauge.reference.behaviour import recipe_of
from narrowgauge.reference.dequantized import to_elements
from narrowgauge.reference.fast_codec import decode_values, to_float32
from narrowgauge.reference.quantize import quantize
from narrowgauge.reference.words import in_words

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Part:
    """One part of a quantizer, and the recipes that have exactly this part; where there are none, the nearest."""

    name: str  #: "scale" or "codes"
    follows: tuple[str, ...]
    said: str  #: the steps of the first of them, or of the nearest
    nearest: str = ""
    differing: int = 0
    of: int = 0
    first: str = ""  #: the first place where the nearest part differs: "row 0: 2 times 0.25"


#: an input tensor and what came back, in the contract's form
Pair = tuple[Coded, Mapping[str, Coded]]


def parts_of(claims: Sequence[Claim], seen: Sequence[Pair]) -> tuple[Part, ...]:
    """Both parts of a quantizer. ``claims`` are the candidates, which all take all that was seen."""
    recipes = {claim.rule: recipe for claim in claims if (recipe := recipe_of(claim)) is not None and not recipe.inputs}
    if not recipes or any("scale" not in got for _, got in seen):
        return ()
    format_name = claims[0].format
    scales = {name: [_scales(one, recipe, format_name) for one in seen] for name, recipe in recipes.items()}
    codes = {name: [_codes(one, recipe, format_name) for one in seen] for name, recipe in recipes.items()}
    return _part("scale", recipes, scales, _scale_in_words), _part("codes", recipes, codes, _element_in_words)


@dataclass(frozen=True, eq=False)
class _Found:
    """Where a part differs, and what the kernel and the recipe have there."""

    differs: Mask
    got: npt.NDArray[Any]
    want: npt.NDArray[Any]


def _scales(one: Pair, recipe: Recipe, format_name: str) -> _Found:
    x, got = one
    want = quantize(x, recipe, format_name)["scale"]
    return _found(got["scale"], want, np.ones(want.shape, np.bool_))


def _codes(one: Pair, recipe: Recipe, format_name: str) -> _Found:
    """Codes under the kernel's scales. Blocks whose scale is no finite number above 0 tell nothing of this part."""
    x, got = one
    own = to_float32(got["scale"])
    usable = np.isfinite(own) & (own > 0)
    scale = Coded("float32", np.where(usable, own, np.float32(1)).astype(np.float32).view(np.uint32))
    want = quantize(x, with_scale_given(recipe), format_name, given={"scale": scale})["codes"]
    counted = np.broadcast_to(to_elements(usable, recipe.blocks, want.shape), want.shape)
    return _found(got["codes"], want, counted)


def with_scale_given(recipe: Recipe) -> Recipe:
    """The same recipe with its stored scale as an input: what remains is how elements become codes.

    A value that stands between block and element, as an encode operand that is made of amax, stays as it is.
    """
    steps = tuple(step for step in recipe.steps if step[0] != "scale")
    return replace(recipe, steps=steps, inputs=(*recipe.inputs, "scale"))


def _found(got: Coded, want: Coded, counted: Mask) -> _Found:
    values = decode_values(Coded(want.format, got.data.astype(want.data.dtype))), decode_values(want)
    same = (got.data == want.data) | (np.isnan(values[0]) & np.isnan(values[1]))
    return _Found(~same & counted, *values)


def _part(name: str, recipes: Mapping[str, Recipe], found: Mapping[str, Sequence[_Found]], words: Any) -> Part:
    counts = {recipe: sum(int(one.differs.sum()) for one in each) for recipe, each in found.items()}
    follows = tuple(recipe for recipe, count in counts.items() if not count)
    if follows:
        return Part(name, follows, words(recipes[follows[0]]))
    nearest = min(counts, key=lambda recipe: counts[recipe])
    total = sum(one.differs.size for one in found[nearest])
    return Part(name, (), words(recipes[nearest]), nearest, counts[nearest], total, _first(found[nearest]))


def _first(found: Sequence[_Found]) -> str:
    """The first place that differs, with how the two numbers stand to one another."""
    one = next(each for each in found if each.differs.any())
    at = tuple(int(i) for i in np.argwhere(one.differs)[0])
    got, want = float(one.got[at]), float(one.want[at])
    ratio = f", {got / want:.9g} times" if want and np.isfinite(got / want) else ","
    return f"at {list(at)} {got:.9g}{ratio} {want:.9g}"


def _scale_in_words(recipe: Recipe) -> str:
    chains = dict(recipe.steps)
    stored = "" if recipe.scale_format == "float32" else f", stored as {recipe.scale_format} by {recipe.scale_cast}"
    return in_words(chains["scale"]) + stored


def _element_in_words(recipe: Recipe) -> str:
    """The chain of an element, with those of the values that it names."""
    named = {o for step in recipe.element if isinstance(step, tuple) for o in step[1:]}
    beside = [f"{name} = {in_words(chain)}" for name, chain in recipe.steps if name in named and name != "scale"]
    return "; ".join([in_words(recipe.element), *beside])
