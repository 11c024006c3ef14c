"""Weights of 4-bit floats: NVFP4 in two spellings, MXFP4 in four; what Quark packed before."""

from __future__ import annotations

from functools import partial

from narrowgauge.checkpoints.schemes.scheme import Part, Scheme

_E8M0 = ("U8", "F8_E8M0")
_four = partial(Scheme, element="float4_e2m1fn", packing="nibbles_low_first")

# fmt: off
SCHEMES = (
    _four(
        name="nvfp4", says="NVFP4, the tensor's scale multiplies",
        weights=(".weight",), stored=("U8", "F4"),
        parts=(
            Part("scale", (".weight_scale",), ("F8_E4M3",), "float8_e4m3fn"),
            Part("second", (".weight_scale_2",), ("F32",)),
            Part("input", (".input_scale",), ("F32",), needed=False),
            Part("before", (".pre_quant_scale",), needed=False),
        ),
        cuts=("group",), group=16,
        by="ModelOpt NVFP4, Quark NVFP4",
        source="vLLM modelopt.py ModelOptNvFp4LinearMethod; weight_scale_2 = amax / (6 * 448)",
    ),
    _four(
        name="nvfp4_experts", says="NVFP4 experts in one tensor, turned",
        weights=("",), stored=("U8",), transposed=True, packed="rows", complete=True,
        parts=(
            Part("scale", ("_weight_scale",), ("F8_E4M3",), "float8_e4m3fn"),
            Part("second", ("_weight_scale_2",), ("F32",)),
            Part("input", ("_input_scale",), ("F32",), needed=False),
        ),
        cuts=("group",), group=16,
        by="ModelOpt, Llama 4",
        source="vLLM models/llama4.py:655-682: weights and scales are turned while they are loaded",
        unread="along which axis two codes share a byte was not checked against a file",
    ),
    _four(
        name="nvfp4_packed", says="NVFP4, the tensor's scale divides",
        weights=(".weight_packed",), stored=("U8",),
        parts=(
            Part("scale", (".weight_scale",), ("F8_E4M3",), "float8_e4m3fn"),
            Part("second", (".weight_global_scale",), ("F32",), divides=True),
            Part("second_input", (".input_global_scale",), ("F32",), divides=True, needed=False),
        ),
        cuts=("group",), group=16,
        by="compressed-tensors NVFP4",
        source="vLLM compressed_tensors_w4a4_nvfp4.py:101-128; weight_global_scale = 448 * 6 / amax",
    ),
    _four(
        name="mxfp4", says="MXFP4",
        weights=(".weight",), stored=("U8", "F4"),
        parts=(Part("scale", (".weight_scale",), _E8M0, "float8_e8m0fnu"),),
        cuts=("group",), group=32,
        by="ModelOpt mxfp4, Quark mxfp4",
        source="vLLM quark_ocp_mx.py",
    ),
    _four(
        name="mxfp4_experts", says="MXFP4, in bytes that are called int8",
        weights=(".weight",), stored=("I8",),
        parts=(Part("scale", (".scale", ".weight_scale_inv", ".weight_scale"), _E8M0, "float8_e8m0fnu"),),
        cuts=("group",), group=32,
        by="DeepSeek with expert_dtype fp4",
        source="transformers finegrained_fp8.py:385-423",
    ),
    _four(
        name="mxfp4_packed", says="MXFP4",
        weights=(".weight_packed",), stored=("U8",),
        parts=(Part("scale", (".weight_scale",), _E8M0, "float8_e8m0fnu"),),
        cuts=("group",), group=32,
        by="compressed-tensors MXFP4",
        source="vLLM compressed_tensors_w4a4_mxfp4.py; scale = 2^(byte - 127)",
    ),
    _four(
        name="mxfp4_blocks", says="MXFP4 in blocks of 16 bytes",
        weights=("_blocks", ".blocks"), stored=("U8",), merged=1, alone=True,
        parts=(Part("scale", ("_scales", ".scales"), ("U8",), "float8_e8m0fnu"),),
        cuts=("group",), group=32,
        by="gpt-oss, as Hugging Face and as OpenAI name it",
        source="gpt_oss/torch/weights.py; transformers integrations/mxfp4.py:111-199",
    ),
    Scheme(
        name="mx_interleaved", says="MX, 17 bytes for 32 values: a signed exponent, then the codes",
        weights=(".weight",), stored=("U8",), element="float4_e2m1fn", parts=(), cuts=("group",), group=32,
        by="AMD Quark, dtype mx",
        source="Quark utils/pack.py:462-510: the exponent is log2 as int8, without a bias",
        when=(("weight.dtype", ("mx",)),), only_when=True,
        block_bytes=17, block_size=32,
    ),
)
# fmt: on
