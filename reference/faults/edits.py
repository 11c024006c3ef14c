"""The vocabulary in which faults are written: functions that edit a behaviour, or None where they change nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import Format, format_named
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.contracts.recipe import Chain, Destination, Recipe, Step
from narrowgauge.reference.behaviour import Behaviour, Buffers
from narrowgauge.reference.fast_codec import cast, to_float32
from narrowgauge.reference.policies import check_fits
from narrowgauge.reference.quantize import stored_scale
from narrowgauge.reference.steps import F32, named

Edit = Callable[[Behaviour], Behaviour | None]


def policy(**choices: Any) -> Edit:
    """Other choices in the cast policy."""

    def edit(behaviour: Behaviour) -> Behaviour | None:
        changed, fmt = replace(behaviour.policy, **choices), format_named(behaviour.written or behaviour.format)
        if fmt.bits >= 32:  # by the rules of IEEE 754 alone
            return None
        try:
            check_fits(changed, fmt)
        except BadInput:  # the format cannot express it: the fault cannot exist here
            return None
        return None if changed == behaviour.policy else replace(behaviour, policy=changed)

    return edit


def within(family: str | tuple[str, ...], edit: Edit) -> Edit:
    """The edit, for destinations of that family or those families alone."""
    families = (family,) if isinstance(family, str) else family
    return lambda b: edit(b) if format_named(b.format).family in families else None


def either(first: Edit, second: Edit) -> Edit:
    """One mistake that is written in two ways, for different destinations."""
    return lambda b: first(b) or second(b)


def through(format_name: str, sources: Callable[[Format], bool] = lambda source: True) -> Edit:
    """A value passes through a narrower format before the last cast: two roundings where one is right."""

    def passed(x: Coded) -> Coded:
        # Infinities are kept, as hardware does.
        narrow = cast(x, format_name, CastPolicy(overflow="special", infinity="special"))
        return Coded("float32", to_float32(narrow).view(np.uint32))

    def edit(behaviour: Behaviour) -> Behaviour | None:
        source = "float32" if behaviour.recipe else behaviour.source
        if source == format_name or not sources(format_named(source)):
            return None
        return replace(behaviour, before=(*behaviour.before, passed))

    return edit


def on_buffers(behaviour: Behaviour, change: Callable[[Buffers], Buffers]) -> Behaviour:
    """Other buffers: those that a quantizer returns, or those that a reader takes for its own."""

    def received(x: Coded) -> Coded:
        found = change({**given_with(x), "codes": x})
        codes = found.pop("codes")
        return Input(codes.format, codes.data, found)

    if behaviour.reads:
        return replace(behaviour, received=(*behaviour.received, received))
    return replace(behaviour, after=(*behaviour.after, change))


def on_scale(change: Callable[[F32], F32]) -> Edit:
    """Change the scale that is stored, and not the codes."""

    def edit(behaviour: Behaviour) -> Behaviour | None:
        scaled = behaviour.recipe
        if scaled is None or behaviour.reads or "scale" not in scaled.outputs(behaviour.format):
            return None

        def changed(buffers: Buffers) -> Buffers:
            with np.errstate(all="ignore"):
                other = np.asarray(change(to_float32(buffers["scale"])), np.float32)
            exact = Coded("float32", np.ascontiguousarray(other).view(np.uint32))
            return buffers | {"scale": stored_scale(exact, scaled)}

        return replace(behaviour, after=(*behaviour.after, changed))

    return edit


def recipe(change: Callable[[Recipe], Recipe | None]) -> Edit:
    """Another recipe of a quantizer."""

    def edit(behaviour: Behaviour) -> Behaviour | None:
        if behaviour.recipe is None or behaviour.reads:  # a reader knows nothing of how scales came about
            return None
        try:
            changed = change(behaviour.recipe)
        except BadInput:  # the edit makes no recipe: the fault cannot exist here
            return None
        return None if changed in (None, behaviour.recipe) else replace(behaviour, recipe=changed)

    return edit


def in_chain(of: str, old: str, new: Callable[[tuple[float | str, ...]], tuple[str | Step, ...]]) -> Edit:
    """Replace, or drop, the first step of a name in a chain of a recipe, "element" included. ``new`` has operands."""

    def change(r: Recipe) -> Recipe | None:
        chain = dict(r.steps).get(of) if of != "element" else r.element
        for place, step in enumerate(chain or ()):
            name, operands = named(step)
            if place and name == old and chain is not None:
                return _with_chain(r, of, (*chain[:place], *new(operands), *chain[place + 1 :]))
        return None

    return recipe(change)


def by_reciprocal(operands: tuple[float | str, ...]) -> tuple[Step, ...]:
    """In place of a division by the bound, or by a constant: a multiplication with its rounded reciprocal."""
    by = operands[0]
    if isinstance(by, str):
        return (("mul", "1/bound"),) if by == "bound" else (("div", by),)
    return (("mul", float(np.float32(1) / np.float32(by))),)


def _with_chain(r: Recipe, of: str, chain: Chain) -> Recipe:
    if of == "element":
        return replace(r, element=chain)
    return replace(r, steps=tuple((name, chain if name == of else old) for name, old in r.steps))


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


def written_as(pairs: Mapping[str, str]) -> Edit:
    """The buffer is labelled as one format, its bytes are codes of another: of the format that stands beside it."""

    def edit(behaviour: Behaviour) -> Behaviour | None:
        other = pairs.get(behaviour.format)
        if other is None or behaviour.written:
            return None
        try:
            check_fits(behaviour.policy, format_named(other))
        except BadInput:  # the other format cannot express the policy
            return None
        return replace(behaviour, written=other)

    return edit


def read_as(pairs: Mapping[str, str]) -> Edit:
    """Codes are read as those of another format: of the one that stands beside the source."""

    def edit(behaviour: Behaviour) -> Behaviour | None:
        other = pairs.get(behaviour.source)
        if other is None or (behaviour.recipe and not behaviour.reads) or behaviour.received or behaviour.before:
            return None
        return replace(behaviour, received=(lambda x: Input(other, x.data, given_with(x)),))

    return edit
