# SPDX-License-Identifier: Apache-2.0
"""Mutate the catalogue of recipes, as data: one change in one recipe, held to the second derivation.

A recipe is data, however the file that states it is written. So what is changed is the recipe itself: each step, each
operand, each constant, blocks, casts, formats. Nothing is imported anew, and thousands of mutants cost seconds.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.contracts.recipe import CONSTANTS, INPUTS, STATISTICS, Blocks, Chain, Destination, Recipe
from narrowgauge.reference import policies
from narrowgauge.reference.quantize import quantize
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.reference.steps import operands_of
from narrowgauge.suites.meta.second_catalogue import SHAPES, formats_of, unlike
from narrowgauge.suites.meta.second_matrices import derived, given, kinds_of, matrix, source_of

#: steps that are easily confused: each is replaced by every other of its group
CONFUSED: tuple[tuple[str, ...], ...] = (
    ("add", "sub", "rsub"),
    ("mul", "div", "rdiv"),
    ("recip", "recip_or_zero", "recip_approx"),
    ("at_least", "at_least_or_nan", "at_most", "at_most_or_nan"),
    ("zero_to", "zero_where_zero", "nan_to", "not_finite_to"),
    ("ceil_pow2", "floor_pow2", "exp2_ceil_log2", "exp2_floor_log2"),
    ("rint", "half_away", "add_half_and_cut", "trunc"),
    ("clamp_fmin_first", "clamp_fmax_first", "clamp_keep_nan"),
)
#: what shares a scale in one recipe or another
OTHER_BLOCKS = (Blocks(0, 0), Blocks(1, 0), Blocks(0, 1), *(Blocks(1, n) for n in (16, 32, 64, 128)), Blocks(128, 128))
OTHER_BOUNDS = (448.0, 240.0, 224.0, 6.0, 127.0, 127.5, 128.0, 7.0, 7.5)
#: a change of a constant that the smallest tensors show; and a large one
A_LITTLE, HALF = 1 + 2.0**-10, 0.5
FORMATS_OF_SCALES = {"float32": "ieee", "float8_e8m0fnu": "e8m0_floor", "float8_e4m3fn": "ptx_satfinite"}


@dataclass(frozen=True)
class RecipeMutant:
    """A recipe with one change. ``what``: "scale [1]: ('div', 'bound') becomes ('mul', 'bound')"."""

    what: str
    recipe: Recipe

    def __str__(self) -> str:
        return f"{self.recipe.name}: {self.what}"


def mutants(recipe: Recipe) -> Iterator[RecipeMutant]:
    """Every mutant of a recipe that is another recipe, and that the contract does not refuse."""
    for what, change in (*_of_chains(recipe), *_of_fields(recipe), *_of_destinations(recipe)):
        try:
            wrong = replace(recipe, **change)
        except BadInput:
            continue  # a name that nothing before it gives
        if wrong != recipe:  # half of 0 is 0
            yield RecipeMutant(what, wrong)


# --- chains ----------------------------------------------------------------------------------------------------------


def _of_chains(recipe: Recipe) -> Iterator[tuple[str, dict[str, Any]]]:
    known = [*STATISTICS, *CONSTANTS, *recipe.inputs]
    for i, (name, chain) in enumerate(recipe.steps):
        for what, other in _changed(chain, known):
            yield f"{name} {what}", {"steps": (*recipe.steps[:i], (name, other), *recipe.steps[i + 1 :])}
        known += [name, "stored"] if name == "scale" and recipe.scale_format != "float32" else [name]
    for what, other in _changed(recipe.element, ["x", *known]):
        yield f"element {what}", {"element": other}


def _changed(chain: Chain, known: Sequence[str]) -> Iterator[tuple[str, Chain]]:
    """A chain that starts elsewhere, lacks a step, has another one, or has two of them in the other order."""
    for start in known:
        if start != chain[0]:
            yield f"[0]: from {start}", (start, *chain[1:])
    for i, step in enumerate(chain[1:], 1):
        yield f"[{i}]: without {step}", (*chain[:i], *chain[i + 1 :])
        for other in _other_steps(step, known):
            yield f"[{i}]: {step} becomes {other}", (*chain[:i], other, *chain[i + 1 :])
        if i + 1 < len(chain):
            yield f"[{i}]: {chain[i + 1]} before {step}", (*chain[:i], chain[i + 1], step, *chain[i + 2 :])


def _other_steps(step: Any, known: Sequence[str]) -> Iterator[Any]:
    name, *operands = (step,) if isinstance(step, str) else step
    for group in CONFUSED:
        for other in group if name in group else ():
            if other != name:
                yield (other, *operands) if operands else other
    for operand in operands:
        if isinstance(operand, str):
            others: list[Any] = [o for o in (("bfloat16", "float16") if name == "round" else known) if o != operand]
        elif name == "even_pow2":  # a number of bits
            others = [operand + 1, operand + 2]
        else:
            others = [o for o in (operand * A_LITTLE, operand * HALF) if o != operand]
        yield from ((name, o) for o in others)


# --- everything else -------------------------------------------------------------------------------------------------


def _of_fields(recipe: Recipe) -> Iterator[tuple[str, dict[str, Any]]]:
    if operands_of(recipe) & {"amax", "tensor_amax"}:
        yield "amax_nan", {"amax_nan": "keep" if recipe.amax_nan == "drop" else "drop"}
    for other in OTHER_BLOCKS:
        if (other.rows, other.columns) != (recipe.blocks.rows, recipe.blocks.columns):
            yield f"blocks become {other}", {"blocks": other}
    if recipe.blocks.columns > 1:
        yield "blocks are ragged or not", {"blocks": replace(recipe.blocks, ragged=not recipe.blocks.ragged)}
    if recipe.scale_format != "float32":
        for cast in _other_casts(recipe.scale_cast, recipe.scale_format):
            yield f"scale cast becomes {cast}", {"scale_cast": cast}
    for format, cast in FORMATS_OF_SCALES.items():
        if format != recipe.scale_format and not recipe.static:
            yield f"scale format becomes {format}", {"scale_format": format, "scale_cast": cast}


def _of_destinations(recipe: Recipe) -> Iterator[tuple[str, dict[str, Any]]]:
    for i, destination in enumerate(recipe.destinations):
        for what, other in _other_destinations(destination):
            changed = (*recipe.destinations[:i], other, *recipe.destinations[i + 1 :])
            yield f"{destination.format}: {what}", {"destinations": changed}


def _other_destinations(destination: Destination) -> Iterator[tuple[str, Destination]]:
    for bound in (*OTHER_BOUNDS, destination.bound * A_LITTLE):
        if bound != destination.bound:
            yield f"bound becomes {bound:g}", replace(destination, bound=bound)
    for cast in _other_casts(destination.cast, destination.format):
        yield f"cast becomes {cast}", replace(destination, cast=cast)


def _other_casts(name: str | CastPolicy, format: str) -> Iterator[str]:
    """One named policy of each other meaning."""
    seen = {policies.resolve(name, format)}
    for other in policies.fitting(format):
        policy = policies.resolve(other, format)
        if policy not in seen:
            seen.add(policy)
            yield other


# --- running ---------------------------------------------------------------------------------------------------------


def noticed(mutant: RecipeMutant) -> bool:
    """Whether some matrix tells a mutant from the second derivation; one that cannot even run is told."""
    if not said_alike(mutant.recipe):
        return True
    right = RECIPES[mutant.recipe.name]
    for destination in right.destinations:
        kept = mutant.recipe.destinations == right.destinations
        if kept or destination not in mutant.recipe.destinations:  # else this destination has not changed
            for kind in kinds_of(right.name):
                if not agrees(mutant.recipe, destination.format, kind):
                    return True
    return False


def agrees(recipe: Recipe, format: str, kind: str) -> bool:
    """Whether a recipe gives what is derived for the one of its name."""
    name = recipe.name
    beside = {n: Coded(INPUTS[n], codes) for n, codes in given(name, kind).items()}
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            result = quantize(Coded(source_of(name, kind), matrix(name, kind)), recipe, format, given=beside)
    except Exception:
        return False
    got = {n: (c.format, c.codes) for n, c in result.items()}
    return not unlike(got, derived(name, format, kind), formats_of(name, format))


def said_alike(recipe: Recipe) -> bool:
    """Whether what a recipe says of itself is what the second derivation says: beside its numbers, for people."""
    shape = SHAPES[recipe.name]
    said = tuple((d.format, d.bound) for d in recipe.destinations)
    divides = shape.columns <= 1 or recipe.blocks.divide(shape.rows * 2, shape.columns + 1) == shape.ragged
    divides = divides and recipe.blocks.grid(256, 256) == shape.grid(256, 256)
    return divides and recipe.inputs == shape.given and said == tuple((f, shape.bound_of(f)) for f in shape.formats)
