"""Golden calls of converters: what a kernel is handed and what it gives, as memory images, and rows and columns.

Of each claim the file holds ``SOURCE.shape`` (rows and columns of the codes), ``SOURCE.x`` and what comes beside it
under the names of a kernel's parameters, and ``SOURCE.after.NAME`` of each buffer that is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

import numpy as np

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.operations import Claim, Convert
from narrowgauge.reference.behaviour import converting_of
from narrowgauge.reference.convert.cases import Shape, call, suits
from narrowgauge.reference.convert.catalogue import CONVERSIONS
from narrowgauge.reference.convert.memory import (
    from_memory,
    in_memory,
    pack_outputs,
    read_memory,
    sent_formats,
    to_memory,
)
from narrowgauge.reference.expected import expected
from narrowgauge.reference.interval import Expected, Interval

OPERATION, SHAPE, AFTER = Convert.operation, "shape", "after."
#: the first that a conversion takes: rows of every code; groups of 128 rows; blocks of 128 × 128 with ragged edges
_SHAPES = (Shape(16, 256), Shape(256, 16))
_BLOCKS, _SCALES = (Shape(132, 136), Shape(132, 160)), Shape(136, 12)
#: of conversions that are alike one stands for the others, since all vectors are less than 4 MiB
LEFT_OUT = (
    "ocp_to_fnuz_tensor", "ocp_to_fnuz_channel", "vllm.ocp_to_fnuz_tensor", "vllm.ocp_to_fnuz_channel",
    "fnuz_to_ocp_requantized", "vllm.requantize_to_largest_cpu", "sglang.block_to_tensor_torch",
    "sglang.channel_to_tensor", "channel_to_block", "sglang.block_to_mxfp4_rne", "nvfp4_to_multiplier",
    "awq_to_gptq_v2", "gptq_v2_to_v1", "transformers.gpt_oss_to_bfloat16", "plain_to_scales_8x4",
    "scales_8x4_to_plain", "sglang.block_to_mxfp4", "sglang.block_to_tensor", "sglang.block_to_ue8m0",
    "block_to_channel", "weight_scale_inv_to_weight_scale", "weight_scale_to_weight_scale_inv",
)  # fmt: skip


def families() -> Iterator[tuple[str, str]]:
    """Conversion and destination of each file."""
    for name, conversion in CONVERSIONS.items():
        if name in LEFT_OUT:
            continue
        yield from ((name, fmt) for fmt in dict.fromkeys(to for _, to in conversion.formats))


def claims_of(name: str, format_name: str) -> list[Claim]:
    """One for each source from which the conversion goes there."""
    return [Claim(Convert(name), one, to) for one, to in CONVERSIONS[name].formats if to == format_name]


@cache
def small_call(claim: Claim) -> Input:
    """The smallest call that has several blocks each way, or groups, or rows of every code."""
    conversion = converting_of(claim).conversion
    shapes: tuple[Shape, ...] = _SHAPES
    if max(conversion.blocks.rows, conversion.new_blocks.rows) == 128 and conversion.blocks.columns != 1:
        shapes = _BLOCKS
    elif not conversion.steps and len(conversion.takes) == 1:  # a reordering: tiles are 128 rows high
        shapes = (_SCALES, *_SHAPES)
    x = call(next(shape for shape in shapes if suits(shape)(claim)))(claim)
    assert isinstance(x, Input)
    return x


def layout(claim: Claim) -> dict[str, str]:
    """The tensors that are stored for a claim: name and format of each."""
    conversion = converting_of(claim).conversion
    sent = {f"{claim.source}.{name}": fmt for name, fmt in sent_formats(conversion, claim.source).items()}
    left = in_memory(conversion, claim.format, small_call(claim)).outputs
    after = {f"{claim.source}.{AFTER}{name}": fmt for name, fmt in left.items()}
    return {f"{claim.source}.{SHAPE}": "int32"} | sent | after


def vectors(claim: Claim) -> dict[str, Coded]:
    """The tensors themselves."""
    conversion, x = converting_of(claim).conversion, small_call(claim)
    sent = to_memory(conversion, x)
    images = pack_outputs(conversion, {name: value.low for name, value in expected(claim, x).items()})
    named = {SHAPE: Coded("int32", np.array([x.shape], np.int32).view(np.uint32)), "x": sent, **sent.given}
    named |= {f"{AFTER}{name}": image for name, image in images.items()}
    return {f"{claim.source}.{name}": Coded(value.format, value.data) for name, value in named.items()}


def as_case(claim: Claim, tensors: Mapping[str, Coded]) -> tuple[Coded, Expected]:
    """The call and what is expected of it. Raises ``BadInput`` for tensors of no call; the first word is a name."""
    conversion, prefix = converting_of(claim).conversion, f"{claim.source}."
    numbers = tensors[f"{prefix}{SHAPE}"].data.view(np.int32)
    if numbers.shape != (1, 2) or (numbers < 0).any():
        raise BadInput(f"{SHAPE}: {numbers.tolist()}; expected rows and columns")
    beside = {name: tensors[f"{prefix}{name}"] for name in sent_formats(conversion, claim.source)}
    x = read_memory(conversion, claim.source, (int(numbers[0, 0]), int(numbers[0, 1])), beside.pop("x"), beside)
    got = {held.name: tensors[f"{prefix}{AFTER}{held.name}"] for held in conversion.gives}
    outputs, wrong = from_memory(conversion, claim.format, x, got)
    if wrong:
        raise BadInput(f"{AFTER}{wrong[0]}")
    return x, {name: Interval.exactly(value) for name, value in outputs.items()}


def well_shaped(claim: Claim, tensors: Mapping[str, Coded]) -> str:
    """The first tensor that is none of the call, or the shape; "" if all are."""
    prefix = f"{claim.source}."
    try:
        x, outputs = as_case(claim, tensors)
        like = expected(claim, x)
    except BadInput as error:
        word = str(error).split(" ")[0].rstrip(":")
        return f"{prefix}{word}" if f"{prefix}{word}" in tensors else f"{prefix}{SHAPE}"
    wrong = (name for name, value in like.items() if outputs[name].low.shape != value.low.shape)
    return next((f"{prefix}{AFTER}{name}" for name in wrong), "")
