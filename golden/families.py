"""Golden families: what is stored for a policy or a recipe. One file a family; adding one follows from the tables.

A cast family is a step table per source: over all patterns of the source in ascending order, the first pattern of
each run of equal codes, and that code. A whole 32-bit space of inputs is some hundred runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import Codes, Format, format_named
from narrowgauge.contracts.operations import Cast, Claim, Quantize
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.reference.behaviour import behaviour_of, standing_of
from narrowgauge.reference.codec import decode, encode
from narrowgauge.reference.compare import compare
from narrowgauge.reference.expected import Expected, Interval, expected
from narrowgauge.reference.faults.registry import FAULTS
from narrowgauge.reference.inputs import case_named
from narrowgauge.reference.policies import POLICIES
from narrowgauge.reference.recipes import RECIPES

SOURCES = ("float32", "bfloat16", "float16")
#: destinations of more bits have as many steps as codes, and IEEE 754 for a rule
WIDEST = 8
#: a quantizer's vectors are the rows of this case
QUANTIZER_CASE = "rows_131"


@dataclass(frozen=True)
class Family:
    """One file of vectors: a rule at one destination format, for every source."""

    operation: str
    rule: str
    format: str

    @property
    def name(self) -> str:
        return f"{self.operation}-{self.rule}-{self.format}"

    @property
    def claims(self) -> list[Claim]:
        contract = Cast(self.rule) if self.operation == "cast" else Quantize(self.rule)
        return [Claim(contract, source, self.format) for source in SOURCES]


def families() -> Iterator[Family]:
    """Every family: each distinct cast policy of each format, under its first name, and each recipe."""
    seen: set[tuple[str, CastPolicy]] = set()
    for name, named in POLICIES.items():
        for format_name, policy in named.by_format.items():
            if format_named(format_name).bits <= WIDEST and (format_name, policy) not in seen:
                seen.add((format_name, policy))
                yield Family("cast", name, format_name)
    for name, recipe in RECIPES.items():
        for destination in recipe.destinations:
            yield Family("quantize", name, destination.format)


def family_of(claim: Claim) -> Family | None:
    """The family whose vectors hold for a claim, if there is one: the same choices, under whatever name."""
    if claim.source not in SOURCES:
        return None
    promised = behaviour_of(claim)
    for family in families():
        if family.operation == claim.operation and family.format == claim.format:
            stored = behaviour_of(family.claims[0])
            if (stored.policy, stored.recipe) == (promised.policy, promised.recipe):
                return family
    return None


# --- making ----------------------------------------------------------------------------------------------------------


def vectors(family: Family) -> dict[str, Coded]:
    """The tensors of a family's file, by name: ``source.first`` and ``source.code``, or ``source.x`` and outputs."""
    tensors: dict[str, Coded] = {}
    for claim in family.claims:
        if family.operation == "cast":
            first, code = step_table(format_named(claim.source), format_named(claim.format), behaviour_of(claim).policy)
            tensors[f"{claim.source}.first"] = Coded(claim.source, first)
            tensors[f"{claim.source}.code"] = Coded(claim.format, code)
        else:
            x = case_named(QUANTIZER_CASE).make(claim)
            tensors[f"{claim.source}.x"] = x
            for name, interval in expected(claim, x).items():
                tensors[f"{claim.source}.{name}"] = interval.low
    return tensors


def step_table(source: Format, fmt: Format, policy: CastPolicy) -> tuple[Codes, Codes]:
    """First source pattern of each run of equal codes, in ascending order of patterns, and the code of each run.

    It is found by bisection, by definition of the cast. Within a sign, and apart from NaN, codes are monotone in the
    pattern, so a stretch whose ends have one code has no other.
    """

    def code_at(patterns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        with np.errstate(invalid="ignore"):
            return encode(decode(patterns.astype(source.storage), source), fmt, policy).astype(np.int64)

    first_nan = (((1 << source.exponent) - 1) << source.mantissa) + 1
    # A zero stands apart: in a format without one it may be a NaN, as overflow at the other end may be.
    plus = np.array([0, 1, first_nan], np.int64)
    starts = np.concatenate([plus, plus + source.sign_bit])
    ends = np.array([*starts[1:], source.code_count], np.int64) - 1
    found = [starts]
    low, high = starts, ends
    while low.size:
        changes = code_at(low) != code_at(high)
        low, high = low[changes], high[changes]
        adjacent = high - low == 1
        found.append(high[adjacent])
        low, high = low[~adjacent], high[~adjacent]
        middle = (low + high) // 2
        low, high = np.concatenate([low, middle]), np.concatenate([middle, high])
    first = np.unique(np.concatenate(found))
    code = code_at(first)
    keep = np.concatenate([[True], code[1:] != code[:-1]])
    return first[keep].astype(source.storage), code[keep].astype(fmt.storage)


def flags(family: Family) -> dict[str, int]:
    """The faults that a family's vectors show, each with the number of vectors whose outputs it changes."""
    shown: dict[str, int] = {}
    for claim in family.claims:
        x, want = as_case(family, claim, vectors(family))
        right = behaviour_of(claim)
        for name, fault in FAULTS.items():
            wrong = fault.applied_to(right)
            if wrong is not None and (changed := compare(wrong.run(x), want).total):
                shown[name] = shown.get(name, 0) + changed
    return shown


def authority(family: Family) -> str:
    """On whose word the vectors rest."""
    return standing_of(family.claims[0]).authority


# --- using -----------------------------------------------------------------------------------------------------------


def as_case(family: Family, claim: Claim, tensors: dict[str, Coded]) -> tuple[Coded, Expected]:
    """Inputs and expected outputs for a claim, from a family's tensors. A run gives its first and its last pattern."""
    source = claim.source
    if family.operation == "cast":
        first, code = tensors[f"{source}.first"].codes, tensors[f"{source}.code"].codes
        past = np.append(first[1:].astype(np.int64), format_named(source).code_count)
        patterns = np.stack([first.astype(np.int64), past - 1], axis=1).ravel()
        x = Coded(source, patterns.astype(format_named(source).storage))
        return x, {"codes": Interval.exactly(Coded(claim.format, np.repeat(code, 2)))}
    outputs = {name: Coded(fmt, tensors[f"{source}.{name}"].data) for name, fmt in claim.outputs.items()}
    return tensors[f"{source}.x"], {name: Interval.exactly(value) for name, value in outputs.items()}


def expanded(claim: Claim, tensors: dict[str, Coded]) -> Coded | None:
    """The code of every pattern of a 16-bit source, in order; None for a wider source."""
    source = format_named(claim.source)
    if source.bits > 16:
        return None
    first, code = tensors[f"{source.name}.first"].codes, tensors[f"{source.name}.code"].codes
    lengths = np.diff(np.append(first.astype(np.int64), source.code_count))
    return Coded(claim.format, np.repeat(code, lengths))
