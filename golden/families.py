"""Golden families: what is stored for a rule or a format. One file a family; adding one follows from the tables.

A cast family is a step table per source: over all patterns of the source in ascending order, the first pattern of
each run of equal codes, and that code. A whole 32-bit space of inputs is some hundred runs; to a destination of more
than 8 bits it is some ten stairs (``golden.steps``). A decode family is the float32 value of every code. A stochastic
family is a list: an input, the random bits that come with it, and the code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.formats import FORMATS, Codes, format_named
from narrowgauge.contracts.operations import Cast, Claim, Quantize
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.golden.steps import STAIR, fold, spaced, step_table, unfold
from narrowgauge.reference.behaviour import behaviour_of, blocks_of, resolved, standing_of
from narrowgauge.reference.codec import RandomBits
from narrowgauge.reference.compare import compare
from narrowgauge.reference.expected import expected
from narrowgauge.reference.fast_codec import cast
from narrowgauge.reference.faults.registry import FAULTS
from narrowgauge.reference.form import shaped, takes
from narrowgauge.reference.inputs import case_named
from narrowgauge.reference.interval import Expected, Interval
from narrowgauge.reference.policies import POLICIES, fitting
from narrowgauge.reference.recipes import RECIPES

Tensors = Mapping[str, Coded]
#: how the vectors of one claim are stored, with the tensors of each form besides a quantizer's outputs
Form = Literal["steps", "stairs", "table", "rows", "drawn"]
PARTS: dict[Form, tuple[str, ...]] = {
    "steps": ("first", "code"), "stairs": STAIR, "table": ("values",), "rows": ("x",), "drawn": ("x", "bits", "code"),
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

    #: "cast", "quantize", "stochastic": a cast by random bits, or "decode": a cast to float32, which holds every value
    operation: str
    rule: str
    format: str

    @property
    def name(self) -> str:
        return f"decode-{self.format}" if self.operation == "decode" else f"{self.operation}-{self.rule}-{self.format}"

    @property
    def claims(self) -> list[Claim]:
        if self.operation == "decode":
            return [Claim(Cast(self.rule), self.format, "float32")]
        if self.operation == "stochastic":
            policy = replace(POLICIES[self.rule].by_format[self.format], rounding="stochastic")
            return [Claim(Cast(policy), "float32", self.format)]
        contract = Cast(self.rule) if self.operation == "cast" else Quantize(self.rule)
        return [Claim(contract, source, self.format) for source in SOURCES if source != self.format]


def families() -> Iterator[Family]:
    """Every family: each distinct cast policy of each format, under its first name; the chosen recipes; each small
    format.

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


def rules_of(family: Family) -> list[str]:
    """Every name under which the vectors of a family are right: policies of the same choices at its destination."""
    if family.operation != "cast":
        return [family.rule]
    stored = POLICIES[family.rule].by_format[family.format]
    return [name for name, named in POLICIES.items() if named.by_format.get(family.format) == stored]


def family_of(claim: Claim) -> Family | None:
    """The family whose vectors hold for a claim, if there is one: the same choices, under whatever name."""
    promised = behaviour_of(claim)
    for family in families():
        for stored in family.claims:
            if (stored.operation, stored.source, stored.format) == (claim.operation, claim.source, claim.format):
                behaviour = behaviour_of(stored)
                if (behaviour.policy, behaviour.recipe) == (promised.policy, promised.recipe):
                    return family
    return None


def form_of(claim: Claim) -> Form:
    """How the vectors of a claim are stored."""
    if isinstance(claim.contract, Cast) and isinstance(claim.contract.policy, CastPolicy):
        return "drawn"  # the only claims here that have no name
    if claim.operation == Quantize.operation:
        return "rows"
    if format_named(claim.source).bits <= WIDEST:
        return "table"
    return "steps" if format_named(claim.format).bits <= WIDEST else "stairs"


def layout(claim: Claim) -> dict[str, str]:
    """The tensors that are stored for a claim: name and format of each."""
    form = form_of(claim)
    formats = {"code": claim.format, "rise": claim.format, "values": claim.format, "bits": "uint8"}
    parts = {part: formats.get(part, claim.source) for part in PARTS[form]}
    return {
        f"{claim.source}.{part}": name
        for part, name in (parts | (resolved(claim).inputs | resolved(claim).outputs if form == "rows" else {})).items()
    }


# --- making ----------------------------------------------------------------------------------------------------------


def vectors(family: Family) -> dict[str, Coded]:
    """The tensors of a family's file, by name: ``source.first`` and ``source.code``, ``source.x`` and outputs, …"""
    return {name: tensor for claim in family.claims for name, tensor in _vectors(claim).items()}


def _vectors(claim: Claim) -> dict[str, Coded]:
    form, source, fmt = form_of(claim), format_named(claim.source), format_named(claim.format)
    arrays: tuple[npt.NDArray[np.integer], ...]
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


def flags(family: Family, tensors: Tensors) -> dict[str, int]:
    """The faults that a family's vectors show, each with the number of vectors whose outputs it changes."""
    shown: dict[str, int] = {}
    if family.operation == "stochastic":
        return shown  # a fault is an edit of a function of x alone
    for claim in family.claims:
        x, want = as_case(claim, tensors)
        right = behaviour_of(claim)
        for name, fault in FAULTS.items():
            wrong = fault.applied_to(right)
            if wrong is not None and (changed := compare(wrong.run(x), want).total):
                shown[name] = shown.get(name, 0) + changed
    return shown


