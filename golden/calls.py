"""Golden calls on caches: what a kernel is handed, and the caches before and after; of a reader, what is read.

Of each claim the file holds the tensors under the names of a kernel's parameters, ``SOURCE.k_cache.before`` and
``SOURCE.k_cache.after`` of what is written, ``SOURCE.k`` and ``SOURCE.v`` of what is read, and ``SOURCE.extent``:
heads, slots of a page, slots, and columns of each part.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.operations import Claim, KvRead, KvWrite
from narrowgauge.reference.behaviour import paged_behaviour
from narrowgauge.reference.expected import expected
from narrowgauge.reference.interval import Expected, Interval
from narrowgauge.reference.kv.call import HELD
from narrowgauge.reference.kv.cases import Shape, call
from narrowgauge.reference.kv.filed import Extent, call_of, forms_of
from narrowgauge.reference.kv.memory import NAMES, from_memory, in_memory, to_memory
from narrowgauge.reference.kv.outputs import stored_rows

OPERATIONS = (KvWrite.operation, KvRead.operation)
#: what x is of a writer, and values are of a reader
VALUES = "bfloat16"
EXTENT, BEFORE, AFTER = "extent", ".before", ".after"
_USUAL = Shape(tokens=24, lengths=(5, 18, 0, 1), width=32, spare=1)
#: blocks of 16 columns whose scales are swizzled in fours; one large page; rows of 576 columns; a pool without pages
_WIDE = Shape(tokens=24, lengths=(5, 18, 0, 1), width=64, spare=1)
_ONE_PAGE = Shape(tokens=24, lengths=(5, 1), width=32, spare=0)
_LARGE_PAGE = Shape(tokens=9, lengths=(5, 1), spare=0)
_LONG_ROWS = Shape(tokens=9, lengths=(5, 1), block=16, spare=0)
_POOL = Shape(tokens=9, lengths=(5, 1), block=1, spare=3)
#: by operation, cache and format of its codes: each order of pages and each kind of recipe once
CALLS: dict[tuple[str, str, str], Shape] = {
    (operation, name, format_name): shape
    for operations, name, format_name, shape in (
        (OPERATIONS[:1], "vllm.flash_copy", "bfloat16", _USUAL),
        (OPERATIONS, "vllm.flash_fp8", "float8_e4m3fn", _USUAL),
        (OPERATIONS, "vllm.flash_fp8_head_hnd", "float8_e5m2", _USUAL),
        (OPERATIONS, "vllm.flash_fp8_rocm", "float8_e4m3fnuz", _USUAL),
        (OPERATIONS[:1], "vllm.flash_fp8_rope", "float8_e4m3fn", _USUAL),
        (OPERATIONS, "vllm.paged_fp8", "float8_e4m3fn", _USUAL),
        (OPERATIONS[:1], "vllm.interleaved_fp8_triton", "float8_e4m3fn", _USUAL),
        (OPERATIONS, "vllm.int8_token_head", "int8", _USUAL),
        (OPERATIONS[:1], "vllm.fp8_token_head", "float8_e4m3fn", _USUAL),
        (OPERATIONS, "vllm.int4_token_head", "uint4", _USUAL),
        (OPERATIONS, "vllm.nvfp4", "float4_e2m1fn", _WIDE),
        (OPERATIONS, "vllm.mla_fp8", "float8_e4m3fn", _LONG_ROWS),
        (OPERATIONS[:1], "vllm.fp8_ds_mla", "float8_e4m3fn", _LARGE_PAGE),
        (OPERATIONS[:1], "vllm.nvfp4_ds_mla", "float4_e2m1fn", _LARGE_PAGE),
        (OPERATIONS[:1], "vllm.indexer_ue8m0", "float8_e4m3fn", _ONE_PAGE),
        (OPERATIONS, "vllm.indexer_tiled", "float8_e4m3fn", _ONE_PAGE),
        (OPERATIONS, "sglang.fp8", "float8_e4m3fn", _USUAL),
        (OPERATIONS[:1], "sglang.fp8_commit", "float8_e4m3fnuz", _USUAL),
        (OPERATIONS[:1], "sglang.copy_vectorized", "bfloat16", _USUAL),
        (OPERATIONS, "sglang.fp4_block16", "float4_e2m1fn", _USUAL),
        (OPERATIONS[:1], "sglang.nvfp4", "float4_e2m1fn", _USUAL),
        (OPERATIONS[1:], "sglang.nvfp4_native", "float4_e2m1fn", _WIDE),
        (OPERATIONS, "sglang.mxfp8", "float8_e4m3fn", _ONE_PAGE),
        (OPERATIONS, "sglang.dsa", "float8_e4m3fn", _POOL),
        (OPERATIONS[:1], "plain.fp8_tensor", "float8_e5m2fnuz", _USUAL),
    )
    for operation in operations
}


def claim_of(operation: str, name: str, format_name: str) -> Claim:
    """The claim of one of ``CALLS``."""
    writes = operation == KvWrite.operation
    return Claim((KvWrite if writes else KvRead)(name), *((VALUES, format_name) if writes else (format_name, VALUES)))


@cache
def _call(claim: Claim) -> Input:
    held = claim.format if isinstance(claim.contract, KvWrite) else claim.source
    x = call(CALLS[claim.operation, claim.rule, held])(claim)
    assert isinstance(x, Input)
    return _decided(claim, x) if isinstance(claim.contract, KvWrite) else x


def _decided(claim: Claim, x: Input) -> Input:
    """The same with other tokens of the call in place of those whose last bits no document fixes."""
    paged = paged_behaviour(claim)
    undecided = np.any([rows.open.any(axis=1) for rows in stored_rows(paged, x).values()], axis=0)
    taken = np.arange(x.shape[0])
    taken[undecided] = np.resize(np.flatnonzero(~undecided), int(undecided.sum()))
    others = {name: x.given[name].take(taken) for name, _ in paged.parts[1:]}
    return Input(x.format, x.data[taken], {**x.given, **others})


def _extent(claim: Claim, tensors: Mapping[str, Coded]) -> Extent:
    """How large a stored call is. Raises ``BadInput`` for numbers that are none."""
    numbers = tensors[f"{claim.source}.{EXTENT}"].data.view(np.int32).ravel().tolist()
    names = Extent.of(claim, _call(claim)).columns
    if len(numbers) != 3 + len(names):
        raise BadInput(f"{EXTENT} has {len(numbers)} numbers; expected {3 + len(names)}")
    said = dict(zip(("heads", "block_size", "slots"), numbers[:3], strict=True))
    return Extent.read(claim, {**said, "columns": dict(zip(names, numbers[3:], strict=True))})


def _named(claim: Claim, name: str, end: str = BEFORE) -> str:
    """How a tensor of a kernel is called in a file."""
    return f"{claim.source}.{name}{end if name in in_memory(claim, _call(claim)).in_place else ''}"


def layout(claim: Claim) -> dict[str, str]:
    """The tensors that are stored for a claim: name and format of each."""
    x = _call(claim)
    forms = {_named(claim, name): form.format for name, form in forms_of(claim, Extent.of(claim, x)).items()}
    after = {_named(claim, name, AFTER): held for name, held in in_memory(claim, x).outputs.items()}
    return {f"{claim.source}.{EXTENT}": "int32"} | forms | after


def vectors(claim: Claim) -> dict[str, Coded]:
    """The tensors themselves."""
    x = _call(claim)
    extent, outputs = Extent.of(claim, x), expected(claim, x)
    assert all(interval.exact for interval in outputs.values()), f"{claim}: no vector has two answers"
    sent = to_memory(claim, x)
    numbers = [extent.heads, extent.block_size, extent.slots, *extent.columns.values()]
    tensors = {f"{claim.source}.{EXTENT}": Coded("int32", np.array(numbers, np.int32).view(np.uint32))}
    tensors |= {_named(claim, name): value for name, value in {"x": sent, **sent.given}.items()}
    left = {name: interval.low for name, interval in outputs.items()}
    if isinstance(claim.contract, KvWrite):
        after = {**x.given, **{HELD + name: value for name, value in left.items()}}
        images = to_memory(claim, Input(x.format, x.data, after)).given
        left = {name: images[name] for name in in_memory(claim, x).outputs}
    return tensors | {_named(claim, name, AFTER): Coded(value.format, value.data) for name, value in left.items()}


def as_case(claim: Claim, tensors: Mapping[str, Coded]) -> tuple[Coded, Expected]:
    """The call and what is expected of it. Raises ``BadInput`` for tensors of no call."""
    extent = _extent(claim, tensors)
    x = call_of(claim, extent, {name: tensors[_named(claim, name)] for name in forms_of(claim, extent)})
    left = {name: tensors[_named(claim, name, AFTER)] for name in in_memory(claim, x).outputs}
    outputs, wrong = from_memory(claim, x, left)
    if wrong:  # what is said of a buffer begins with its name
        raise BadInput(f"{wrong[0]} ({AFTER})")
    return x, {name: Interval.exactly(value) for name, value in outputs.items()}


def well_shaped(claim: Claim, tensors: Mapping[str, Coded]) -> str:
    """The first tensor that is not of the call whose extent is stored, or the extent; "" if all are."""
    prefix = f"{claim.source}."
    try:
        x, _ = as_case(claim, tensors)
    except BadInput as error:
        # what is said of a tensor begins with its name
        parameter = str(error).split(" ")[0].split("[")[0].rstrip(":")
        named = _named(claim, NAMES.get(parameter, parameter), AFTER if AFTER in str(error) else BEFORE)
        return named if named in tensors else f"{prefix}{EXTENT}"
    like = expected(claim, x) if isinstance(claim.contract, KvRead) else {}
    wrong = (name for name, interval in like.items() if tensors[f"{prefix}{name}"].shape != interval.low.shape)
    return next((f"{prefix}{name}" for name in wrong), "")
