"""NVIDIA ModelOpt's quantized tensors, as its torch code computes them."""

from __future__ import annotations

from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.contracts.recipe import TENSOR, TIMES_GLOBAL, TOKEN, Blocks, Destination, Recipe, group
from narrowgauge.reference.recipes.common import FP4, OCP_FP8, TILE_128
from narrowgauge.reference.recipes.standards import E8M0

_QTENSOR = "ModelOpt 0.47.0, torch/quantization/qtensor"


def _fp8(name: str, blocks: Blocks) -> Recipe:
    """In the format of x throughout; there is no clamp and no least scale."""
    return Recipe(
        name=f"modelopt.fp8_{name}",
        blocks=blocks,
        destinations=OCP_FP8,
        amax_nan="keep",
        steps=(("scale", ("amax", ("div", "bound"), ("round", "source"))),),
        element=("x", ("div", "scale"), ("round", "source")),
        source=f"{_QTENSOR}/fp8_tensor.py:40-115; the cast of torch from 2.13, which saturates",
    )


RECIPES = (
    Recipe(
        name="modelopt.mxfp8",
        blocks=Blocks(1, 32, ragged=True),
        destinations=OCP_FP8,
        amax_nan="keep",
        # no positive quotient: the least scale, for a NaN too
        steps=(
            ("scale", ("amax", ("nan_to", 0.0), ("div", "bound"), "exp2_ceil_log2")),
            ("encode", ("stored", "recip")),
        ),
        element=("x", ("mul", "encode"), ("clamp_keep_nan", "bound")),
        scale_format=E8M0,
        scale_cast="e8m0_ceil",
        source=f"{_QTENSOR}/mxfp8_tensor.py:43-66,144-190",
    ),
    Recipe(
        name="modelopt.mxfp4",
        blocks=group(32),
        destinations=(Destination("float4_e2m1fn", 6.0, CastPolicy(rounding="nearest_zero", nan="max")),),
        amax_nan="keep",
        # a block is divided by its NaN or infinity, but what is stored is the conversion of those to a byte, 0
        steps=(
            ("divisor", ("amax", ("div", "bound"), "exp2_ceil_log2", ("at_least_or_nan", 2.0**-127))),
            ("scale", ("divisor", ("not_finite_to", 2.0**-127))),
        ),
        # the sign is that of sign(x) - 1, so every zero and every NaN is -0
        element=("x", ("div", "divisor"), ("nan_to", 0.0), ("zero_to", -0.0)),
        scale_format=E8M0,
        scale_cast="e8m0_ceil",
        source=f"{_QTENSOR}/mxfp4_tensor.py:38-82",
    ),
    Recipe(
        name="modelopt.nvfp4",
        blocks=group(16),
        destinations=FP4,
        amax_nan="keep",
        steps=(
            ("global_scale", ("tensor_amax", ("div", 2688.0))),
            ("largest", ("global_scale", ("mul", "bound"))),
            (
                "scale",
                ("amax", ("div", "largest"), ("zero_to", 1.0), ("at_least_or_nan", 2.0**-9), ("at_most_or_nan", 448.0)),
            ),
            ("divisor", ("stored", ("mul", "global_scale"))),
        ),
        reader=TIMES_GLOBAL,
        # the sign is x < 0: a zero has none
        element=("x", ("div", "divisor"), ("add", 0.0)),
        scale_format="float8_e4m3fn",
        scale_cast="ocp_saturate",
        source=f"{_QTENSOR}/nvfp4_tensor.py:31-49, 159-207, 228-323",
    ),
    _fp8("tensor", TENSOR),
    _fp8("channel", TOKEN),
    _fp8("block", TILE_128),
)
