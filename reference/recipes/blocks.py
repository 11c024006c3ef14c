"""Engines' MXFP8, MXFP4 and NVFP4 quantizers."""

from __future__ import annotations

from typing import Literal

from narrowgauge.contracts.recipe import OVER_GLOBAL, Chain, Destination, Recipe, group
from narrowgauge.reference.recipes.common import AITER, FP4, OCP_FP8, OWN_FP8, SGLANG, VLLM
from narrowgauge.reference.recipes.standards import E8M0

_FLT_MIN = 2.0**-126


def _mxfp8(
    name: str,
    scale: Chain,
    element: Chain,
    source: str,
    amax_nan: Literal["drop", "keep"],
    to: tuple[Destination, ...] = OCP_FP8,
) -> Recipe:
    return Recipe(
        name=name,
        blocks=group(32),
        destinations=to,
        amax_nan=amax_nan,
        steps=(("scale", scale),),
        element=element,
        scale_format=E8M0,
        scale_cast="e8m0_ceil",
        source=source,
    )


def _mxfp4(
    name: str, scale: Chain, encode: Chain, element: Chain, source: str, amax_nan: Literal["drop", "all"] = "drop"
) -> Recipe:
    """NVIDIA's NaN, the maximum of NaN alone, is carried past the sign by what is added to it: as bits it is 0."""
    return Recipe(
        name=name,
        blocks=group(32),
        destinations=FP4,
        amax_nan=amax_nan,
        steps=(("scale", scale), ("encode", encode)),
        element=element,
        scale_format=E8M0,
        scale_cast="e8m0_floor",
        source=source,
    )


def _nvfp4(
    name: str,
    steps: tuple[tuple[str, Chain], ...],
    element: Chain,
    source: str,
    amax_nan: Literal["keep", "all"] = "all",
) -> Recipe:
    return Recipe(
        name=name,
        blocks=group(16),
        destinations=FP4,
        inputs=("global_scale",),
        steps=steps,
        element=element,
        reader=OVER_GLOBAL,
        scale_format="float8_e4m3fn",
        scale_cast="ptx_satfinite",
        source=source,
        amax_nan=amax_nan,
    )


#: to a power of two of amax by the mantissa of E2M1, two binades down
_EVEN: Chain = ("amax", ("even_pow2", 1), ("mul", 0.25))
_UNLESS_SUBNORMAL: Chain = ("stored", "floor_pow2", "recip_or_zero")
_LOG: Chain = ("amax", ("at_least_or_nan", _FLT_MIN), ("div", "bound"), "exp2_ceil_log2")
_TIMES: Chain = ("x", ("mul", "encode"))


def _hip(name: str, to: tuple[Destination, ...]) -> Recipe:
    """The default, RoundUp, by bits; NaN and infinity keep the exponent 255."""
    return Recipe(
        name=name,
        blocks=group(32),
        destinations=to,
        steps=(("scale", ("amax", ("mul", "1/bound"), "ceil_pow2")),),
        element=("x", ("div", "scale")),
        scale_format=E8M0,
        scale_cast="gfloat_nonsaturate",
        source=f"{AITER}, mx_quant_utils.h:32-50 (the scale; the element's cast is not read)",
        evidence="document",
    )


