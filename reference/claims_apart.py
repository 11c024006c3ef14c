"""Why two kernels that both keep their claims may give two codes: what a claim leaves open, and where two claims part.

From the claims alone: of a digest nobody can say more than that it differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import zip_longest
from typing import Any, Literal

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.operations import (
    Attend,
    Cast,
    Claim,
    Convert,
    Dequantize,
    KvWrite,
    Matmul,
    Observe,
    OfCache,
    Quantize,
    Then,
    WideOp,
)
from narrowgauge.contracts.recipe import Recipe
from narrowgauge.reference import policies, recipes
from narrowgauge.reference.behaviour import behaviour_of, converting_of, multiplying_of, promised
from narrowgauge.reference.fast_codec import cast
from narrowgauge.reference.kv import caches
from narrowgauge.reference.kv.paged import Paged
from narrowgauge.reference.open_steps import open_names
from narrowgauge.reference.portrait import portrait, probes
from narrowgauge.reference.wide.run import resolve_wide

#: ``nan``: one code for each element, but for the bits of NaN; ``interval``: several codes are right; ``all``: any are
Freedom = Literal["nan", "interval", "all"]
#: fields of declarations that say where a rule stands, and not what it does
_WORDS = ("name", "source", "about", "authority", "evidence", "grade", "exceptions", "applies", "destinations")
#: fields of contracts that name a rule, which is looked up
_RULES = ("policy", "recipe", "product", "accumulator", "cache", "wide", "conversion")


@dataclass(frozen=True)
class LeftOpen:
    """What a claim leaves to a kernel."""

    freedom: Freedom
    said: str


#: what ``compare`` asks of an expectation that is a point: equal codes, NaN as a class
NAN = LeftOpen(
    "nan",
    "the claim leaves one code for each element, but for NaN, of which any sign and payload passes: only NaN's bits "
    "part, or the width of the integers that hold the codes",
)


def left_open(claim: Claim) -> LeftOpen:
    """What a claim leaves open. Raises ``BadInput`` for a rule that does not exist here."""
    contract = claim.contract
    if isinstance(contract, Observe):
        return LeftOpen("all", "nothing is claimed, so any codes pass")
    promised(claim)  # a rule must exist: of two that came as data, both named "own", nobody knows that they are one
    if isinstance(contract, Quantize):
        return _of_recipe(recipes.resolve(contract.recipe))
    if isinstance(contract, Convert):
        quantizer = converting_of(claim).quantizer
        return NAN if quantizer is None else _of_recipe(quantizer.recipe)
    if isinstance(contract, Then):
        return LeftOpen("interval", f"{contract.first} leaves its last bits open, and so codes that they decide")
    if isinstance(contract, Attend):
        return LeftOpen("interval", "of attention every order of float32 sums is right (docs/kv-attention.md)")
    if isinstance(contract, OfCache):
        return _of_cache(claim)
    if isinstance(contract, Matmul):
        kept = multiplying_of(claim).accumulator
        said = f"any sum within the bound of accumulator {kept.name} is right ({kept.about}; docs/bounds.md)"
        return LeftOpen("interval", said)
    if isinstance(contract, WideOp):
        return LeftOpen("interval", "any result within the bound of a wide operation is right (docs/wide.md)")
    return NAN


def _of_recipe(recipe: Recipe | None) -> LeftOpen:
    steps = open_names(recipe)
    if not steps:
        return NAN
    return LeftOpen("interval", f"no document fixes the last bit of step {', '.join(steps)}: each answer is right")


def _of_cache(claim: Claim) -> LeftOpen:
    paged = promised(claim)
    assert isinstance(paged, Paged)
    steps = [name for _, part in paged.parts if not part.reads for name in open_names(part.recipe)]
    if steps:
        return LeftOpen("interval", f"no document fixes the last bit of step {', '.join(dict.fromkeys(steps))}")
    if isinstance(claim.contract, KvWrite):
        said = f"{NAN.said}; or what nobody decides: the slot of padding, and which of two tokens of one slot is kept"
        return LeftOpen("interval", said)
    return NAN


def claims_apart(one: Claim, other: Claim) -> str:
    """The first choice or step in which two claims on one operation part, in words; "" where they do not.

    Raises ``BadInput`` for a rule that does not exist here.
    """
    if one == other:
        return ""
    if type(one.contract) is not type(other.contract):
        return "nothing is claimed on one of them"
    rules = zip(_rules_of(one), _rules_of(other), strict=True)
    found = [words for pair in rules for words in _apart(*pair)]
    found += _apart(one.contract, other.contract, but_for=_RULES)
    if not found:
        return "two names of one rule"
    first, more = found[0], len(found) - 1
    return first + (f" (and {more} more)" if more else "")


def _rules_of(claim: Claim) -> list[Any]:
    """What a claim's names stand for."""
    contract = claim.contract
    if isinstance(contract, Cast):
        return [behaviour_of(claim).policy]
    if isinstance(contract, Quantize | Dequantize | Then):
        recipe = recipes.resolve(contract.recipe)
        codes = claim.source if isinstance(contract, Dequantize) else claim.format
        last = recipe.destination(codes)
        return [recipe, replace(last, cast=""), policies.resolve(last.cast, codes)]
    if isinstance(contract, Matmul):
        return [multiplying_of(claim).product, multiplying_of(claim).accumulator]
    if isinstance(contract, OfCache):
        return [caches.resolve(contract.cache)]
    if isinstance(contract, Convert):
        return [converting_of(claim).conversion]
    return [resolve_wide(contract.wide, f"claim {claim}")] if isinstance(contract, WideOp) else []


def _apart(one: Any, other: Any, but_for: Sequence[str] = _WORDS) -> list[str]:
    """Fields of two declarations that differ; of a chain of steps the first one that does."""
    found = []
    for field in fields(one):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if a != b and field.name not in but_for:
            found.append(_chain_apart(a, b) if field.name == "steps" else f"{field.name}: {a} and {b}")
    return found


def _chain_apart(one: tuple[Any, ...], other: tuple[Any, ...]) -> str:
    """The first step of two recipes that is not the same, or of two products and conversions, whose steps are names."""
    for number, (a, b) in enumerate(zip_longest(one, other), 1):
        if a != b:
            return f"step {number}: {_step(a)} and {_step(b)}"
    return ""


def _step(step: Any) -> str:
    if step is None:
        return "no such step"
    name, chain = step[0], step[1:]
    return f"{name} = {_chain(chain[0])}" if chain and isinstance(chain[0], tuple) else " ".join(map(str, step))


def _chain(chain: tuple[Any, ...]) -> str:
    return ", ".join(step if isinstance(step, str) else " ".join(map(str, step)) for step in chain)


def followers(seen: Mapping[str, str], format_name: str) -> tuple[str, ...]:
    """The named policies of a destination that give what a portrait says."""
    x = Coded("float64", np.array(list(probes(format_name).values())).view(np.uint64))
    found = []
    for name in policies.fitting(format_name):
        gives = portrait(x, cast(x, format_name, policies.resolve(name, format_name)))
        if all(gives.get(place) == value for place, value in seen.items()):
            found.append(name)
    return tuple(found)
