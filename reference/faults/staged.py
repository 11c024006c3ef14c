"""A quantizer with room between its parts, so that a fault can stand there.

The parts are those of ``quantize``: what is asked of each block, the named values that follow from it, and the codes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from narrowgauge.contracts.coded import Coded, given_with
from narrowgauge.contracts.recipe import OF_TENSOR, Recipe
from narrowgauge.reference.behaviour import Behaviour, Buffers
from narrowgauge.reference.fast_codec import to_float32
from narrowgauge.reference.faults.edits import Edit
from narrowgauge.reference.quantize import LastCast, Statistics, Values, block_values, elements, quantize, statistics
from narrowgauge.reference.steps import F32

#: what the blocks of a matrix are asked for
Look = Callable[[F32, Recipe], Statistics]
#: other named values of blocks, or of the tensor
Change = Callable[[Values], Values]


@dataclass(frozen=True)
class Staged:
    """``quantize``, with what faults change in it."""

    looks: tuple[Callable[[Look], Look], ...] = ()  #: each changes how blocks are looked at
    used: tuple[Change, ...] = ()  #: each changes the values that elements are scaled with
    stored: tuple[Change, ...] = ()  #: each changes the values that are returned

    def __call__(self, x: Coded, recipe: Recipe, format_name: str, last_cast: LastCast) -> Buffers:
        look: Look = statistics
        for around in self.looks:
            look = around(look)
        with np.errstate(all="ignore"):
            matrix = to_float32(x)
            values = used = returned = block_values(look(matrix, recipe), recipe, format_name, x.format, given_with(x))
            for change in self.used:
                used = change(used)
            for change in self.stored:
                returned = change(returned)
            codes = elements(matrix, used, recipe, format_name, last_cast)
        assert values.keys() <= returned.keys()
        names = (name for name in recipe.outputs(format_name) if name != "codes")
        return {"codes": codes} | {name: returned[f"{name} as stored"] for name in names}


def _stage(behaviour: Behaviour) -> Staged | None:
    """What the faults before have left of the quantizer; None for a cast, or one that cannot be taken apart."""
    if behaviour.recipe is None or behaviour.reads:
        return None
    if behaviour.quantizer is quantize:
        return Staged()
    return behaviour.quantizer if isinstance(behaviour.quantizer, Staged) else None


def looking(around: Callable[[Look], Look], fits: Callable[[Recipe], bool] = lambda r: True) -> Edit:
    """Blocks are looked at in another way, where they are looked at at all."""

    def edit(behaviour: Behaviour) -> Behaviour | None:
        stage, r = _stage(behaviour), behaviour.recipe
        if stage is None or r is None or not fits(r) or not _looks(r):
            return None
        return replace(behaviour, quantizer=replace(stage, looks=(*stage.looks, around)))

    return edit


def _looks(r: Recipe) -> bool:
    return any(chain[0] in ("amax", "min", "max") for _, chain in r.steps)


def using(change: Change, fits: Callable[[Recipe], bool] = lambda r: True) -> Edit:
    """Elements are scaled with other values than those that are returned, or were given."""

    def edit(behaviour: Behaviour) -> Behaviour | None:
        stage, r = _stage(behaviour), behaviour.recipe
        if stage is None or r is None or not fits(r):
            return None
        return replace(behaviour, quantizer=replace(stage, used=(*stage.used, change)))

    return edit


def storing(change: Change, fits: Callable[[Recipe], bool] = lambda r: True) -> Edit:
    """Other values are returned than those that elements are scaled with."""

    def edit(behaviour: Behaviour) -> Behaviour | None:
        stage, r = _stage(behaviour), behaviour.recipe
        if stage is None or r is None or not fits(r):
            return None
        return replace(behaviour, quantizer=replace(stage, stored=(*stage.stored, change)))

    return edit


def of_blocks(change: Callable[[F32], F32]) -> Change:
    """The same change of every value that each block has one of."""

    def changed(values: Values) -> Values:
        return values | {
            name: change(value)
            for name, value in values.items()
            if isinstance(value, np.ndarray) and value.ndim == 2 and value.size > 1 and name not in OF_TENSOR
        }

    return changed
