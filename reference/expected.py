"""What a kernel must return: an interval per output, exact where both ends agree."""

from __future__ import annotations

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.operations import Claim, Then
from narrowgauge.reference.behaviour import Behaviour, Promised, promised, resolved
from narrowgauge.reference.convert.converting import Converting
from narrowgauge.reference.convert.run import converted
from narrowgauge.reference.interval import Expected, Interval, is_monotone, tensor_outputs
from narrowgauge.reference.kv.call import sized_to
from narrowgauge.reference.kv.outputs import paged_outputs
from narrowgauge.reference.kv.paged import Paged
from narrowgauge.reference.matmul.multiplying import Multiplying
from narrowgauge.reference.matmul.run import multiplied
from narrowgauge.reference.wide.run import check_chosen, ends_of, wide_result
from narrowgauge.reference.wide.widening import Widening


def expected(claim: Claim, x: Coded | Interval) -> Expected:
    """The outputs that fulfil a claim for an input tensor, with what comes beside it.

    Raises ``BadInput`` for a claim or input that cannot be.
    """
    behaviour = promised(claim)
    if x.format != claim.source:
        raise BadInput(f"{claim}: the input is {x.format}; expected {claim.source}")
    if isinstance(behaviour, Behaviour):
        _check_derived(behaviour, x)
    if isinstance(behaviour, Widening) and isinstance(x, Coded):
        check_chosen(behaviour.wide, x)
    return outputs_of(behaviour, x)


def _check_derived(behaviour: Behaviour, x: Coded | Interval) -> None:
    recipe = behaviour.recipe
    if recipe is not None and not is_monotone(recipe) and (behaviour.first or not _is_known(x)):
        raise BadInput(f"recipe {recipe.name!r}: what it gives for an interval of inputs is not derived")


def _is_known(x: Coded | Interval) -> bool:
    return isinstance(x, Coded) or x.exact


def promised_for(claim: Claim, x: Coded) -> Promised:
    """What a claim promises for this input: on a cache with blocks of the width of this call's heads, so that whoever
    edits it edits those. Raises ``BadInput`` as ``promised``, and for a call that is none."""
    right = promised(claim)
    return sized_to(right, x) if isinstance(right, Paged) else right


def outputs_of(behaviour: Promised, x: Coded | Interval) -> Expected:
    """The outputs that a behaviour may give, right or wrong, for an input tensor, or for any tensor of an interval."""
    if isinstance(behaviour, Paged):
        return paged_outputs(behaviour, x)
    if isinstance(behaviour, Widening):
        if not isinstance(x, Coded):
            raise BadInput("a wide operation is given numbers that are known exactly; an interval of inputs came")
        return {name: Interval(*ends) for name, ends in ends_of(behaviour, x).items()}
    if isinstance(behaviour, Converting):
        if not isinstance(x, Coded):
            raise BadInput("what a checkpoint stores is known exactly; an interval of inputs came")
        return {name: Interval.exactly(value) for name, value in converted(behaviour, x).items()}
    if isinstance(behaviour, Multiplying):
        if not isinstance(x, Coded):
            raise BadInput("operands of a product are known exactly; an interval of inputs came")
        return multiplied(behaviour, x)
    return tensor_outputs(behaviour, x)


def quantized(claim: Claim, x: Coded) -> Coded:
    """What a claim's recipe is applied to, with what the recipe is given: x, or a result of what comes first."""
    if not isinstance(claim.contract, Then):
        return x
    given = {name: value for name, value in given_with(x).items() if name in resolved(claim).inputs}
    return Input(x.format, wide_result(x, claim.contract.first)[0].data, given)
