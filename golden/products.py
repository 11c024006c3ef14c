"""Golden products: operands as a kernel is handed them, and a result that every order of every sum gives.

Of each claim the file holds ``SOURCE.shape`` (M, N, K), ``SOURCE.x`` (a) and what comes beside it under the names of
a kernel's parameters, packed operands as memory images, and ``SOURCE.result`` [M, N].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

import numpy as np

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.operations import Claim, Matmul
from narrowgauge.reference.behaviour import multiplying_of
from narrowgauge.reference.expected import expected
from narrowgauge.reference.interval import Expected, Interval
from narrowgauge.reference.matmul.cases import Shape, call_of
from narrowgauge.reference.matmul.memory import read_memory, sent_formats, shaped_outputs, to_memory
from narrowgauge.reference.matmul.products import PRODUCTS

OPERATION, SHAPE, RESULT = Matmul.operation, "shape", "result"
#: one of each scheme, and the formats of its results
CHOSEN = {
    "plain.matmul": ("float32", "bfloat16", "float16"),
    "plain.matmul_int8": ("int32",),
    "vllm.fp8_tensor": ("bfloat16",),
    "vllm.fp8_token_channel_bias": ("bfloat16", "float16"),
    "vllm.fp8_block": ("bfloat16",),
    "vllm.int8_azp_token": ("bfloat16",),
    "awq.gemm": ("float16",),
    "gptq.gemm_act_order": ("float16",),
    "ocp.mxfp8": ("float32",),
    "ocp.mxfp4": ("float32",),
    "nvidia.nvfp4": ("float32",),
    "vllm.moe_fp8_channel": ("bfloat16",),
}
#: significant bits of the largest sum
EXACT_BITS = 14
_SMALL = Shape("exact", rows=7, columns=16, blocks=2, depth=75, seed=21)


def families() -> Iterator[tuple[str, str]]:
    """Product and format of the result of each file."""
    yield from ((name, fmt) for name, formats in CHOSEN.items() for fmt in formats)


def claims_of(name: str, format_name: str) -> list[Claim]:
    """One for each source of which the product makes that format."""
    return [Claim(Matmul(name), one, to) for one, to in PRODUCTS[name].formats if to == format_name]


@cache
def small_call(claim: Claim) -> Input:
    """A call of few rows with two blocks along K."""
    return call_of(multiplying_of(claim), _SMALL)


def layout(claim: Claim) -> dict[str, str]:
    """The tensors that are stored for a claim: name and format of each."""
    sent = sent_formats(multiplying_of(claim).product, claim.source, claim.format)
    named = {SHAPE: "int32"} | sent | {RESULT: claim.format}
    return {f"{claim.source}.{name}": fmt for name, fmt in named.items()}


def vectors(claim: Claim) -> dict[str, Coded]:
    """The tensors themselves."""
    x = small_call(claim)
    sent, result = to_memory(multiplying_of(claim).product, x), expected(claim, x)["codes"]
    assert result.exact
    shape = np.array([[x.shape[0], result.low.shape[1], x.shape[1]]], np.int32)
    named = {SHAPE: Coded("int32", shape.view(np.uint32)), "x": sent, **sent.given, RESULT: result.low}
    return {f"{claim.source}.{name}": Coded(value.format, value.data) for name, value in named.items()}


def as_case(claim: Claim, tensors: Mapping[str, Coded]) -> tuple[Coded, Expected]:
    """The call and what is expected of it. Raises ``BadInput`` for tensors of no call; the first word is a name."""
    product, prefix = multiplying_of(claim).product, f"{claim.source}."
    numbers = tensors[f"{prefix}{SHAPE}"].data.view(np.int32)
    if numbers.shape != (1, 3) or (numbers < 0).any():
        raise BadInput(f"{SHAPE}: {numbers.tolist()}; expected M, N and K")
    rows, _, depth = (int(n) for n in numbers[0])
    beside = {name: tensors[f"{prefix}{name}"] for name in sent_formats(product, claim.source, claim.format)}
    x = read_memory(product, claim.source, claim.format, (rows, depth), beside.pop("x"), beside)
    return x, {"codes": Interval.exactly(tensors[f"{prefix}{RESULT}"])}


def well_shaped(claim: Claim, tensors: Mapping[str, Coded]) -> str:
    """The first tensor that is none of the call, or the shape; "" if all are."""
    prefix = f"{claim.source}."
    try:
        x, outputs = as_case(claim, tensors)
        like = shaped_outputs(multiplying_of(claim).product, claim.format, x)
        expected(claim, x)
    except BadInput as error:
        word = str(error).split(" ")[0].rstrip(":")
        return f"{prefix}{word}" if f"{prefix}{word}" in tensors else f"{prefix}{SHAPE}"
    columns = int(tensors[f"{prefix}{SHAPE}"].data[0, 1])
    good = outputs["codes"].low.shape == like["codes"].shape and columns == like["codes"].shape[1]
    return "" if good else f"{prefix}{RESULT}"
