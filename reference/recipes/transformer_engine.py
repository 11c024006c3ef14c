"""Transformer Engine's float8 and NVFP4 quantizers, from its source; its MXFP8 is nvidia.mxfp8_e4m3 and _e5m2."""

from __future__ import annotations

from narrowgauge.contracts.recipe import TENSOR, TIMES_GLOBAL, Blocks, Destination, Recipe, group
from narrowgauge.reference.recipes.common import FP4, TILE_128

_RECIPE = "Transformer Engine, common/recipe/recipe_common.cuh:13-47"
_FP8 = (
    Destination("float8_e4m3fn", 448.0, "ocp_saturate"),
    Destination("float8_e5m2", 57344.0, "ocp_saturate"),
)
_LARGEST = (2.0 - 2.0**-23) * 2.0**127


def _fp8(name: str, blocks: Blocks, source: str, *power: str) -> Recipe:
    """The multiplier is computed, and its reciprocal is what is stored. Of amax 0 or infinity it is 1."""
    return Recipe(
        name=f"transformer_engine.fp8_{name}",
        blocks=blocks,
        destinations=_FP8,
        steps=(
            (
                "encode",
                (
                    "amax",
                    ("zero_to", "bound"),
                    ("not_finite_to", "bound"),
                    ("rdiv", "bound"),
                    ("not_finite_to", _LARGEST),
                    *power,
                ),
            ),
            ("scale", ("encode", "recip")),
        ),
        element=("x", ("mul", "encode")),
        source=f"{_RECIPE}; {source}",
    )


RECIPES = (
    _fp8("current", TENSOR, "recipe/current_scaling.cu"),
    _fp8("current_power_of_two", TENSOR, "recipe/current_scaling.cu (force_pow_2_scales)", "floor_pow2"),
    _fp8("block_1x128", Blocks(1, 128, ragged=True), "quantize_transpose_vector_blockwise.cu", "floor_pow2"),
    _fp8("block_128x128", TILE_128, "quantize_transpose_square_blockwise.cu", "floor_pow2"),
    Recipe(
        name="transformer_engine.nvfp4",
        blocks=group(16),
        destinations=FP4,
        steps=(
            # 1 of amax 0, and where it would be 0; what TE keeps is amax itself
            (
                "multiplier",
                (
                    "tensor_amax",
                    ("zero_to", 2688.0),
                    ("rdiv", 2688.0),
                    ("at_most", _LARGEST),
                    ("zero_to", 1.0),
                ),
            ),
            ("global_scale", ("multiplier", "recip")),
            ("sixth", ("multiplier", ("mul", "1/bound"))),
            ("scale", ("amax", ("mul", "sixth"), ("at_most", _LARGEST))),
            ("encode", ("stored", ("mul", "global_scale"), "recip", ("at_most", _LARGEST))),
        ),
        element=("x", ("mul", "encode")),
        reader=TIMES_GLOBAL,
        scale_format="float8_e4m3fn",
        scale_cast="ptx_satfinite",
        source="Transformer Engine, common/cast/nvfp4/core_nvfp4.cuh:36-56,131-147, and the kernels' coefficient",
    ),
)
