"""Weights of 8 bits: fp8 and int8 with float scales, MXFP8, int8 of bitsandbytes."""

from __future__ import annotations

from narrowgauge.checkpoints.schemes.scheme import Part, Scheme

_FP8 = ("F8_E4M3", "F8_E4M3FNUZ", "F8_E5M2", "F8_E5M2FNUZ")
#: `_inv` is DeepSeek's word for the same multiplier
_SCALE = (".weight_scale", ".weight_scale_inv", ".scale", ".weight.scale", ".qscale_weight")
_INPUT = Part("input", (".input_scale", ".activation_scale", ".qscale_act"), needed=False)

# fmt: off
SCHEMES = (
    Scheme(
        name="fp8", says="fp8 with float scales",
        weights=(".weight",), stored=_FP8, element="",
        parts=(Part("scale", _SCALE), _INPUT),
        cuts=("tensor", "row", "block", "group"),
        by="compressed-tensors FP8, FP8_DYNAMIC, FP8_BLOCK; ModelOpt FP8, fp8_pb_wo; Quark; DeepSeek; fbgemm; Mistral",
        source="vLLM fp8.py create_weights; transformers finegrained_fp8.py:385-423; facts/checkpoints.md B1 to B4",
    ),
    Scheme(
        name="fp8_e8m0", says="fp8 with scales that are powers of two",
        weights=(".weight",), stored=_FP8, element="",
        parts=(Part("scale", _SCALE, ("U8", "F8_E8M0"), "float8_e8m0fnu"), _INPUT),
        cuts=("group", "block"),
        by="MXFP8 of compressed-tensors and ModelOpt; DeepSeek with scale_fmt ue8m0",
        source="vLLM compressed_tensors_w8a8_mxfp8.py; modelopt.py ModelOptMxFp8LinearMethod",
    ),
    Scheme(
        name="fp8_experts", says="fp8 experts in one tensor, turned, one float scale",
        weights=("",), stored=_FP8, element="", transposed=True, complete=True,
        parts=(Part("scale", ("_weight_scale",)), Part("input", ("_input_scale",), needed=False)),
        cuts=("tensor",),
        by="ModelOpt, Llama 4",
        source="vLLM models/mllama4.py:1078-1089, models/llama4.py:432-436: [experts, in, out]",
    ),
    Scheme(
        name="int8", says="int8 with float scales",
        weights=(".weight",), stored=("I8",), element="int8",
        parts=(Part("scale", _SCALE), Part("zeros", (".weight_zero_point",), ("I8", "I32"), needed=False), _INPUT),
        cuts=("row", "tensor", "block", "group"),
        by="compressed-tensors W8A8; Quark int8; SGLang w8a8_int8 and blockwise_int8; fracast",
        source="vLLM compressed_tensors_w8a8_int8.py; SGLang w8a8_int8.py:187-201, blockwise_int8.py:194-216",
    ),
    Scheme(
        name="int8_rows", says="int8 with a float scale for each row",
        weights=(".qweight",), stored=("I8",), element="int8", vectors=True, alone=True,
        parts=(Part("scale", (".scale",), ("F32",)),),
        cuts=("row", "tensor"),
        by="fracast 0.1.0",
        source="its file: the header's metadata says fracast-w8-symmetric-per-output-channel",
    ),
    Scheme(
        name="int8_bitsandbytes", says="int8 of bitsandbytes: each row times SCB / 127",
        weights=(".weight",), stored=("I8",), element="int8",
        parts=(Part("scale", (".SCB", ".weight.SCB"), ("F32",)),),
        cuts=("row",), divisor=127.0,
        by="bitsandbytes LLM.int8()",
        source="bitsandbytes functional.int8_vectorwise_dequant: A * stats * 1/127",
        when=(("quant_method", ("bitsandbytes",)),),
    ),
)
# fmt: on
