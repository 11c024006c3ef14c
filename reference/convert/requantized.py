"""Weights that were quantized in one granularity or format and are quantized again in another."""

from __future__ import annotations

from narrowgauge.contracts.conversion import FIRST, Conversion, Held
from narrowgauge.contracts.recipe import TENSOR, TOKEN, Blocks

_FP8 = (("float8_e4m3fn", "float8_e4m3fn"),)
_BLOCK = Blocks(128, 128, ragged=True)
_UTILS = "layers/quantization/fp8_utils.py"


def _again(
    name: str, recipe: str, source: str, *, through: str = "float32", blocks: Blocks = _BLOCK,
    new: Blocks = _BLOCK, to: str = "float8_e4m3fn", scale: str = "float32",
) -> Conversion:  # fmt: skip
    return Conversion(
        name=name,
        formats=(("float8_e4m3fn", to),),
        takes=(Held(FIRST), Held("scale", "block", "float32")),
        gives=(Held(FIRST), Held("scale", "new block", scale)),
        steps=(("values", through), ("quantized", recipe)),
        source=source,
        blocks=blocks,
        new_blocks=new,
    )


_OWN = "its own definition: numbers in float32, and a quantizer of the catalogue"
CONVERSIONS = (
    _again("block_to_channel", "plain.fp8_channel", _OWN, new=TOKEN),
    _again("channel_to_block", "plain.fp8_block", _OWN, blocks=TOKEN),
    _again("sglang.block_to_tensor", "sglang.fp8_per_tensor_dynamic", f"SGLang 0.5.23 {_UTILS}:2001-2041", new=TENSOR),
    _again(
        "sglang.block_to_tensor_torch",
        "vllm.input_to_float8",
        f"SGLang 0.5.23 {_UTILS}:1972-1998, 2001-2041, not on CUDA",
        new=TENSOR,
    ),
    _again(
        "sglang.channel_to_tensor", "sglang.fp8_per_tensor_dynamic", f"SGLang 0.5.23 {_UTILS}:2420-2433",
        blocks=TOKEN, new=TENSOR,
    ),
    _again("vllm.block_to_ue8m0", "vllm.fp8_block_ue8m0",
           "vLLM 0.33.0 model_executor/layers/quantization/utils/fp8_utils.py:1096-1154, utils/deep_gemm.py:1027-1046"),
    _again("sglang.block_to_ue8m0", "sglang.fp8_block_ue8m0", f"SGLang 0.5.23 {_UTILS}:2184-2215", through="bfloat16"),
    _again("sglang.block_to_mxfp4", "sglang.mxfp4_util", f"SGLang 0.5.23 {_UTILS}:2069-2094", through="bfloat16",
           new=Blocks(1, 32), to="float4_e2m1fn", scale="float8_e8m0fnu"),
    _again("sglang.block_to_mxfp4_rne", "sglang.mxfp4_rne", f"SGLang 0.5.23 {_UTILS}:2097-2132",
           new=Blocks(1, 32), to="float4_e2m1fn", scale="float8_e8m0fnu"),
)  # fmt: skip
