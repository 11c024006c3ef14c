"""What a kernel must return: an interval per output, exact where both ends agree.

Inputs that are known exactly give exact outputs. An input that is itself an interval (the result of an earlier stage
whose last bits are open) gives an interval, since rounding, scaling and clamping are monotone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.operations import Claim, Then
from narrowgauge.contracts.recipe import Recipe
from narrowgauge.reference.behaviour import Behaviour, Buffers, behaviour_of, resolved
from narrowgauge.reference.fast_codec import cast, decode_values, to_float32
from narrowgauge.reference.quantize import Values, block_values, elements, statistics
from narrowgauge.reference.steps import F32
from narrowgauge.reference.wide import wide_result


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


def expected(claim: Claim, x: Coded | Interval) -> Expected:
    """The outputs that fulfil a claim for an input tensor. Raises ``BadInput`` for a claim or input that cannot be."""
    behaviour = behaviour_of(claim)
    if x.format != claim.source:
        raise BadInput(f"{claim}: the input is {x.format}; expected {claim.source}")
    return outputs_of(behaviour, x)


def outputs_of(behaviour: Behaviour, x: Coded | Interval) -> Expected:
    """The outputs that a behaviour may give for an input tensor, or for any tensor of an interval."""
    if isinstance(x, Coded):
        for change in behaviour.received:
            x = change(x)
        behaviour = replace(behaviour, received=())
    given = given_with(x) if isinstance(x, Coded) else {}
    if behaviour.first and isinstance(x, Coded):
        x = Interval(*wide_result(x, behaviour.first))
        behaviour = replace(behaviour, first="")
    if isinstance(x, Coded) or x.exact:
        exact = behaviour.run(x if isinstance(x, Coded) else Input(x.format, x.low.data, given))
        return {name: Interval.exactly(value) for name, value in exact.items()}
    if behaviour.recipe is None:
        return {"codes": _cast_interval(behaviour, x)}
    return _quantize_interval(behaviour, x, given)


def quantized(claim: Claim, x: Coded) -> Coded:
    """What a claim's recipe is applied to, with what the recipe is given: x, or a result of what comes first."""
    if not isinstance(claim.contract, Then):
        return x
    given = {name: value for name, value in given_with(x).items() if name in resolved(claim).inputs}
    return Input(x.format, wide_result(x, claim.contract.first)[0].data, given)


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
    recipe = behaviour.recipe
    assert recipe is not None
    _check_monotone(recipe)
    low, high = to_float32(x.low), to_float32(x.high)
    if np.isnan(low).any() or np.isnan(high).any():
        raise BadInput("an input interval with NaN has no order; give NaN elements exactly, in a row of their own")
    with np.errstate(all="ignore"):
        nearest = np.where((low <= 0) & (high >= 0), np.float32(0), np.minimum(np.abs(low), np.abs(high)))
        farthest = np.maximum(np.abs(low), np.abs(high))
        corners = [
            block_values(statistics(end.astype(np.float32), recipe), recipe, behaviour.format, x.format, given)
            for end in (nearest, farthest)
        ]
        runs = [_outputs(behaviour, recipe, end, values) for end in (low, high) for values in corners]
    return {name: _hull([run[name] for run in runs]) for name in runs[0]}


def _outputs(behaviour: Behaviour, recipe: Recipe, matrix: F32, values: Values) -> Buffers:
    """What a quantizer returns whose blocks have these values."""
    outputs = {"codes": elements(matrix, values, recipe, behaviour.format, behaviour.last_cast)}
    outputs |= {name: values[f"{name} as stored"] for name in recipe.outputs(behaviour.format) if name != "codes"}
    for change in behaviour.after:
        outputs = change(outputs)
    return outputs


def _check_monotone(recipe: Recipe) -> None:
    """Raise ``BadInput`` for a recipe of which the corners do not bound what lies between."""
    if not {str(chain[0]) for _, chain in recipe.steps}.isdisjoint(("min", "max")):
        raise BadInput(f"recipe {recipe.name!r}: what it gives for an interval of inputs is not derived")


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
