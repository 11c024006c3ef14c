"""AITER's float8 and int8 quantizers, which hold to the format's own maximum."""

from __future__ import annotations

from narrowgauge.contracts.recipe import TOKEN, Destination, Recipe, group
from narrowgauge.reference.recipes.common import AITER, OWN_FP8

_INT8 = (Destination("int8", 127.0, "integer_truncated"),)
_TRITON, _HIP = f"{AITER}, quant/quant.py", f"{AITER}, quant_kernels.cu"

RECIPES = (
    Recipe(
        name="aiter.fp8_triton",
        blocks=TOKEN,
        destinations=OWN_FP8,
        # no clamp and no minimum: a row of zeros has scale 0 and NaN for codes
        steps=(("scale", ("amax", ("div", "bound"))), ("encode", ("scale", "recip"))),
        element=("x", ("mul", "encode")),
        source=f"{_TRITON}:9-82",
    ),
    Recipe(
        name="aiter.int8_triton",
        blocks=TOKEN,
        destinations=_INT8,
        steps=(("scale", ("amax", ("div", "bound"))), ("encode", ("scale", "recip"))),
        element=("x", ("mul", "encode")),
        source=f"{_TRITON}:28,76",
    ),
    Recipe(
        name="aiter.fp8_hip_token",
        blocks=TOKEN,
        destinations=OWN_FP8,
        steps=(("scale", ("amax", ("mul", "1/bound"))), ("encode", ("scale", "recip_approx"))),
        element=("x", ("mul", "encode")),
        source=f"{_HIP}:88-166",
    ),
    Recipe(
        name="aiter.fp8_hip_group",
        blocks=group(128),
        destinations=OWN_FP8,
        steps=(
            ("scale", ("amax", ("at_least", 1e-10), ("mul", "1/bound"))),
            ("encode", ("scale", "recip_approx")),
        ),
        element=("x", ("mul", "encode")),
        source=f"{_HIP}:188-239",
    ),
)
