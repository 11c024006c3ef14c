"""AITER's float8 and int8 quantizers, which hold to the format's own maximum."""

from __future__ import annotations

from narrowgauge.contracts.recipe import TENSOR, TOKEN, Blocks, Destination, Recipe, group
from narrowgauge.reference.recipes.common import AITER, OWN_FP8

_INT8 = (Destination("int8", 127.0, "integer_truncated"),)
_TRITON, _HIP = f"{AITER}, quant/quant.py", f"{AITER}, quant_kernels.cu"

#: no clamp: what an infinity becomes is said by the cast, which is gfx950's for the one and Triton's for the other
_CAST = (
    Destination("float8_e4m3fn", 448.0, "amd_native_clamped"),
    Destination("float8_e4m3fnuz", 240.0, "triton_amd_fnuz"),
)


def _triton(name: str, blocks: Blocks, to: tuple[Destination, ...], lines: str) -> Recipe:
    """No minimum: a row of zeros has the scale 0, and 0 times infinity for codes."""
    return Recipe(
        name=f"aiter.{name}",
        blocks=blocks,
        destinations=to,
        amax_nan="all" if blocks == TOKEN else "drop",
        steps=(("scale", ("amax", ("div", "bound"))), ("encode", ("scale", "recip"))),
        element=("x", ("mul", "encode")),
        source=f"{_TRITON}:{lines}",
    )


def _static(name: str, to: tuple[Destination, ...]) -> Recipe:
    return Recipe(
        name=f"aiter.{name}",
        blocks=TENSOR,
        destinations=to,
        inputs=("scale",),
        steps=(("encode", ("scale", "recip")),),
        element=("x", ("mul", "encode")),
        source=f"{_TRITON}:9-40",
    )


RECIPES = (
    _triton("fp8_triton", TOKEN, _CAST, "9-82"),
    _triton("int8_triton", TOKEN, _INT8, "28,76"),
    _triton("fp8_triton_tensor", TENSOR, _CAST, "9-82 (each row's maximum, atomically)"),
    _triton("int8_triton_tensor", TENSOR, _INT8, "28,76 (each row's maximum, atomically)"),
    _static("fp8_triton_static", _CAST),
    _static("int8_triton_static", _INT8),
    Recipe(
        name="aiter.fp8_hip_token",
        blocks=TOKEN,
        destinations=OWN_FP8,
        steps=(("scale", ("amax", ("mul", "1/bound"))), ("encode", ("scale", "recip_approx"))),
        element=("x", ("mul", "encode")),
        source=f"{_HIP}:88-166",
    ),
    Recipe(
        name="aiter.fp8_hip_smooth",
        blocks=TOKEN,
        destinations=OWN_FP8,
        # x is what a channel's smoothing left, in float32
        steps=(("scale", ("amax", ("mul", "1/bound"))), ("encode", ("scale", "recip_approx"))),
        element=("x", ("mul", "encode")),
        source=f"{_HIP}:429-456 (after the product with smooth_scale)",
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
