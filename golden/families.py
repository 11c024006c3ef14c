"""Golden families: what is stored for a rule or a format. One file a family; adding one follows from the tables.

A cast family is a step table per source: over all patterns of the source in ascending order, the first pattern of
each run of equal codes, and that code. A whole 32-bit space of inputs is some hundred runs; to a destination of more
than 8 bits it is some ten stairs (``golden.steps``). A decode family is the float32 value of every code. A stochastic
family is a list: an input, the random bits that come with it, and the code. A family of a cache is a call on it
(``golden.calls``), one of a conversion or of a product a call of its kernel. A family of matrix units
(``golden.units``) holds for no kernel's claim: it is what each unit answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded, given_with
from narrowgauge.contracts.formats import FORMATS, format_named
from narrowgauge.contracts.operations import Cast, Claim, Quantize
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.golden import calls, conversions, products, units
from narrowgauge.golden.called import CALLED
from narrowgauge.golden.steps import STAIR, fold, step_table
from narrowgauge.reference.behaviour import behaviour_of, promised, resolved, standing_of
from narrowgauge.reference.codec import RandomBits
from narrowgauge.reference.convert.converting import Converting
from narrowgauge.reference.expected import expected
from narrowgauge.reference.fast_codec import cast
from narrowgauge.reference.inputs import case_named
from narrowgauge.reference.kv.paged import Paged
from narrowgauge.reference.matmul.multiplying import Multiplying
from narrowgauge.reference.policies import POLICIES, fitting
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.reference.wide.widening import Widening

Tensors = Mapping[str, Coded]
#: how the vectors of one claim are stored, with the tensors of each form besides a quantizer's outputs
Form = Literal["steps", "stairs", "table", "rows", "drawn", "call"]
PARTS: dict[Form, tuple[str, ...]] = {
    "steps": ("first", "code"), "stairs": STAIR, "table": ("values",), "rows": ("x",), "drawn": ("x", "bits", "code"),
    "call": (),
}  # fmt: skip

SOURCES = ("float32", "bfloat16", "float16")
#: destinations of more bits have as many steps as codes: stairs
WIDEST = 8
#: a quantizer's vectors are the rows of the first of these cases that it can have
QUANTIZER_CASES = ("finite_128", "rows_131", "rows_128")
#: recipes of engines with vectors of their own, besides those of the standards
ENGINE_RECIPES = (
    "vllm.fp8_per_token_dynamic",
    "vllm.fp8_group",
    "vllm.int8_per_token_dynamic",
    "sglang.fp8_per_token_cta",
    "sglang.fp8_group",
)
STANDARDS = ("ocp.", "nvidia.")
#: stochastic rounding: every value, tie and neighbour of a destination, each with these numbers of so many bits
STOCHASTIC_CASE, STOCHASTIC_BITS, STOCHASTIC_WIDTH = "edges", (0, 127, 128, 255), 8


@dataclass(frozen=True)
class Family:
    """One file of vectors: a rule at one destination format for every source, or the values of one format."""

    #: "cast", "quantize", "stochastic": a cast by random bits, "decode": a cast to float32, which holds every value;
    #: "kv_write", "kv_read", "convert", "matmul", "unit"
    operation: str
    rule: str
    format: str  #: of the destination; of a cache's codes

    @property
    def name(self) -> str:
        return f"decode-{self.format}" if self.operation == "decode" else f"{self.operation}-{self.rule}-{self.format}"

    @property
    def claims(self) -> list[Claim]:
        if self.operation == units.OPERATION:
            return []
        if self.operation == "decode":
            return [Claim(Cast(self.rule), self.format, "float32")]
        if self.operation == conversions.OPERATION:
            return conversions.claims_of(self.rule, self.format)
        if self.operation == products.OPERATION:
            return products.claims_of(self.rule, self.format)
        if self.operation in calls.OPERATIONS:
            return [calls.claim_of(self.operation, self.rule, self.format)]
        if self.operation == "stochastic":
            policy = replace(POLICIES[self.rule].by_format[self.format], rounding="stochastic")
            return [Claim(Cast(policy), "float32", self.format)]
        contract = Cast(self.rule) if self.operation == "cast" else Quantize(self.rule)
        return [Claim(contract, source, self.format) for source in SOURCES if source != self.format]


def families() -> Iterator[Family]:
    """Every family: each distinct cast policy of each format, under its first name; the chosen recipes; each small
    format; the chosen caches; the chosen conversions.

    What rounding by random bits does depends on the format alone: of its policies the first stands for all.
    """
    seen: set[tuple[str, CastPolicy]] = set()
    for name, named in POLICIES.items():
        for format_name, policy in named.by_format.items():
            if (format_name, policy) not in seen:
                seen.add((format_name, policy))
                yield Family("cast", name, format_name)
    for name, recipe in RECIPES.items():
        for destination in recipe.destinations if name.startswith(STANDARDS) or name in ENGINE_RECIPES else ():
            yield Family("quantize", name, destination.format)
    for fmt in FORMATS.values():
        if fmt.bits <= WIDEST:
            yield Family("decode", "ieee", fmt.name)
        if fmt.bits <= WIDEST and fmt.family not in ("exponent", "integer"):
            yield Family("stochastic", fitting(fmt.name)[0], fmt.name)
    yield from (Family(*key) for key in calls.CALLS)
    yield from (Family(conversions.OPERATION, *key) for key in conversions.families())
    yield from (Family(products.OPERATION, *key) for key in products.families())
    yield from (Family(units.OPERATION, *key) for key in units.families())


def rules_of(family: Family) -> list[str]:
    """Every name under which the vectors of a family are right: policies of the same choices at its destination."""
    if family.operation != "cast":
        return [family.rule]
    stored = POLICIES[family.rule].by_format[family.format]
    return [name for name, named in POLICIES.items() if named.by_format.get(family.format) == stored]


def family_of(claim: Claim) -> Family | None:
    """The family whose vectors hold for a claim, if there is one: the same choices, under whatever name."""
    choices = _choices(claim)
    stored = _stored().get((claim.operation, claim.source, claim.format), [])
    return next((family for family, of_family in stored if of_family == choices), None)


@cache
def _stored() -> dict[tuple[str, str, str], list[tuple[Family, tuple[object, ...]]]]:
    """Every family with the choices of its claims, by operation, source and format."""
    found: dict[tuple[str, str, str], list[tuple[Family, tuple[object, ...]]]] = {}
    for family in families():
        for claim in family.claims:
            found.setdefault((claim.operation, claim.source, claim.format), []).append((family, _choices(claim)))
    return found


def _choices(claim: Claim) -> tuple[object, ...]:
    """What makes two claims on the same formats one."""
    behaviour = promised(claim)
    if isinstance(behaviour, Paged):
        return behaviour.parts, behaviour.cache.parts, behaviour.cache.buffers, behaviour.slots
    if isinstance(behaviour, Converting):
        return (behaviour.conversion,)
    if isinstance(behaviour, Multiplying):
        # the vectors hold for every accumulator that holds what the product's own holds exactly
        return behaviour.product, behaviour.accumulator.exact_bits >= products.EXACT_BITS
    if isinstance(behaviour, Widening):
        return (behaviour.wide,)
    return behaviour.policy, behaviour.recipe


def form_of(claim: Claim) -> Form:
    """How the vectors of a claim are stored."""
    if isinstance(claim.contract, Cast) and isinstance(claim.contract.policy, CastPolicy):
        return "drawn"  # the only claims here that have no name
    if claim.operation in CALLED:
        return "call"
    if claim.operation == Quantize.operation:
        return "rows"
    if format_named(claim.source).bits <= WIDEST:
        return "table"
    return "steps" if format_named(claim.format).bits <= WIDEST else "stairs"


def layout(claim: Claim) -> dict[str, str]:
    """The tensors that are stored for a claim: name and format of each."""
    form = form_of(claim)
    if form == "call":
        return CALLED[claim.operation].layout(claim)
    formats = {"code": claim.format, "rise": claim.format, "values": claim.format, "bits": "uint8"}
    parts = {part: formats.get(part, claim.source) for part in PARTS[form]}
    return {
        f"{claim.source}.{part}": name
        for part, name in (parts | (resolved(claim).inputs | resolved(claim).outputs if form == "rows" else {})).items()
    }


def held_by(family: Family) -> dict[str, str]:
    """The tensors of a family's file: name and format of each."""
    if family.operation == units.OPERATION:
        return units.layout(family.rule, family.format)
    return {name: fmt for claim in family.claims for name, fmt in layout(claim).items()}


