"""Where a fault can be seen: for each claim, the inputs whose output it changes.

A source of at most 16 bits is walked in full: a fault that changes no code there is equivalent, which is proved, not
sampled. For wider sources the suite's own cases are tried, the first one that shows the fault is named, and "not shown"
is no more than it says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import FORMATS, Format, format_named
from narrowgauge.contracts.operations import Cast, Claim, Quantize
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.reference.behaviour import behaviour_of
from narrowgauge.reference.compare import compare
from narrowgauge.reference.expected import Expected, Interval
from narrowgauge.reference.faults.registry import FAULTS, fault_named
from narrowgauge.reference.inputs import case_named
from narrowgauge.reference.policies import POLICIES
from narrowgauge.reference.recipes import RECIPES

State = Literal["shows", "equivalent", "not shown"]
#: sources of a cast that narrows
WIDE_SOURCES = ("float64", "float32", "bfloat16", "float16")
#: destinations of a cast that widens a code of at most 8 bits
WIDE = ("float32", "bfloat16", "float16")
#: cases that are tried where the whole space is too large; the list of ties of a wide destination is long
NARROWING, WIDENING, ROWS = ("edges", "stratified"), ("stratified",), ("finite_128", "rows_128", "rows_131")


@dataclass(frozen=True)
class Applicability:
    """What a fault does to one claim."""

    claim: str
    state: State
    changed: int  #: inputs (rows of a quantizer: elements of its outputs) that the fault changes
    inputs: int  #: of how many
    case: str  #: the case that was counted; "every_code" is the whole space of the source


def applicability(fault: str, claim: Claim) -> Applicability | None:
    """What a fault does to a claim, or None where it cannot exist. Raises ``BadInput`` for an unknown fault."""
    wrong = fault_named(fault).applied_to(behaviour_of(claim))
    if wrong is None:
        return None
    changed, total, case = 0, 0, ""
    for case in _cases(claim):
        x, right = _right(claim, case)
        changed, total = compare(wrong.run(x), right).total, sum(i.low.data.size for i in right.values())
        if changed:
            return Applicability(str(claim), "shows", changed, total, case)
    return Applicability(str(claim), "equivalent" if case == "every_code" else "not shown", 0, total, case)


@cache
def survey(fault: str) -> tuple[Applicability, ...]:
    """A fault in casts between all formats, or, where it can exist in no cast, in all recipes.

    A pair of formats stands there once: in the first of its named policies that shows the fault, else in the first
    in which the fault can exist. A recipe with a destination stands there once: in the first source that shows it.
    """
    for claims in (_casts(), _quantizers()):
        found = [best for each in claims if (best := _best(fault, each)) is not None]
        if found:
            return tuple(found)
    return ()


def equivalent(claim: Claim) -> frozenset[str]:
    """The faults that change no output of a claim, by exhaustion."""
    return frozenset(
        name for name in FAULTS if (found := applicability(name, claim)) is not None and found.state == "equivalent"
    )


def _best(fault: str, claims: list[Claim]) -> Applicability | None:
    first = None
    for claim in claims:
        found = applicability(fault, claim)
        if found is not None and found.state == "shows":
            return found
        first = first or found
    return first


def _casts() -> Iterator[list[Claim]]:
    """For each pair of formats, a claim in each of the different policies of the destination."""
    for fmt in FORMATS.values():
        policies = _different_policies(fmt)
        for source in FORMATS.values():
            if policies and source.name != fmt.name and _is_cast(source, fmt):
                yield [Claim(Cast(name), source.name, fmt.name) for name in policies]


def _is_cast(source: Format, fmt: Format) -> bool:
    if source.name in WIDE_SOURCES:
        return source.bits > fmt.bits or {source.bits, fmt.bits} == {16}
    return source.bits <= 8 and source.family != "integer" and fmt.name in WIDE


def _different_policies(fmt: Format) -> list[str]:
    seen: dict[CastPolicy, str] = {}
    for name, named in POLICIES.items():
        if fmt.name in named.by_format:
            seen.setdefault(named.by_format[fmt.name], name)
    return list(seen.values())


def _quantizers() -> Iterator[list[Claim]]:
    """Recipes that need nothing beside x, by source. Of those of one chain of steps the first stands for all."""
    seen = set()
    for name, recipe in RECIPES.items():
        same = (recipe.blocks, recipe.steps, recipe.element, recipe.amax_nan, recipe.scale_format, recipe.scale_cast)
        if recipe.inputs or (same, recipe.destinations) in seen:
            continue
        seen.add((same, recipe.destinations))
        for destination in recipe.destinations:
            yield [Claim(Quantize(name), source, destination.format) for source in ("float32", "bfloat16", "float16")]


def _cases(claim: Claim) -> tuple[str, ...]:
    if claim.operation == Quantize.operation:
        return tuple(name for name in ROWS if case_named(name).suits(claim))
    if format_named(claim.source).bits <= 16:
        return ("every_code",)
    return NARROWING if format_named(claim.format).bits <= 8 else WIDENING


@cache
def _inputs(case: str, source: str, format_name: str) -> Coded:
    # What the inputs of a cast are depends on the formats alone; any policy will do.
    return case_named(case).make(Claim(Cast(CastPolicy()), source, format_name))


@cache
def _right(claim: Claim, case: str) -> tuple[Coded, Expected]:
    cast = claim.operation == Cast.operation
    x = _inputs(case, claim.source, claim.format) if cast else case_named(case).inputs(claim)
    return x, {name: Interval.exactly(value) for name, value in behaviour_of(claim).run(x).items()}
