"""Quantizers that a function of reference/around goes with: it makes their input, or what is given beside it."""

from __future__ import annotations

from narrowgauge.contracts.recipe import TENSOR, TOKEN, Blocks, Destination, Recipe, group
from narrowgauge.reference.recipes.common import AITER, OWN_FP8, VLLM

_TE = "NVIDIA Transformer Engine, nvte_delayed_scaling_recipe_amax_and_scale_update and its Float8Quantizer"
_CT = "compressed-tensors ac8e2ba8, quantization/utils calculate_qparams:70-86 (asymmetric)"


def _asymmetric(name: str, format_name: str, lowest: float, highest: float, blocks: Blocks) -> Recipe:
    """Zero is always within the range. The zero point is made of the scale before a scale of 0 is replaced."""
    return Recipe(
        name=f"compressed_tensors.{name}",
        blocks=blocks,
        destinations=(Destination(format_name, highest, "integer_nearest"),),
        steps=(
            ("low", ("min", ("at_most", 0.0))),
            ("high", ("max", ("at_least", 0.0))),
            ("exact", ("high", ("sub", "low"), ("div", highest - lowest))),
            ("scale", ("exact", ("zero_to", 2.0**-23))),
            (
                "zero_point",
                # 0 / 0 of a block of zeros; what C makes an integer of it is open, and its codes are read as 0 anyhow
                (
                    "low",
                    ("div", "exact"),
                    ("rsub", lowest),
                    ("nan_to", 0.0),
                    ("at_least", lowest),
                    ("at_most", highest),
                    "rint",
                ),
            ),
        ),
        element=("x", ("div", "scale"), ("add", "zero_point")),
        source=_CT,
    )


RECIPES = (
    Recipe(
        name="transformer_engine.fp8_delayed",
        blocks=TENSOR,
        destinations=(
            Destination("float8_e4m3fn", 448.0, "ocp_saturate"),
            Destination("float8_e5m2", 57344.0, "ocp_saturate"),
        ),
        # the state holds what x is multiplied by; a reader is handed its reciprocal
        inputs=("global_scale",),
        steps=(("scale", ("global_scale", "recip")),),
        element=("x", ("mul", "global_scale")),
        source=_TE,
        evidence="document",
    ),
    Recipe(
        name="aiter.smoothquant_fp8_hip",
        blocks=TOKEN,
        destinations=OWN_FP8,
        steps=(
            ("scale", ("amax", ("at_least", 1e-10), ("mul", "1/bound"))),
            ("encode", ("scale", "recip_approx")),
        ),
        element=("x", ("mul", "encode")),
        source=f"{AITER}, quant_kernels.cu:429-456 (x times smooth_scale, float32, is its x)",
    ),
    Recipe(
        name="vllm.int4_per_token_head",
        blocks=TOKEN,
        destinations=(Destination("uint4", 15.0, "integer_nearest"),),
        # the range does not take in zero: a head of one sign collapses. Where a compiler fuses the product and the sum
        # of the element, its last bit is another.
        steps=(
            ("scale", ("max", ("sub", "min"), ("div", "bound"), ("at_least", 1e-6))),
            (
                "zero_point",
                (
                    "min",
                    ("mul", -1.0),
                    ("div", "scale"),
                    "add_half_and_cut",
                    ("at_least", 0.0),
                    ("at_most", "bound"),
                ),
            ),
            ("encode", ("scale", "recip")),
        ),
        element=(
            "x",
            ("mul", "encode"),
            ("add", "zero_point"),
            "add_half_and_cut",
            ("at_least", 0.0),
            ("at_most", "bound"),
        ),
        source=f"{VLLM}, int4_per_token_head.py, _reshape_cache_int4_kernel (rotated heads, one a row)",
    ),
    _asymmetric("int8_asymmetric_tensor", "int8", -128.0, 127.0, TENSOR),
    _asymmetric("int8_asymmetric_token", "int8", -128.0, 127.0, TOKEN),
    _asymmetric("int4_asymmetric_group", "int4", -8.0, 7.0, group(128)),
)