# --- making ----------------------------------------------------------------------------------------------------------


def vectors(family: Family) -> dict[str, Coded]:
    """The tensors of a family's file, by name: ``source.first`` and ``source.code``, ``source.x`` and outputs, …"""
    if family.operation == units.OPERATION:
        return units.tensors_of(family.rule, family.format)
    return {name: tensor for claim in family.claims for name, tensor in _vectors(claim).items()}


def _vectors(claim: Claim) -> dict[str, Coded]:
    form, source, fmt = form_of(claim), format_named(claim.source), format_named(claim.format)
    arrays: tuple[npt.NDArray[np.integer], ...]
    if form == "call":
        return CALLED[claim.operation].vectors(claim)
    if form == "rows":
        x = next(case for name in QUANTIZER_CASES if (case := case_named(name)).suits(claim)).inputs(claim)
        outputs = {f"{source.name}.{name}": interval.low for name, interval in expected(claim, x).items()}
        return {f"{source.name}.{name}": value for name, value in {"x": x, **given_with(x)}.items()} | outputs
    if form == "table":
        every = Coded(source.name, np.arange(source.code_count, dtype=source.storage))
        arrays = (expected(claim, every)["codes"].low.codes,)
    elif form == "drawn":
        edges = case_named(STOCHASTIC_CASE).make(claim).codes
        patterns = np.repeat(edges, len(STOCHASTIC_BITS))
        bits = np.resize(STOCHASTIC_BITS, patterns.size)
        random = RandomBits(bits.astype(np.uint32), STOCHASTIC_WIDTH)
        codes = cast(Coded(source.name, patterns), fmt.name, behaviour_of(claim).policy, random).codes
        arrays = (patterns, bits, codes)
    else:
        arrays = step_table(source, fmt, behaviour_of(claim).policy)
        if form == "stairs":
            arrays = tuple(fold(*arrays))
    named = zip(layout(claim).items(), arrays, strict=True)
    return {name: Coded(held, array.astype(format_named(held).storage)) for (name, held), array in named}


def authority(family: Family) -> str:
    """On whose word the vectors rest."""
    if family.operation == units.OPERATION:
        return units.authority(family.rule, family.format)
    if family.operation == "decode":
        return f"{family.format}: {format_named(family.format).authority}"
    if family.operation == "stochastic":
        named = standing_of(Claim(Cast(family.rule), "float32", family.format)).authority
        return f"the definition: the way past a code, cut to the bits' width, plus the bits, carries; else {named}"
    return standing_of(family.claims[0]).authority
