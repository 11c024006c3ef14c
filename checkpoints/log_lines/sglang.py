"""Lines of SGLang 0.5.23.

It says nothing of a cast between bfloat16 and float16 (srt/configs/model_config.py:2343 is at the level of debug), nor
of scales that most of its model files drop.
"""

from __future__ import annotations

from narrowgauge.checkpoints.log_lines.line import Row

_QUANT = "sglang/srt/layers/quantization/"
_TENSORS = f"{_QUANT}compressed_tensors/"
_LOAD, _MODELS = "sglang/srt/model_loader/", "sglang/srt/models/"
_RUNNER = "sglang/srt/model_executor/model_runner_components/"

ROWS: tuple[Row, ...] = (
    # caches
    (r"Using FP8 KV cache but no scaling factors provided", "cache at 1.0", f"{_RUNNER}load_model_utils.py:138", False),
    (r"Defaulting to KV cache scaling factors = 1\.0", "cache at 1.0", f"{_LOAD}weight_utils.py:1970", False),
    (
        r"Found kv_scale in the checkpoint \(e\.g\..*kv_scale is not loaded",
        "a scale is dropped",
        f"{_LOAD}weight_utils.py:1807",
    ),
    (
        r"Found (?!kv_scale)\S+ in the checkpoint \(e\.g\..* is not loaded",
        "a scale is dropped",
        f"{_LOAD}weight_utils.py:1837",
    ),
    (r"DEPRECATED\. Found kv_scale", "a method is deprecated", f"{_LOAD}weight_utils.py:1797"),
    (r"Ignoring compressed-tensors kv_cache_scheme", "scale ignored", f"{_TENSORS}compressed_tensors.py:219"),
    (
        r"Ignoring tensor \S+ for TRT-LLM MHA FP8 KV cache scale",
        "scale ignored",
        "sglang/srt/layers/attention/trtllm_mha_backend.py:679",
    ),
    (
        r"Checkpoint has k_scale but KV cache dtype is not FP8",
        "scale ignored",
        "sglang/srt/layers/attention/trtllm_mla_backend.py:967",
    ),
    # names
    (r"Parameter \S+ not found in params_dict", "a tensor has no place", f"{_MODELS}llama.py:779", False),
    (
        r"(?<!Parameter )\b\S+\.\S+ not found in params_dict\.",
        "a tensor has no place",
        f"{_MODELS}deepseek_common/deepseek_weight_loader.py:532",
        False,
    ),
    # shards and scales
    (r"In NVFP4A16 linear, weight_scale_2 differs", "shards differ", f"{_QUANT}modelopt_quant.py:2274", False),
    (r"w1_weight_scale_2 must match w3_weight_scale_2", "shards differ", f"{_QUANT}modelopt_quant.py:2751"),
    (
        r"w1_weight_global_scale must match w3_weight_global_scale",
        "shards differ",
        f"{_TENSORS}schemes/compressed_tensors_w4a4_nvfp4_moe.py:191",
    ),
    (r"Gate and up global scales differ", "shards differ", f"{_QUANT}minimax_m3_nvfp4.py:187"),
    (r"Found input_scales that are not equal", "activation scales merged", f"{_QUANT}fp8.py:2662"),
    (r"NVFP4 Marlin assumes non-negative scales", "scale of the wrong sign", f"{_QUANT}marlin_utils_fp4.py:33"),
    (r"Requantizing from quant_method='", "requantized", "sglang/srt/configs/model_config.py:2139"),
    (r"Dequantized FP4 (MoE )?expert weights to FP8", "requantized", f"{_QUANT}fp8.py:2214"),
    (
        r"Using online MXFP4 quantization in dense linear layers",
        "requantized",
        f"{_QUANT}quark/schemes/quark_w4a4_mxfp4.py:401",
    ),
    (
        r"wo_a block scales are not power-of-two; requantizing",
        "requantized",
        f"{_MODELS}deepseek_common/amd/deepseek_v4_wo_a_fp8.py:284",
    ),
    (r"MXFP8 overriding weight_block_size=", "scale ignored", f"{_QUANT}fp8.py:373", False),
    # ways around
    (r"Compute capability below sm80\. Use float16", "cast between 16 bits", f"{_RUNNER}load_model_utils.py:82", False),
    (
        r"For Gemma \S+, we downcast float32 to bfloat16",
        "cast from 32 bits",
        "sglang/srt/configs/model_config.py:2310",
        False,
    ),
    (
        r"does not have native support for FP8 computation but FP8 quantization is being used",
        "weights only",
        f"{_QUANT}marlin_utils_fp8.py:105",
    ),
    (r"NVFP4 w4a4 (MoE )?requires compute capability >= 10\.0", "weights only", f"{_TENSORS}compressed_tensors.py:778"),
    (
        r"serving NVFP4 w4a4 dense linears weight-only via FP4 Marlin",
        "weights only",
        f"{_TENSORS}compressed_tensors.py:771",
    ),
    (r"Falling back to UnquantizedLinearMethod", "not quantized", f"{_TENSORS}compressed_tensors.py:1064"),
    (r"Falling back to unquantized MoE", "not quantized", f"{_QUANT}npu_mxfp4.py:115", False),
    (r"quantization is not fully optimized yet", "not the fast path", "sglang/srt/configs/model_config.py:2166", False),
    (r"is not supported by AWQMarlin", "not the fast path", f"{_QUANT}awq/awq.py:369"),
    (r"Block-fp8 layer stays on the Triton kernel", "not the fast path", f"{_QUANT}fp8.py:988", False),
    (r"Skipping block quantization checks for weight partition", "not the fast path", f"{_QUANT}fp8.py:586"),
)
