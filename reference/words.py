"""Recipes in words: each step as what it does to a value, for people."""

from __future__ import annotations

from dataclasses import fields

from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.contracts.recipe import Chain, Destination, Recipe, Step
from narrowgauge.reference.steps import named, operands_of

#: a step of ``reference.steps`` -> its words; {} is its operand
WORDS: dict[str, str] = {
    "add": "plus {}",
    "add_within_int8": "plus {} and held to -128 to 127 (NaN: {})",
    "sub": "minus {}",
    "rsub": "taken from {}",
    "mul": "times {}",
    "div": "over {}",
    "rdiv": "{} over it",
    "recip": "1 over it",
    "recip_or_zero": "1 over it (of 0: 0)",
    "recip_approx": "about 1 over it (one ulp, no subnormals)",
    "at_least": "at least {} (NaN: {})",
    "at_most": "at most {} (NaN: {})",
    "at_least_or_nan": "at least {} (NaN stays)",
    "at_most_or_nan": "at most {} (NaN stays)",
    "zero_to": "of 0: {}",
    "zero_where_zero": "0 where {} is 0",
    "nan_to": "of NaN: {}",
    "not_finite_to": "of NaN or infinity: {}",
    "round": "rounded to {}",
    "ceil_pow2": "up to a power of two, by its bits",
    "floor_pow2": "down to a power of two, by its bits",
    "even_pow2": "to a power of two, up from half a unit of {} mantissa bits",
    "exp2_ceil_log2": "up to a power of two, by exp2(ceil(log2))",
    "exp2_floor_log2": "down to a power of two, by exp2(floor(log2))",
    "exp2_ceil_log2_in": "up to a power of two, by exp2(ceil(log2)) in {}",
    "exp2_floor_log2_in": "down to a power of two, by exp2(floor(log2)) in {}",
    "abs": "without its sign",
    "rint": "to the nearest whole number, ties to even",
    "half_away": "to the nearest whole number, ties away from 0",
    "add_half_and_cut": "plus a half away from 0, then cut",
    "trunc": "cut to a whole number",
    "clamp_fmin_first": "held to ±{} (NaN: +{})",
    "clamp_fmax_first": "held to ±{} (NaN: -{})",
    "clamp_keep_nan": "held to ±{} (NaN stays)",
}
#: what becomes of NaN elements when the largest magnitude is sought
AMAX = {"drop": "NaN counts as nothing", "keep": "NaN makes it NaN", "all": "NaN counts as nothing, unless all are NaN"}


def in_words(chain: Chain) -> str:
    """``("amax", ("div", "bound"))`` is "amax, over bound"."""
    return ", ".join([str(chain[0]), *map(step_in_words, chain[1:])])


def step_in_words(step: str | Step) -> str:
    """``("div", "bound")`` is "over bound"."""
    name, operands = named(step)
    return WORDS[name].replace("{}", _operand(operands[0]) if operands else "")


def _operand(part: float | str) -> str:
    if isinstance(part, str):
        return "x's own format" if part == "source" else part
    return f"{part:.9g}"


def facts_of(recipe: Recipe) -> list[tuple[str, str]]:
    """Name and words of everything that a recipe fixes, in the order in which it is done."""
    stored = "" if recipe.scale_format == "float32" else f", stored as {recipe.scale_format} by {recipe.scale_cast}"
    asks = operands_of(recipe) & {"amax", "tensor_amax"}
    said = [("one scale for", f"a {recipe.blocks}" + (" (row)" if str(recipe.blocks) == "token" else "") + stored)]
    said += [("given", ", ".join(recipe.inputs))] if recipe.inputs else []
    said += [("amax", f"the largest magnitude; {AMAX[recipe.amax_nan]}")] if asks else []
    said += [(name, in_words(chain)) for name, chain in recipe.steps]
    said += [("element", in_words(recipe.element))]
    said += [(f"to {d.format}", destination_in_words(d)) for d in recipe.destinations]
    return [*said, ("source", recipe.source)]


def destination_in_words(destination: Destination) -> str:
    policy = destination.cast
    said = policy if isinstance(policy, str) else policy_in_words(policy)
    return f"bound {destination.bound:g}, cast {said}"


def policy_in_words(policy: CastPolicy) -> str:
    """What a policy without a name chooses otherwise than ``CastPolicy()`` does."""
    chosen = ((f.name, getattr(policy, f.name), f.default) for f in fields(policy))
    return ", ".join(f"{name} {value}" for name, value, usual in chosen if value != usual)
