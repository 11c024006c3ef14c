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
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import FORMATS, Format, format_named
from narrowgauge.contracts.operations import Cast, Claim, Convert, Dequantize, Matmul, OfCache, Quantize, WideOp
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.contracts.recipe import Recipe
from narrowgauge.contracts.wide import FORMATS as AROUND_WIDE
from narrowgauge.reference.behaviour import Behaviour, Promised
from narrowgauge.reference.compare import compare
from narrowgauge.reference.convert.catalogue import CONVERSIONS
from narrowgauge.reference.expected import outputs_of, promised_for
from narrowgauge.reference.faults.registry import FAULTS, fault_named
from narrowgauge.reference.inputs import CASES, case_named
from narrowgauge.reference.interval import Expected, Interval
from narrowgauge.reference.policies import POLICIES
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.reference.steps import named as step_of
from narrowgauge.reference.wide.catalogue import WIDE as OPERATIONS

State = Literal["shows", "equivalent", "not shown"]
#: sources of a cast that narrows
WIDE_SOURCES = ("float64", "float32", "bfloat16", "float16")
#: destinations of a cast that widens a code of at most 8 bits
WIDE = ("float32", "bfloat16", "float16")
#: cases that are tried where the whole space is too large; the list of ties of a wide destination is long
NARROWING, WIDENING = ("edges", "stratified"), ("stratified",)
#: cases of a recipe, by operation
OF_RECIPES = {
    Quantize.operation: ("finite_128", "rows_128", "rows_131"),
    Dequantize.operation: ("codes", "codes_tail", "codes_128"),
}
#: recipes, a destination, a buffer of theirs, and layouts in which engines keep it
PACKED = (
    ("ocp.mxfp4", "float4_e2m1fn", "codes", ("nibbles_low_first", "nibbles_high_first", "nibbles_planar_32")),
    ("ocp.mxfp6_e2m3", "float6_e2m3fn", "codes", ("fp6_dense", "fp6_planes")),
    ("nvidia.nvfp4_divisor", "float4_e2m1fn", "scale", ("scales_128x4", "scales_8x4")),
    ("nvidia.mxfp8_e4m3", "float8_e4m3fn", "scale", ("ue8m0_int32", "scales_tma_aligned", "hopper_mx_scales_4_warps")),
    ("compressed_tensors.int4_group", "int4", "codes", ("awq_4bit", "gptq_zeros_4bit")),
)
#: caches of each kind, by operation: the first that shows a fault stands for all
CACHED = (
    (
        "kv_write/vllm.flash_fp8/bfloat16/float8_e4m3fn",
        "kv_write/vllm.fp8_token_head/bfloat16/float8_e4m3fn",
        "kv_write/vllm.fp8_ds_mla/bfloat16/float8_e4m3fn",
        "kv_write/plain.fp8_head/bfloat16/float8_e4m3fnuz",
        "kv_write/vllm.paged_fp8/bfloat16/float8_e4m3fn",
        "kv_write/vllm.flash_copy/bfloat16/bfloat16",
        "kv_write/sglang.mxfp8/bfloat16/float8_e4m3fn",
        "kv_write/vllm.nvfp4/bfloat16/float4_e2m1fn",
    ),
    (
        "kv_read/vllm.flash_fp8/float8_e4m3fn/bfloat16",
        "kv_read/vllm.fp8_token_head/float8_e4m3fn/bfloat16",
        "kv_read/vllm.fp8_ds_mla/float8_e4m3fn/bfloat16",
        "kv_read/plain.fp8_head/float8_e4m3fnuz/bfloat16",
        "kv_read/vllm.paged_fp8/float8_e4m3fn/bfloat16",
        "kv_read/vllm.flash_copy/bfloat16/float32",
        "kv_read/sglang.mxfp8/float8_e4m3fn/bfloat16",
        "kv_read/vllm.nvfp4/float4_e2m1fn/bfloat16",
    ),
    (
        "attend/vllm.flash_fp8+soft_cap:30/float8_e4m3fn/bfloat16",
        "attend/vllm.fp8_token_head/float8_e4m3fn/float32",
        "attend/vllm.fp8_ds_mla/float8_e4m3fn/bfloat16",
        "attend/vllm.flash_copy+scale:0.1875/bfloat16/float32",
    ),
)
#: products of each kind: the first that shows a fault stands for all
MULTIPLIED = (
    (
        "matmul/vllm.fp8_token_channel_bias+float32/float8_e4m3fn/bfloat16",
        "matmul/vllm.fp8_block+float32/float8_e4m3fn/bfloat16",
        "matmul/vllm.fp8_tensor+promoted_128/float8_e4m3fn/float32",
        "matmul/plain.matmul/bfloat16/bfloat16",
        "matmul/plain.matmul/float32/float32",
        "matmul/plain.matmul_then_bias/bfloat16/bfloat16",
        "matmul/ocp.mxfp8+float32/float8_e4m3fn/bfloat16",
        "matmul/nvidia.nvfp4+float32/float4_e2m1fn/bfloat16",
    ),
    (
        "matmul/gptq.gemm_act_order+float32/float16/float16",
        "matmul/gptq.gemm_symmetric/float16/float16",
        "matmul/awq.gemm/float16/float16",
        "matmul/vllm.int8_azp_token/int8/bfloat16",
    ),
    ("matmul/vllm.moe_fp8_channel+float32/float8_e4m3fn/bfloat16",),
)


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
    changed, total, case = 0, 0, ""
    for case in _cases(claim):
        x, behaviour, right = _right(claim, case)
        ways, total = list(fault_named(fault).ways(behaviour)), sum(i.low.data.size for i in right.values())
        if not ways:
            return None
        for way in ways:
            changed = _changed(way.behaviour, x, right)
            if changed:
                return Applicability(str(claim), "shows", changed, total, case)
    return Applicability(str(claim), "equivalent" if case == "every_code" else "not shown", 0, total, case)


