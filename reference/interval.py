"""Outputs as intervals: what a behaviour may give for an input, or for any input of an interval.

Inputs that are known exactly give exact outputs, unless a step of the recipe leaves its last bit open. An input that
is itself an interval (the result of an earlier stage whose last bits are open) gives an interval, since rounding,
scaling and clamping are monotone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.recipe import Recipe
from narrowgauge.reference.behaviour import Behaviour, Buffers
from narrowgauge.reference.fast_codec import cast, decode_values, to_float32
from narrowgauge.reference.open_steps import every_answer, is_open, ways
from narrowgauge.reference.staged import Staged
from narrowgauge.reference.wide.run import wide_result


@dataclass(frozen=True, eq=False)
class Interval:
    """All codes whose value lies from ``low``'s to ``high``'s.

    NaN at both ends is NaN. NaN at one end stands for overflow in a format without infinity: NaN, or any value from
    the other end outward.
    """

    low: Coded
    high: Coded

    @classmethod
    def exactly(cls, value: Coded) -> Interval:
        return cls(value, value)

    @property
    def format(self) -> str:
        return self.low.format

    @property
    def open(self) -> npt.NDArray[np.bool_]:
        """Which elements have more than one acceptable value."""
        if self.low is self.high:
            return np.zeros(self.low.shape, np.bool_)
        low, high = decode_values(self.low), decode_values(self.high)
        both_nan = np.isnan(low) & np.isnan(high)
        return np.asarray((low != high) & ~both_nan)

    @property
    def exact(self) -> bool:
        return not bool(self.open.any())


Expected = dict[str, Interval]


def tensor_outputs(behaviour: Behaviour, x: Coded | Interval) -> Expected:
    """The outputs that a behaviour may give, right or wrong, for an input tensor, or for any tensor of an interval."""
    if isinstance(x, Coded):
        for change in behaviour.received:
            x = change(x)
        behaviour = replace(behaviour, received=())
    given = given_with(x) if isinstance(x, Coded) else {}
    if behaviour.first and isinstance(x, Coded):
        x = Interval(*wide_result(x, behaviour.first))
        behaviour = replace(behaviour, first="")
    if isinstance(x, Coded) or x.exact:
        exact = x if isinstance(x, Coded) else Input(x.format, x.low.data, given)
        if isinstance(behaviour.quantizer, Staged) and not behaviour.reads and is_open(behaviour.recipe):
            return _hulls(every_answer(behaviour, behaviour.quantizer, exact))
        return _exactly(behaviour.run(exact))
    if behaviour.recipe is None:
        return {"codes": _cast_interval(behaviour, x)}
    return _quantize_interval(behaviour, x, given)


def _exactly(outputs: Buffers) -> Expected:
    return {name: Interval.exactly(value) for name, value in outputs.items()}


def _cast_interval(behaviour: Behaviour, x: Interval) -> Interval:
    """A cast is monotone, but for overflow to NaN, which one end may do and both may not on opposite sides."""
    ends = Interval(cast(x.low, behaviour.format, behaviour.policy), cast(x.high, behaviour.format, behaviour.policy))
    low, high = decode_values(ends.low), decode_values(ends.high)
    given = decode_values(x.low), decode_values(x.high)
    apart = np.isnan(low) & np.isnan(high) & (np.signbit(given[0]) != np.signbit(given[1]))
    if apart.any() or (np.isnan(given[0]) != np.isnan(given[1])).any():
        raise BadInput("an input interval from overflow to overflow, or to a NaN, says nothing; give a narrower one")
    return ends


def _quantize_interval(behaviour: Behaviour, x: Interval, given: Mapping[str, Coded]) -> Expected:
    """Bounds of codes and scale from the corners: each stage is monotone in amax, and in the element for its sign."""
    recipe, stages, fmt = behaviour.recipe, behaviour.quantizer, behaviour.format
    assert recipe is not None
    if not isinstance(stages, Staged) or not is_monotone(recipe):  # a fault may be so: one answer stands for all
        return _exactly(behaviour.run(Input(x.format, x.low.data, given)))
    low, high = to_float32(x.low), to_float32(x.high)
    if np.isnan(low).any() or np.isnan(high).any():
        raise BadInput("an input interval with NaN has no order; give NaN elements exactly, in a row of their own")
    with np.errstate(all="ignore"):
        nearest = np.where((low <= 0) & (high >= 0), np.float32(0), np.minimum(np.abs(low), np.abs(high)))
        farthest = np.maximum(np.abs(low), np.abs(high))
        recipe, combinations = ways(recipe)
        runs = []
        for steps in combinations:  # every variant is monotone too, and of two that differ all runs are taken
            corners = [
                stages.values(end.astype(np.float32), recipe, fmt, x.format, given, steps)
                for end in (nearest, farthest)
            ]
            runs += [
                behaviour.finished(stages.outputs(end, values, recipe, fmt, behaviour.last_cast, steps))
                for end in (low, high)
                for values in corners
            ]
    return {name: _hull([run[name] for run in runs]) for name in runs[0]}


def is_monotone(recipe: Recipe) -> bool:
    """Whether the corners of an interval of inputs bound what a recipe gives for what lies between."""
    return {str(chain[0]) for _, chain in recipe.steps}.isdisjoint(("min", "max"))


def _hulls(runs: Iterable[Buffers]) -> Expected:
    """The hull of every output of all runs; of one run alone, that itself. Two by two, since there may be many."""
    found: Expected = {}
    for run in runs:
        for name, value in run.items():
            found[name] = _wider(found[name], value) if name in found else Interval.exactly(value)
    return found


def _wider(hull: Interval, value: Coded) -> Interval:
    """A hull that holds one more answer. Of NaN and numbers, NaN stands at the end to which the numbers point."""
    if np.array_equal(hull.low.data, value.data) and np.array_equal(hull.high.data, value.data):
        return hull
    low, high, v = (decode_values(c) for c in (hull.low, hull.high, value))
    nan, more = np.isnan(low) & np.isnan(high) & ~np.isnan(v), np.isnan(v) & ~np.isnan(low) & ~np.isnan(high)
    downward = np.where(nan, np.signbit(v), np.signbit(high))
    to_low, to_high = (v < low) | (nan & ~downward) | (more & downward), (v > high) | (nan & downward)
    to_high |= more & ~downward
    ends = (np.where(to, value.data, end.data) for to, end in ((to_low, hull.low), (to_high, hull.high)))
    return Interval(*(Coded(value.format, end.astype(value.data.dtype)) for end in ends))


def _hull(corners: list[Coded]) -> Interval:
    """The smallest interval that holds every corner, element by element. A NaN corner makes a NaN."""
    fmt = format_named(corners[0].format)
    stack = np.stack([c.codes for c in corners])
    value = np.stack([decode_values(c) for c in corners])
    value[(value == 0) & np.signbit(value)] = -(2.0**-1074)  # -0 is below 0: where both are corners, either will do
    pick_low, pick_high = np.argmin(value, axis=0)[None], np.argmax(value, axis=0)[None]  # both find a NaN first
    low = np.take_along_axis(stack, pick_low, 0)[0].astype(fmt.storage)
    high = np.take_along_axis(stack, pick_high, 0)[0].astype(fmt.storage)
    return Interval(Coded(fmt.name, low), Coded(fmt.name, high))
