"""Edits of a recipe's chains, for the faults of quantizers. Each gives None where it changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.recipe import Chain, Destination, Recipe, Step
from narrowgauge.reference.behaviour import Behaviour, Buffers
from narrowgauge.reference.fast_codec import to_float32
from narrowgauge.reference.faults import edits
from narrowgauge.reference.faults.edits import Edit
from narrowgauge.reference.quantize import LastCast, quantize
from narrowgauge.reference.steps import STEPS, named

#: a step's name and operands -> the steps in its place; None leaves it as it is
Swap = Callable[[str, tuple[float | str, ...]], tuple[str | Step, ...] | None]
#: steps that bring a scale to a power of two, and where each goes
POWERS = {
    "ceil_pow2": "up",
    "exp2_ceil_log2": "up",
    "floor_pow2": "down",
    "exp2_floor_log2": "down",
    "exp2_ceil_log2_in": "up",
    "exp2_floor_log2_in": "down",
    "even_pow2": "even",
}
#: the same of the casts by which a scale is stored as a power of two
POWER_CASTS = {
    "e8m0_ceil": "up",
    "e8m0_rceil": "up",
    "e8m0_floor": "down",
    "e8m0_nearest": "nearest",
    "e8m0_even": "even",
}


def chains(r: Recipe) -> dict[str, Chain]:
    """Every chain by the name of what it makes; that of the elements under "element"."""
    return {**dict(r.steps), "element": r.element}


def with_chains(r: Recipe, changed: Mapping[str, Chain]) -> Recipe:
    """The recipe with other chains under the same names."""
    steps = tuple((name, changed.get(name, chain)) for name, chain in r.steps)
    return replace(r, steps=steps, element=changed.get("element", r.element))


def swapped(swap: Swap, of: tuple[str, ...] = (), once: bool = False) -> Edit:
    """Steps replaced, or dropped, in the chains ``of``, or in all. ``once``: in each chain the first alone."""

    def in_one(chain: Chain) -> Chain:
        done: list[str | Step] = [chain[0]]
        left = True
        for step in chain[1:]:
            other = swap(*named(step)) if left else None
            left = left and not (once and other is not None)
            done.extend((step,) if other is None else other)
        return tuple(done)

    def change(r: Recipe) -> Recipe:
        return with_chains(r, {n: in_one(chain) for n, chain in chains(r).items() if not of or n in of})

    return edits.recipe(change)


def dropped(*names: str, of: tuple[str, ...] = ()) -> Edit:
    """Steps of these names are left out."""
    return swapped(lambda name, operands: () if name in names else None, of)


def renamed(names: Mapping[str, str], of: tuple[str, ...] = ()) -> Edit:
    """Steps by another name, with the same operands."""
    return swapped(lambda name, operands: ((names[name], *operands),) if name in names else None, of)


def appended(of: str, *steps: str | Step) -> Edit:
    """A chain goes on with these steps."""

    def change(r: Recipe) -> Recipe | None:
        chain = chains(r).get(of)
        return None if chain is None else with_chains(r, {of: (*chain, *steps)})

    return edits.recipe(change)


def begun(starts: tuple[str, ...], *steps: str | Step) -> Edit:
    """Chains that start at one of these values go through these steps first. Elements do not."""

    def change(r: Recipe) -> Recipe:
        return with_chains(r, {n: (c[0], *steps, *c[1:]) for n, c in r.steps if c[0] in starts})

    return edits.recipe(change)


def named_otherwise(old: str, new: str, of: tuple[str, ...] = ()) -> Edit:
    """Another value is used in the chains ``of``, or in all."""

    def change(r: Recipe) -> Recipe:
        return with_chains(r, {n: _renamed(c, old, new) for n, c in chains(r).items() if not of or n in of})

    return edits.recipe(change)


def _renamed(chain: Chain, old: str, new: str) -> Chain:
    def other(step: str | Step) -> str | Step:
        name, operands = named(step)
        return (name, *(new if o == old else o for o in operands)) if operands else step

    return (new if chain[0] == old else chain[0], *map(other, chain[1:]))


def in_its_place(value: str, *steps: str | Step, of: tuple[str, ...] = ()) -> Edit:
    """What is made of a value by these steps is used wherever the value was, in the chains ``of`` or in all."""
    other = f"other {value}"
    made_by = "scale" if value == "stored" else value

    def change(r: Recipe) -> Recipe | None:
        place = next((n for n, (name, _) in enumerate(r.steps) if name == made_by), -1)
        if any(name == other for name, _ in r.steps) or (place < 0 and made_by not in r.inputs):
            return None
        before, after = r.steps[: place + 1], r.steps[place + 1 :]
        later = tuple((n, _renamed(c, value, other) if not of or n in of else c) for n, c in after)
        element = _renamed(r.element, value, other) if not of or "element" in of else r.element
        if (later, element) == (after, r.element):
            return None
        return replace(r, steps=(*before, (other, (value, *steps)), *later), element=element)

    return edits.recipe(change)


def bound_of(bounds: Mapping[float, float], family: str) -> Edit:
    """Another number to divide amax by, where a destination of that family has one of these."""

    def of(d: Destination) -> float | None:
        return bounds.get(d.bound) if format_named(d.format).family == family else None

    return edits.bound(of)


def both(first: Edit, second: Edit) -> Edit:
    """Two changes that are one mistake."""

    def edit(behaviour: Behaviour) -> Behaviour | None:
        changed = first(behaviour)
        return None if changed is None else second(changed)

    return edit


def outputs(change: Callable[[Buffers], Buffers | None], fits: Callable[[Recipe], bool] = lambda r: True) -> Edit:
    """Other codes, scales or zero points. ``change`` gives None for buffers that it cannot change."""

    def edit(behaviour: Behaviour) -> Behaviour | None:
        if behaviour.recipe is None or behaviour.reads or not fits(behaviour.recipe):
            return None
        return replace(behaviour, after=(*behaviour.after, lambda made: change(made) or made))

    return edit


def scales_element(name: str, operands: tuple[float | str, ...]) -> bool:
    """Whether a step of the elements' chain is the one that scales them."""
    return name in ("mul", "div") and isinstance(operands[0], str)


