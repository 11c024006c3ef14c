"""The vocabulary in which faults are written: functions that edit a behaviour, or None where they change nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.recipe import Destination, Recipe, Step
from narrowgauge.reference.behaviour import Behaviour, Buffers
from narrowgauge.reference.fast_codec import to_float32
from narrowgauge.reference.policies import check_fits
from narrowgauge.reference.steps import F32

Edit = Callable[[Behaviour], Behaviour | None]


def policy(**choices: Any) -> Edit:
    """Other choices in the cast policy."""

    def edit(behaviour: Behaviour) -> Behaviour | None:
        changed, fmt = replace(behaviour.policy, **choices), format_named(behaviour.format)
        if fmt.bits >= 32:  # by the rules of IEEE 754 alone
            return None
        try:
            check_fits(changed, fmt)
        except BadInput:  # the format cannot express it: the fault cannot exist here
            return None
        return None if changed == behaviour.policy else replace(behaviour, policy=changed)

    return edit


def through(format_name: str) -> Edit:
    """A value passes through a narrower format before the last cast: two roundings where one is right."""

    def edit(behaviour: Behaviour) -> Behaviour | None:
        if behaviour.recipe is None and behaviour.source == format_name:
            return None
        return replace(behaviour, narrowed=(*behaviour.narrowed, format_name))

    return edit


def sign_kept_on_zero(of: str) -> Edit:
    """A zero that came from a negative value gets the sign bit, in a format that has no negative zero."""
    fmt = format_named(of)

    def after(x: Coded, outputs: Buffers) -> Buffers:
        codes = outputs["codes"].data
        underflowed = (codes == 0) & np.signbit(to_float32(x)) & ~np.isnan(to_float32(x))
        return outputs | {"codes": Coded(of, np.where(underflowed, fmt.sign_bit, codes).astype(fmt.storage))}

    def edit(behaviour: Behaviour) -> Behaviour | None:
        if behaviour.format != of:
            return None

        return replace(behaviour, after=(*behaviour.after, after))

    return edit


def on_scale(change: Callable[[F32], F32]) -> Edit:
    """Change the scale that is stored, and not the codes."""

    def edit(behaviour: Behaviour) -> Behaviour | None:
        if behaviour.recipe is None:
            return None

        def after(_: Coded, outputs: Buffers) -> Buffers:
            with np.errstate(all="ignore"):
                changed = np.asarray(change(to_float32(outputs["scale"])), np.float32)
            return outputs | {"scale": Coded("float32", np.ascontiguousarray(changed).view(np.uint32))}

        return replace(behaviour, after=(*behaviour.after, after))

    return edit


def recipe(change: Callable[[Recipe], Recipe | None]) -> Edit:
    """Another recipe."""

    def edit(behaviour: Behaviour) -> Behaviour | None:
        if behaviour.recipe is None:
            return None
        try:
            changed = change(behaviour.recipe)
        except BadInput:  # the edit makes no recipe: the fault cannot exist here
            return None
        return None if changed in (None, behaviour.recipe) else replace(behaviour, recipe=changed)

    return edit


def in_scale_chain(old: str, new: Callable[[Step], tuple[Step, ...]]) -> Edit:
    """Replace, or drop, the first step of that name in the scale's chain."""

    def change(r: Recipe) -> Recipe | None:
        for place, step in enumerate(r.scale):
            if place and step[0] == old:
                assert isinstance(step, tuple)
                return replace(r, scale=(*r.scale[:place], *new(step), *r.scale[place + 1 :]))
        return None

    return recipe(change)


def bound(of: Callable[[Destination], float | None]) -> Edit:
    """Another number to divide amax by and clamp to, for the destinations where ``of`` gives one."""

    def change(r: Recipe) -> Recipe:
        destinations = tuple(replace(d, bound=of(d) or d.bound) for d in r.destinations)
        return replace(r, destinations=destinations)

    def edit(behaviour: Behaviour) -> Behaviour | None:
        changed = recipe(change)(behaviour)
        if changed is None or changed.recipe is None or behaviour.recipe is None:
            return None
        same = changed.recipe.destination(behaviour.format) == behaviour.recipe.destination(behaviour.format)
        return None if same else changed

    return edit


def written_as(of: str, other: str) -> Edit:
    """The buffer is labelled ``of``, its bytes are codes of ``other``."""

    def edit(behaviour: Behaviour) -> Behaviour | None:
        if behaviour.format != of or behaviour.written:
            return None
        return replace(behaviour, written=other)

    return edit
