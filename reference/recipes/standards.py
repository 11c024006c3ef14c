"""What the standards and the vendors' documents define: OCP MX, NVIDIA's MXFP8, NVFP4."""

from __future__ import annotations

from narrowgauge.contracts.recipe import (
    OVER_GLOBAL,
    TIMES_GLOBAL,
    Chain,
    Destination,
    Reader,
    Recipe,
    Step,
    group,
    times,
)
from narrowgauge.reference.recipes.common import FP4

E8M0 = "float8_e8m0fnu"
PLAIN = Reader()
#: codes of MXINT8
SIXTY_FOURTHS = times(2.0**-6)
_OCP = "OCP Microscaling Formats (MX) 1.0, 6.3: the scale is the largest power of two not above amax, over 2^emax"
_PTX = "NVIDIA cuDNN and Transformer Engine, MXFP8: amax over the largest value, rounded up to a power of two"


def _ocp(name: str, format_name: str, largest: float, emax: int, *to_codes: Step, reader: Reader = PLAIN) -> Recipe:
    """Floor: an amax in the upper part of its binade clips."""
    return Recipe(
        name=f"ocp.{name}",
        blocks=group(32),
        destinations=(Destination(format_name, largest, _CASTS[format_name]),),
        amax_nan="keep",
        steps=(("scale", ("amax", ("mul", 2.0**-emax))),),
        element=("x", ("div", "stored"), *to_codes),
        reader=reader,
        scale_format=E8M0,
        scale_cast="e8m0_floor",
        source=_OCP,
        evidence="specification",
    )


def _nvidia(name: str, format_name: str, largest: float) -> Recipe:
    """Rounded up: nothing clips."""
    return Recipe(
        name=f"nvidia.{name}",
        blocks=group(32),
        destinations=(Destination(format_name, largest, _CASTS[format_name]),),
        amax_nan="keep",
        steps=(("scale", ("amax", ("div", "bound"))),),
        element=("x", ("div", "stored")),
        scale_format=E8M0,
        scale_cast="e8m0_rceil",
        source=_PTX,
        evidence="document",
    )


def _nvfp4(name: str, global_scale: Chain, scale: Step, encode: Chain, reader: Reader) -> Recipe:
    """Two levels: float32 for the tensor, E4M3 for each 16. ``encode`` is 0 where the block's scale is."""
    return Recipe(
        name=f"nvidia.nvfp4_{name}",
        blocks=group(16),
        destinations=FP4,
        steps=(
            ("global_scale", global_scale),
            ("scale", ("amax", ("div", "bound"), scale)),
            ("encode", (*encode, ("zero_where_zero", "stored"))),
        ),
        element=("x", ("mul", "encode")),
        reader=reader,
        scale_format="float8_e4m3fn",
        scale_cast="ptx_satfinite",
        source="NVIDIA, NVFP4 (16 elements, E4M3 scale, float32 scale of the tensor); the tensor's scale as a " + name,
        evidence="document",
    )


_CASTS = {
    "float8_e4m3fn": "ocp_saturate",
    "float8_e5m2": "ocp_saturate",
    "float6_e2m3fn": "ptx_satfinite",
    "float6_e3m2fn": "ptx_satfinite",
    "float4_e2m1fn": "ptx_satfinite",
    "int8": "integer_nearest",
}

RECIPES = (
    _ocp("mxfp8_e4m3", "float8_e4m3fn", 448.0, 8),
    _ocp("mxfp8_e5m2", "float8_e5m2", 57344.0, 15),
    _ocp("mxfp6_e2m3", "float6_e2m3fn", 7.5, 2),
    _ocp("mxfp6_e3m2", "float6_e3m2fn", 28.0, 4),
    _ocp("mxfp4", "float4_e2m1fn", 6.0, 2),
    # the codes stand for multiples of 2^-6, and -128 is left out
    _ocp(
        "mxint8",
        "int8",
        127.0,
        0,
        ("mul", 64.0),
        ("clamp_keep_nan", 127.0),
        reader=SIXTY_FOURTHS,
    ),
    _nvidia("mxfp8_e4m3", "float8_e4m3fn", 448.0),
    _nvidia("mxfp8_e5m2", "float8_e5m2", 57344.0),
    # checkpoints of compressed-tensors and vLLM divide by it
    _nvfp4(
        "divisor",
        ("tensor_amax", ("rdiv", 2688.0), ("not_finite_to", 1.0)),
        ("mul", "global_scale"),
        ("global_scale", ("div", "stored")),
        OVER_GLOBAL,
    ),
    # checkpoints of ModelOpt multiply by it
    _nvfp4(
        "multiplier",
        ("tensor_amax", ("div", 2688.0), ("zero_to", 1.0)),
        ("div", "global_scale"),
        ("stored", ("mul", "global_scale"), "recip"),
        TIMES_GLOBAL,
    ),
)