def power_of_two(direction: str, step: str | Step, cast: str) -> Edit:
    """The scale becomes a power of two by another rounding, wherever that is done: by a step, or as it is stored."""

    def change(r: Recipe) -> Recipe | None:
        chain = dict(r.steps).get("scale")
        places = [n for n, s in enumerate(chain or ()) if n and named(s)[0] in POWERS]
        stored = r.scale_format == "float8_e8m0fnu"
        if chain is None or not (places or stored):
            return None
        if direction == (POWERS[named(chain[places[-1]])[0]] if places else POWER_CASTS.get(r.scale_cast)):
            return None
        if stored:  # what is stored is rounded once, by the cast
            kept: Chain = tuple(s for n, s in enumerate(chain) if n not in places)
            return replace(with_chains(r, {"scale": kept}), scale_cast=cast)
        return with_chains(r, {"scale": tuple(step if n in places else s for n, s in enumerate(chain))})

    return edits.recipe(change)


def without_power(r: Recipe) -> Recipe | None:
    """The recipe whose scale stays what it is before it becomes a power of two, in float32."""
    chain = dict(r.steps).get("scale")
    if chain is None:
        return None
    plain = with_chains(r, {"scale": (chain[0], *(s for s in chain[1:] if named(s)[0] not in POWERS))})
    if r.scale_format == "float8_e8m0fnu":
        return replace(plain, scale_format="float32", scale_cast="ieee")
    return None if plain == r else plain


def _scale_from_encode(r: Recipe) -> Recipe | None:
    """The multiplier is bound / amax, and the scale its reciprocal."""
    made = dict(r.steps)
    scale, encode = made.get("scale", ()), made.get("encode", ())
    division = next((n for n, s in enumerate(scale) if s in (("div", "bound"), ("mul", "1/bound"))), 0)
    if not division or division + 1 < len(scale) or encode[:1] != ("scale",) or r.scale_format != "float32":
        return None
    first: Chain = (*scale[:division], ("rdiv", "bound"))
    changed = {"encode": first, "scale": ("encode", "recip")}
    order = [n for n, _ in r.steps if n not in changed]
    return replace(r, steps=(*((n, made[n]) for n in order), *changed.items()))


scale_from_encode = edits.recipe(_scale_from_encode)


def _exact(r: Recipe) -> Recipe | None:
    """Elements are scaled by what the scale was before it became a power of two, or was stored in fewer bits."""
    if r.static:
        return None
    at = [name for name, _ in r.steps].index("scale")
    used, chain = ("scale" if r.scale_format == "float32" else "stored"), r.steps[at][1]
    exact: Chain = (chain[0], *(s for s in chain[1:] if named(s)[0] not in POWERS))
    if used == "scale" and exact == chain:
        return None
    later = tuple((name, _renamed(c, used, "exact")) for name, c in r.steps[at + 1 :])
    return replace(
        r,
        steps=(*r.steps[:at], ("exact", exact), r.steps[at], *later),
        element=_renamed(r.element, used, "exact"),
    )


def _plain_float32(r: Recipe) -> bool:
    return r.scale_format == "float32" and not r.static and without_power(r) is None


def _stored_as_power(behaviour: Behaviour) -> Behaviour | None:
    if behaviour.recipe is None or not _plain_float32(behaviour.recipe):
        return None
    return edits.on_scale(STEPS["ceil_pow2"])(behaviour)


codes_by_exact_scale = edits.either(edits.recipe(_exact), _stored_as_power)


def zero_block_of_one(scale_cast: str = "") -> Edit:
    """The scale of a block of zeros is 1 before the tensor's is multiplied in; and it is stored by another cast."""

    def change(r: Recipe) -> Recipe | None:
        chain = dict(r.steps).get("scale", ())
        at = next((n for n, s in enumerate(chain) if n and "global_scale" in named(s)[1]), 0)
        if not at:
            return None
        other: Chain = (*chain[:at], ("zero_to", 1.0), *chain[at:])
        return replace(with_chains(r, {"scale": other}), scale_cast=scale_cast or r.scale_cast)

    return edits.recipe(change)


def quantized_twice(behaviour: Behaviour) -> Behaviour | None:
    """What is quantized has been quantized before, by the scale that did not become a power of two."""
    plain = behaviour.recipe and without_power(behaviour.recipe)
    if plain is None or behaviour.reads or plain.inputs:
        return None
    inner = behaviour.quantizer

    def twice(x: Coded, r: Recipe, format_name: str, last_cast: LastCast) -> Buffers:
        first = quantize(x, plain, format_name)
        at = np.ix_(*(block_at(n, b) for n, b in zip(x.shape, (plain.blocks.rows, plain.blocks.columns), strict=True)))
        with np.errstate(all="ignore"):
            values = to_float32(first["codes"]) * to_float32(first["scale"])[at]
        again = Coded("float32", np.ascontiguousarray(values, np.float32).view(np.uint32))
        return inner(Input("float32", again.data, given_with(x)), r, format_name, last_cast)

    return replace(behaviour, quantizer=twice)


def block_at(size: int, each: int) -> npt.NDArray[np.intp]:
    """The block of each place along an axis. ``each`` 0 is the whole axis."""
    return np.arange(size) // each if each else np.zeros(size, np.intp)
