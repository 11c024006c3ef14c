"""Steps whose last bit no document fixes, in every way in which they may be answered.

A kernel may give any of the answers that ``steps.VARIANTS`` admits, another one in every block and at every place
where a recipe has such a step. All of them are run: each place takes the step's own function or one of its variants,
in every combination. What one element of an output depends on, besides x, are the answers of its own block and of the
tensor, one at each place. Some combination takes just these, and gives this element as the kernel did. So the hull of
all runs, element by element, holds every right answer, whatever the steps between do; nothing has to be monotone.
That asks that a step's function and variants are together all that it may answer, and not only the ends of a range:
two neighbours of a float32, or one of two powers of two, are all there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from narrowgauge.contracts.coded import Coded, given_with
from narrowgauge.contracts.recipe import Chain, Recipe
from narrowgauge.reference.behaviour import Behaviour, Buffers
from narrowgauge.reference.fast_codec import to_float32
from narrowgauge.reference.quantize import Values
from narrowgauge.reference.staged import Staged, Steps
from narrowgauge.reference.steps import STEPS, VARIANTS, named


def is_open(recipe: Recipe | None) -> bool:
    """Whether a recipe has a step that may be answered in more than one way."""
    return bool(open_names(recipe))


def open_names(recipe: Recipe | None) -> tuple[str, ...]:
    """The names of a recipe's steps that may be answered in more than one way, each once."""
    chains = () if recipe is None else _chains(recipe)
    steps = (named(step)[0] for chain in chains for step in chain[1:])
    return tuple(dict.fromkeys(name for name in steps if name in VARIANTS))


def ways(recipe: Recipe) -> tuple[Recipe, list[Steps]]:
    """The recipe with each open step under a name of its own, and the steps in each combination of their answers.

    The first combination is the reference's own answer.
    """
    functions: dict[str, tuple[Callable[..., Any], ...]] = {}

    def numbered(chain: Chain) -> Chain:
        return (chain[0], *(one(*named(step)) for step in chain[1:]))

    def one(name: str, operands: tuple[float | str, ...]) -> tuple[float | str, ...]:
        if name not in VARIANTS:
            return (name, *operands)
        own = f"{name} {len(functions)}"
        functions[own] = (STEPS[name], *VARIANTS[name])
        return (own, *operands)

    changed = replace(
        recipe,
        steps=tuple((name, numbered(chain)) for name, chain in recipe.steps),
        element=numbered(recipe.element),
    )
    return changed, [STEPS | dict(zip(functions, chosen, strict=True)) for chosen in product(*functions.values())]


def every_answer(behaviour: Behaviour, stages: Staged, x: Coded) -> Iterator[Buffers]:
    """The outputs of a quantizer in every combination of answers that differs; the reference's own come first."""
    assert behaviour.recipe is not None
    recipe, combinations = ways(behaviour.recipe)
    matrix, seen = to_float32(x), set()
    with np.errstate(all="ignore"):
        for steps in combinations:
            values = stages.values(matrix, recipe, behaviour.format, x.format, given_with(x), steps)
            key = _key(values, recipe, steps)
            if key not in seen:
                seen.add(key)
                outputs = stages.outputs(matrix, values, recipe, behaviour.format, behaviour.last_cast, steps)
                yield behaviour.finished(outputs)


def _key(values: Values, recipe: Recipe, steps: Steps) -> tuple[Any, ...]:
    """What decides the outputs: the values of the blocks, and the steps that elements take."""
    names = [named(step) for step in recipe.element[1:]]
    used = [o for _, operands in names for o in operands if isinstance(o, str)]
    returned = [f"{name} as stored" for name in recipe.outputs(recipe.destinations[0].format) if name != "codes"]
    arrays = [*(values[o] for o in used), *(values[r].data for r in returned)]
    return (*(np.asarray(a).tobytes() for a in arrays), *(steps[name] for name, _ in names))


def _chains(recipe: Recipe) -> Iterator[Chain]:
    yield from (chain for _, chain in recipe.steps)
    yield recipe.element