def _changed(wrong: Promised, x: Coded, right: Expected) -> int:
    if isinstance(wrong, Behaviour):
        return compare(wrong.run(x), right).total
    try:
        outputs = outputs_of(wrong, x)
    except BadInput:  # it would read or write outside
        return 0
    return compare({name: value.low for name, value in outputs.items()}, right).total


@cache
def survey(fault: str) -> tuple[Applicability, ...]:
    """A fault in casts between all formats; where it can exist in no cast, in recipes of each kind; else in buffers
    that are packed, in readers, in caches, in conversions, in wide operations, and in products.

    A pair of formats stands there once: in the first of its named policies that shows the fault, else in the first
    in which the fault can exist. A recipe with a destination stands there once: in the first source that shows it.
    """
    for claims in (_casts(), _quantizers(), _packed(), _readers(), _caches(), _conversions(), _wide(), _products()):
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
    """Recipes that need nothing beside x, by source. Of those of one kind of chains the first stands for all."""
    seen = set()
    for name, recipe in RECIPES.items():
        kind = _kind(recipe)
        if recipe.inputs or kind in seen:
            continue
        seen.add(kind)
        for destination in recipe.destinations:
            yield [Claim(Quantize(name), source, destination.format) for source in ("float32", "bfloat16", "float16")]


def _kind(recipe: Recipe) -> tuple[object, ...]:
    """What a recipe does, without its constants and blocks: the names of the steps, and how a scale is stored."""
    chains = tuple((name, chain[0], *(step_of(s)[0] for s in chain[1:])) for name, chain in recipe.steps)
    element = tuple(step_of(s)[0] for s in recipe.element[1:])
    wide = recipe.blocks.columns == 1, recipe.blocks.columns > 1
    return chains, element, recipe.amax_nan, recipe.scale_format, recipe.scale_cast, len(recipe.destinations), wide


def _packed() -> Iterator[list[Claim]]:
    """A quantizer with one packed buffer of each kind."""
    for recipe, destination, buffer, layouts in PACKED:
        yield from ([Claim(Quantize(recipe, {buffer: name}), "float32", destination)] for name in layouts)
    yield [Claim(Dequantize("ocp.mxfp4", {"codes": "nibbles_low_first"}), "float4_e2m1fn", "float32")]


def _readers() -> Iterator[list[Claim]]:
    """Readers of recipes of each kind."""
    seen = set()
    for name, recipe in RECIPES.items():
        kind = (recipe.reader, recipe.scale_format, "zero_point" in recipe.inputs)
        if kind not in seen:
            seen.add(kind)
            yield from ([Claim(Dequantize(name), recipe.destinations[0].format, wide)] for wide in WIDE)


def _caches() -> Iterator[list[Claim]]:
    """Writers, readers and attention, each over caches of each kind."""
    yield from ([Claim.parse(text) for text in claims] for claims in CACHED)


def _conversions() -> Iterator[list[Claim]]:
    for name, conversion in CONVERSIONS.items():
        yield [Claim(Convert(name), *pair) for pair in conversion.formats]


def _wide() -> Iterator[list[Claim]]:
    """Each wide operation, by source, in the first format that it gives."""
    for name, wide in OPERATIONS.items():
        for source in AROUND_WIDE:
            yield [Claim(WideOp(name), source, wide.outputs[0].format or source)]


def _products() -> Iterator[list[Claim]]:
    """Products of each kind: the first that shows a fault stands for all."""
    yield from ([Claim.parse(text) for text in claims] for claims in MULTIPLIED)


@cache
def _cases(claim: Claim) -> tuple[str, ...]:
    if isinstance(claim.contract, OfCache | Convert | Matmul | WideOp):
        fits = (c for c in CASES if c.depth == "smoke" and c.view == "contiguous" and c.suits(claim))
        return tuple(c.name for c in fits)
    if claim.operation in OF_RECIPES:
        return tuple(name for name in OF_RECIPES[claim.operation] if case_named(name).suits(claim))
    if format_named(claim.source).bits <= 16:
        return ("every_code",)
    return NARROWING if format_named(claim.format).bits <= 8 else WIDENING


@cache
def _inputs(case: str, source: str, format_name: str) -> Coded:
    # What the inputs of a cast are depends on the formats alone; any policy will do.
    return case_named(case).make(Claim(Cast(CastPolicy()), source, format_name))


@cache
def _right(claim: Claim, case: str) -> tuple[Coded, Promised, Expected]:
    """The inputs of a case, the behaviour that is claimed, and what it gives."""
    cast = claim.operation == Cast.operation
    x = _inputs(case, claim.source, claim.format) if cast else case_named(case, claim.operation).inputs(claim)
    behaviour = promised_for(claim, x)
    if not isinstance(behaviour, Behaviour):
        return x, behaviour, outputs_of(behaviour, x)
    return x, behaviour, {name: Interval.exactly(value) for name, value in behaviour.run(x).items()}
