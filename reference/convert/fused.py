"""Shards that were quantized apart and are fused at load, q, k and v say: all get the largest scale."""

from __future__ import annotations

from narrowgauge.contracts.conversion import FIRST, Conversion, Held, Step
from narrowgauge.contracts.recipe import Blocks

_E4M3 = (("float8_e4m3fn", "float8_e4m3fn"), ("float8_e4m3fnuz", "float8_e4m3fnuz"))
_WIDTHS = Held("widths", "shard", "int32")
_LAYERS = "vLLM 0.33.0 model_executor/layers/quantization"
_VLLM = f"{_LAYERS}/utils/w8a8_utils.py:44-106"
_SGLANG = "SGLang 0.5.23 layers/quantization/utils.py:128-189"


def _fused(
    name: str, source: str, through: str, recipe: str, *, narrow: bool = False, sentinel: bool = True
) -> Conversion:
    own: tuple[Step, ...] = (("copied", "scale", "own"), ("of_rows", "own"))
    if narrow:  # torch multiplies a half-precision tensor on a GPU by a scale in half precision
        own = (*own, ("rounded", "own", "float16"))
    kept: tuple[Step, ...] = (("taken_where_one_scale_came", FIRST),) if sentinel else ()
    return Conversion(
        name=name,
        formats=_E4M3,
        takes=(Held(FIRST), Held("scale", "shard", "float32"), _WIDTHS),
        gives=(Held(FIRST), Held("scale", "tensor", "float32")),
        steps=(
            *own,
            ("values", through, "own"),
            ("largest", "scale"),
            ("quantized", recipe),
            *kept,
        ),
        source=source,
    )


_NVFP4 = (("float4_e2m1fn", "float4_e2m1fn"),)
_OF_NVFP4 = (Held(FIRST), Held("scale", "block", "float8_e4m3fn"))


def _one_global(name: str, steps: tuple[Step, ...], source: str) -> Conversion:
    return Conversion(
        name=name,
        formats=_NVFP4,
        takes=(*_OF_NVFP4, Held("global_scale", "shard", "float32"), _WIDTHS),
        gives=(*_OF_NVFP4, Held("global_scale", "tensor", "float32")),
        steps=steps,
        source=source,
        blocks=Blocks(1, 16),
        new_blocks=Blocks(1, 16),
    )


_DEFINED = "its own definition: what the codes stand for in float32, divided by the largest scale, rounded once"
CONVERSIONS = (
    _fused("requantize_to_largest", _DEFINED, "float32", "plain.kv_fp8_tensor", sentinel=False),
    _fused("vllm.requantize_to_largest_cpu", f"{_VLLM}, run on a CPU", "float16", "vllm.fp8_static_tensor"),
    _fused(
        "vllm.requantize_to_largest",
        f"{_VLLM}; torch aten/native/cuda/Loops.cuh: a 0-dim float32 tensor is read as float16",
        "float16",
        "vllm.fp8_static_tensor",
        narrow=True,
    ),
    _one_global(
        "vllm.nvfp4_largest_divisor",
        (("largest", "global_scale"), ("reciprocal", "global_scale")),
        f"{_LAYERS}/compressed_tensors/schemes/compressed_tensors_w4a4_nvfp4.py:95-128",
    ),
    _one_global(
        "vllm.nvfp4_largest_multiplier",
        (("largest", "global_scale"),),
        f"{_LAYERS}/modelopt.py:2085-2093",
    ),
    _one_global(
        "nvfp4_one_global",
        (("one_global",),),
        "its own definition: reference/convert/steps.py, one_global",
    ),
)
