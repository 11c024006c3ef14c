"""Engines' MXFP8, MXFP4 and NVFP4 quantizers."""

from __future__ import annotations

from narrowgauge.contracts.recipe import Chain, Destination, Recipe, group
from narrowgauge.reference.recipes.common import AITER, FP4, OCP_FP8, SGLANG, VLLM
from narrowgauge.reference.recipes.standards import E8M0

_FLT_MIN = 2.0**-126


def _mxfp8(name: str, scale: Chain, element: Chain, source: str, inverse: str = "recip") -> Recipe:
    return Recipe(
        name=name,
        blocks=group(32),
        destinations=OCP_FP8,
        amax_nan="keep",
        steps=(("scale", scale), ("encode", ("stored", inverse))),
        element=element,
        scale_format=E8M0,
        scale_cast="e8m0_ceil",
        source=source,
    )


def _mxfp4(name: str, scale: Chain, cast: str, source: str) -> Recipe:
    return Recipe(
        name=name,
        blocks=group(32),
        destinations=(Destination("float4_e2m1fn", 6.0, cast),),
        steps=(("scale", scale),),
        element=("x", ("div", "stored")),
        scale_format=E8M0,
        scale_cast="e8m0_floor",
        source=source,
    )


def _nvfp4(name: str, steps: tuple[tuple[str, Chain], ...], element: Chain, source: str, **more: str) -> Recipe:
    return Recipe(
        name=name,
        blocks=group(16),
        destinations=FP4,
        inputs=("global_scale",),
        steps=steps,
        element=element,
        reading=(("decode", ("stored", ("div", "global_scale"))),),
        value=("x", ("mul", "decode")),
        scale_format="float8_e4m3fn",
        scale_cast="ptx_satfinite",
        source=source,
        amax_nan="keep" if more.get("amax_nan") == "keep" else "drop",
    )


_LOG: Chain = ("amax", ("at_least_or_nan", _FLT_MIN), ("div", "bound"), "exp2_ceil_log2")
_TIMES: Chain = ("x", ("mul", "encode"))

RECIPES = (
    _mxfp8("vllm.mxfp8_torch", _LOG, ("x", ("div", "stored")), f"{VLLM}, mxfp8_utils.py:38-85 (no clamp)"),
    _mxfp8("vllm.mxfp8_triton", _LOG, _TIMES, f"{VLLM}, mxfp8_utils.py:88-147 (ROCm)"),
    _mxfp8(
        "sglang.mxfp8_kv",
        ("amax", ("at_least_or_nan", 1e-30), ("div", "bound"), "exp2_ceil_log2"),
        ("x", ("div", "stored"), ("clamp_keep_nan", "bound")),
        f"{SGLANG}, mxfp8_quant_store_kv.py:44-50",
    ),
    _mxfp8(
        "triton_kernels.mxfp8",
        ("amax", ("div", "bound")),
        _TIMES,
        "triton_kernels, _downcast_to_mxfp.py; SGLang 0.5.23 fp8_utils.py:1853-1867",
    ),
    _mxfp8(
        "modelopt.mxfp8",
        ("amax", ("div", "bound"), "exp2_ceil_log2"),
        ("x", ("div", "stored"), ("clamp_keep_nan", "bound")),
        "ModelOpt a2fbac7b, mxfp8_tensor.py:43-66,144-190",
    ),
    _mxfp4(
        "quark.mxfp4_even",
        ("amax", ("even_pow2", 1), ("mul", 0.25)),
        "ptx_satfinite",
        f"Quark 0.13 default, hw_emulation_interface.py; vLLM MXFP4; {AITER} Triton",
    ),
    _mxfp4(
        "vllm.mxfp4_cuda",
        # the exponent is an integer: what the rounding carries to 255 is 253, as is an infinite amax
        ("amax", ("even_pow2", 1), ("mul", 0.25), ("not_finite_to", 2.0**126)),
        "ptx_satfinite",
        f"{VLLM}, nvfp4_utils.cuh:245-260",
    ),
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
            ("encode", ("global_scale", "recip_or_zero", ("mul", "stored"), "recip_or_zero")),
        ),
        ("x", ("mul", "encode"), ("clamp_keep_nan", "bound")),
        f"{VLLM}, nvfp4_emulation_utils.py:709-723",
        amax_nan="keep",
    ),
)
