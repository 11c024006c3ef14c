"""Edits between the parts of a quantizer (``reference.staged``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from narrowgauge.contracts.recipe import OF_TENSOR, Recipe
from narrowgauge.reference.behaviour import Behaviour
from narrowgauge.reference.faults.edits import Edit
from narrowgauge.reference.quantize import Values
from narrowgauge.reference.staged import Change, Look, Staged
from narrowgauge.reference.steps import F32


def _stage(behaviour: Behaviour) -> Staged | None:
    """What the faults before have left of the quantizer; None for a cast, or one that cannot be taken apart."""
    if behaviour.recipe is None or behaviour.reads:
        return None
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
