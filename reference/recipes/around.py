"""Quantizers that a function of reference/around goes with: it makes their input, or what is given beside it."""

from __future__ import annotations

from narrowgauge.contracts.recipe import LESS_ZERO_POINT, TENSOR, TOKEN, Destination, Recipe
from narrowgauge.reference.recipes.common import VLLM

_TE = "NVIDIA Transformer Engine, nvte_delayed_scaling_recipe_amax_and_scale_update and its Float8Quantizer"


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
        reader=LESS_ZERO_POINT,
        source=f"{VLLM}, int4_per_token_head.py, _reshape_cache_int4_kernel (rotated heads, one a row)",
    ),
)