RECIPES = (
    Recipe(
        name="vllm.mxfp8_torch",
        blocks=group(32),
        destinations=OCP_FP8,
        amax_nan="keep",
        # a NaN as an exponent is stored as 0 (left open by C), and still divided by
        steps=(
            ("divisor", (*_LOG, ("at_least_or_nan", 2.0**-127), ("at_most_or_nan", 2.0**127))),
            ("scale", ("divisor", ("nan_to", 0.0))),
        ),
        element=("x", ("div", "divisor")),
        scale_format=E8M0,
        scale_cast="e8m0_ceil",
        source=f"{VLLM}, mxfp8_utils.py:38-85 (no clamp)",
    ),
    _mxfp8(
        "vllm.mxfp8_triton",
        ("amax", ("at_least", _FLT_MIN), ("div", "bound"), "exp2_ceil_log2"),
        # a multiplication by 2^-e, which gives the same
        ("x", ("div", "stored")),
        f"{VLLM}, mxfp8_utils.py:88-147 (ROCm)",
        "drop",
        (Destination("float8_e4m3fn", 448.0, "amd_native_clamped"),),
    ),
    _mxfp8(
        "sglang.mxfp8_kv",
        ("amax", ("at_least", 1e-30), ("div", "bound"), "exp2_ceil_log2"),
        ("x", ("div", "stored"), ("clamp_fmax_first", "bound")),
        f"{SGLANG}, mxfp8_quant_store_kv.py:44-50",
        "drop",
    ),
    _mxfp4(
        "vllm.mxfp4_cuda",
        # the exponent is an integer: what the rounding carries to 255 is 253, as is an infinite amax
        (*_EVEN, ("not_finite_to", 2.0**126)),
        # the exponent 0 as float32 bits is 0, and so are the codes of such a block
        _UNLESS_SUBNORMAL,
        _TIMES,
        f"{VLLM}, nvfp4_utils.cuh:245-278",
    ),
    # exp2(-127) is 0 on NVIDIA, and so are the codes of such a block
    _mxfp4("vllm.mxfp4_triton", _EVEN, _UNLESS_SUBNORMAL, _TIMES, f"{VLLM}, mxfp4_utils.py:255-348"),
    # the integer path has no NaN: 1.5 is what its bits become
    _mxfp4(
        "aiter.mxfp4_triton",
        _EVEN,
        ("stored", "recip"),
        (*_TIMES, ("nan_to", 1.5)),
        f"{AITER}, quant.py:98-190 (EVEN)",
        "all",
    ),
    *(_hip(f"aiter.mx{name}_hip", to) for name, to in (("fp8", OWN_FP8), ("fp4", FP4))),
    _nvfp4(
        "vllm.nvfp4",
        (
            ("sixth", ("bound", "recip_approx")),
            ("scale", ("amax", ("mul", "sixth"), ("mul", "global_scale"))),
            (
                "encode",
                (
                    "global_scale",
                    "recip_approx",
                    ("mul", "stored"),
                    "recip_approx",
                    ("zero_where_zero", "stored"),
                ),
            ),
        ),
        _TIMES,
        f"{VLLM}, nvfp4_utils.cuh:221-302",
    ),
    _nvfp4(
        "vllm.nvfp4_emulated",
        (
            ("scale", ("amax", ("mul", "1/bound"), ("mul", "global_scale"), ("clamp_keep_nan", 448.0))),
            # the reciprocal of 0 is that of 1e8
            ("encode", ("global_scale", "recip", ("mul", "stored"), ("zero_to", 1e8), "recip")),
        ),
        # a sign is that of a number above or below 0
        ("x", ("mul", "encode"), ("clamp_keep_nan", "bound"), ("zero_to", 0.0)),
        f"{VLLM}, nvfp4_emulation_utils.py:684-723",
        amax_nan="keep",
    ),
    _nvfp4(
        "vllm.nvfp4_triton",
        (
            ("scale", ("amax", ("mul", "1/bound"), ("mul", "global_scale"), ("clamp_fmax_first", 448.0))),
            ("encode", ("global_scale", ("div", "stored"), ("zero_where_zero", "stored"))),
        ),
        # NaN is clamped to -6
        ("x", ("mul", "encode"), ("clamp_fmax_first", "bound"), ("zero_to", 0.0)),
        f"{VLLM}, nvfp4_emulation_utils.py:380-430",
    ),
    # no scale of the tensor and no guard: a block of zeros divides 0 by 0, whose bits become 1.5
    Recipe(
        name="aiter.nvfp4_triton",
        blocks=group(16),
        destinations=FP4,
        amax_nan="all",
        steps=(("scale", ("amax", ("div", "bound"))), ("encode", ("scale", "recip"))),
        element=("x", ("mul", "encode"), ("nan_to", 1.5)),
        source=f"{AITER}, quant.py:193-290",
    ),
)