def authority(family: Family) -> str:
    """On whose word the vectors rest."""
    if family.operation == "decode":
        return f"{family.format}: {format_named(family.format).authority}"
    if family.operation == "stochastic":
        named = standing_of(Claim(Cast(family.rule), "float32", family.format)).authority
        return f"the definition: the way past a code, cut to the bits' width, plus the bits, carries; else {named}"
    return standing_of(family.claims[0]).authority


# --- using -----------------------------------------------------------------------------------------------------------


def steps_of(claim: Claim, tensors: Tensors) -> tuple[npt.NDArray[np.int64], Codes]:
    """First patterns and codes of the runs of a claim's stored steps or stairs."""
    if form_of(claim) == "stairs":
        first, code = unfold(stairs_of(claim, tensors))
        return first, code.astype(format_named(claim.format).storage)
    return tensors[f"{claim.source}.first"].codes.astype(np.int64), tensors[f"{claim.source}.code"].codes


def stairs_of(claim: Claim, tensors: Tensors) -> npt.NDArray[np.int64]:
    return np.stack([tensors[name].codes.astype(np.int64) for name in layout(claim)])


def as_case(claim: Claim, tensors: Tensors) -> tuple[Coded, Expected]:
    """Inputs and expected outputs for a claim, from a family's tensors.

    A run gives its first and its last pattern. Of a stair it is the runs at its ends and in its middle: those between
    are like them, and are half a million for tfloat32.
    """
    source, form = format_named(claim.source), form_of(claim)
    if form == "rows":
        outputs = {
            name: Coded(fmt, tensors[f"{source.name}.{name}"].data) for name, fmt in resolved(claim).outputs.items()
        }
        x = tensors[f"{source.name}.x"]
        given = {name: tensors[f"{source.name}.{name}"] for name in resolved(claim).inputs}
        return Input(x.format, x.data, given), {name: Interval.exactly(value) for name, value in outputs.items()}
    if form == "table":
        every = np.arange(source.code_count, dtype=source.storage)
        return Coded(source.name, every), {"codes": Interval.exactly(tensors[f"{source.name}.values"])}
    first, code = steps_of(claim, tensors)
    past = np.append(first[1:], source.code_count)
    if form == "stairs":
        stair_first, stride, count, _, _ = stairs_of(claim, tensors)
        places = [np.clip(place, 0, count - 1) for place in (0, 1, count // 2, count - 2, count - 1)]
        kept = np.isin(first, np.concatenate([stair_first + place * stride for place in places]))
        first, code, past = first[kept], code[kept], past[kept]
    patterns = np.stack([first, past - 1], axis=1).ravel()
    x = Coded(source.name, patterns.astype(source.storage))
    return x, {"codes": Interval.exactly(Coded(claim.format, np.repeat(code, 2)))}


def looked_up(claim: Claim, tensors: Tensors, patterns: npt.NDArray[np.unsignedinteger]) -> Codes:
    """The code that a cast's vectors give for each source pattern, same shape."""
    if form_of(claim) == "table":
        every = tensors[f"{claim.source}.values"].codes
        return np.take(every, patterns)
    first, code = steps_of(claim, tensors)
    return np.take(code, np.searchsorted(first, patterns.astype(np.int64), side="right") - 1)


def expanded(claim: Claim, tensors: Tensors) -> Coded | None:
    """The code of every pattern of a source of at most 16 bits, in order; None for a wider source or a quantizer."""
    source = format_named(claim.source)
    if source.bits > 16 or form_of(claim) == "rows":
        return None
    if form_of(claim) == "table":
        return tensors[f"{source.name}.values"]
    first, code = steps_of(claim, tensors)
    return Coded(claim.format, np.repeat(code, np.diff(np.append(first, source.code_count))))


def well_shaped(claim: Claim, tensors: Tensors) -> str:
    """The first of a claim's tensors whose shape or order is not that of its form; "" if there is none."""
    form, names = form_of(claim), list(layout(claim))
    shape = tensors[names[0]].shape
    if form == "rows":
        if not takes(claim, shape):
            return names[0]
        blocks = blocks_of(claim)
        assert blocks is not None
        wanted = {f"{claim.source}.{name}": [interval.low.shape] for name, interval in shaped(claim, shape).items()}
        wanted |= {f"{claim.source}.{name}": [blocks.grid(*shape), (1, 1)] for name in resolved(claim).inputs}
        return next((name for name in names[1:] if tensors[name].shape not in wanted[name]), "")
    for name in names:
        if tensors[name].shape != shape or len(shape) != 1:
            return name
    if form == "table" and shape != (format_named(claim.source).code_count,):
        return names[0]
    if form == "stairs" and not spaced(
        stairs_of(claim, tensors), format_named(claim.source), format_named(claim.format)
    ):
        return names[0]
    first = tensors[names[0]].codes.astype(np.int64)
    if form == "steps" and (first[:1].tolist() != [0] or not (np.diff(first) > 0).all()):
        return names[0]
    return ""
