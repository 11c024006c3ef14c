"""Lines of vLLM 0.33.0."""

from __future__ import annotations

from narrowgauge.checkpoints.log_lines.line import Row

_QUANT = "vllm/model_executor/layers/quantization/"
_TENSORS = f"{_QUANT}compressed_tensors/"
_LOAD, _KERNELS = "vllm/model_executor/model_loader/", "vllm/model_executor/kernels/linear/"
_MOE = "vllm/model_executor/layers/fused_moe/"

ROWS: tuple[Row, ...] = (
    # caches
    (r"Using KV cache scaling factor 1\.0 for fp8_e4m3", "cache at 1.0", f"{_QUANT}kv_cache.py:165"),
    (r"does not provide a q scaling factor", "query or probabilities at 1.0", f"{_QUANT}kv_cache.py:148"),
    (r"Using uncalibrated q_scale \S+ and/or prob_scale", "query or probabilities at 1.0", f"{_QUANT}kv_cache.py:203"),
    (
        r"Found kv_scale in the checkpoint \(e\.g\..*kv_scale is not loaded",
        "a scale is dropped",
        f"{_LOAD}weight_utils.py:1756",
    ),
    (
        r"Found (?!kv_scale)\S+ in the checkpoint \(e\.g\..* is not loaded",
        "a scale is dropped",
        f"{_LOAD}weight_utils.py:1820",
    ),
    (r"DEPRECATED\. Found kv_scale", "a method is deprecated", f"{_LOAD}weight_utils.py:1746"),
    (r"Skipping CompressedTensors config group for", "scale ignored", f"{_TENSORS}compressed_tensors.py:245", False),
    (r"Unknown kv_cache_quant_algo '", "scale ignored", "vllm/utils/torch_utils.py:473", False),
    # dtypes
    (r"\bCasting \S+ to \S+\.", "cast between 16 bits", "vllm/config/model.py:2516", False),
    (r"\bDowncasting \S+ to \S+\.", "cast from 32 bits", "vllm/config/model.py:2513", False),
    (
        r"Your device .* doesn't support .* Falling back to \S+ for compatibility",
        "cast between 16 bits",
        "vllm/config/model.py:2457",
        False,
    ),
    (
        r"Attempted to load weight \S+ with dtype \S+ into parameter with dtype",
        "cast from 32 bits",
        "vllm/model_executor/models/utils.py:333",
        False,
    ),
    # shards and scales
    (
        r"In NVFP4 linear, the weight global scale is different",
        "shards differ",
        f"{_TENSORS}schemes/compressed_tensors_w4a4_nvfp4.py:102",
    ),
    (
        r"In NVFP4 linear, the input global scale is different",
        "activation scales merged",
        f"{_TENSORS}schemes/compressed_tensors_w4a4_nvfp4.py:116",
    ),
    (r"In NVFP4 linear, the global weight scale differs", "shards differ", f"{_QUANT}modelopt.py:2086"),
    (r"In NVFP4 linear, the global input scale differs", "activation scales merged", f"{_QUANT}modelopt.py:2120"),
    (
        r"In NVFP4 linear, the global scale for weight are different",
        "shards differ",
        f"{_QUANT}quark/schemes/quark_nvfp4.py:134",
    ),
    (r"In FP8 linear, the static input scale differs", "activation scales merged", f"{_QUANT}modelopt.py:2200"),
    (r"w1_weight_scale_2 must match w3_weight_scale_2", "shards differ", f"{_QUANT}modelopt.py:1059"),
    (
        r"w1_weight_global_scale must match w3_weight_global_scale",
        "shards differ",
        f"{_TENSORS}compressed_tensors_moe/compressed_tensors_moe_w4a4_nvfp4.py:227",
    ),
    (r"Found input_scales that are not equal", "activation scales merged", f"{_QUANT}utils/fp8_utils.py:1577"),
    (
        r"activation global scale for inputs are different for MOE",
        "activation scales merged",
        f"{_MOE}oracle/nvfp4.py:492",
    ),
    (r"Dropping input_scale from a weight-only", "weights only", f"{_QUANT}modelopt.py:2549"),
    (r"NVFP4 Marlin assumes the scales to be >=0", "scale of the wrong sign", f"{_QUANT}utils/marlin_utils_fp4.py:86"),
    (r"Requantizing Kimi-K3 MXFP4 experts to groupwise int4", "requantized", f"{_QUANT}mxfp4.py:562"),
    (r"DeepGEMM E8M0 enabled on current platform", "requantized", "vllm/utils/deep_gemm.py:139"),
    # ways around
    (
        r"does not have native support for FP8 computation but FP8 quantization is being used",
        "weights only",
        f"{_QUANT}utils/marlin_utils_fp8.py:108",
    ),
    (
        r"does not have native support for FP4 computation but FP4 quantization is being used",
        "weights only",
        f"{_QUANT}utils/marlin_utils_fp4.py:340",
    ),
    (r"This device lacks native FP4 compute", "weights only", f"{_QUANT}inc/schemes/inc_mxfp4_moe.py:207"),
    (
        r"weight-only \(A16\) kernel; the requested activation quantization",
        "weights only",
        f"{_KERNELS}mxfp4/marlin.py:32",
    ),
    (
        r"current platform does not support native MXFP4/MXFP6 computation",
        "emulated",
        f"{_QUANT}quark/schemes/quark_ocp_mx.py:91",
    ),
    (r"current platform does not support native MXFP4 computation", "emulated", f"{_KERNELS}mxfp4/emulation.py:101"),
    (r"NVFP4 linear falling back to the slow and unoptimized emulation", "emulated", f"{_KERNELS}__init__.py:1294"),
    (r"Using Nvfp4QuantizationEmulationTritonExperts", "emulated", f"{_MOE}experts/nvfp4_emulation_moe.py:347"),
    (r"Using OCP_MXQuantizationEmulationTritonExperts", "emulated", f"{_MOE}experts/ocp_mx_emulation_moe.py:97"),
    (r"Using Mxfp8EmulationTritonExperts", "emulated", f"{_MOE}experts/mxfp8_emulation_moe.py:70"),
    (r"Using Int4EmulationTritonExperts", "emulated", f"{_MOE}experts/int4_emulation_moe.py:44"),
    (r"MXFP8->BF16 load-time dequant complete", "emulated", f"{_QUANT}modelopt.py:1448"),
    (
        r"No MXFP4 linear kernel supports .* falling back to MXFP4 activations",
        "requantized",
        f"{_TENSORS}schemes/compressed_tensors_w4a8_mxfp4.py:27",
    ),
    (r"is not supported by AutoAWQMarlin", "not the fast path", f"{_QUANT}auto_awq.py:325"),
    (r"is not supported by GPTQMoeMarlin", "not the fast path", f"{_QUANT}auto_gptq.py:244"),
    (r"Using default W8A8 Block FP8 kernel config", "not the fast path", f"{_QUANT}utils/fp8_utils.py:953", False),
    (
        r"--quantization fp8 is deprecated for online quantization",
        "a method is deprecated",
        f"{_LOAD}weight_utils.py:357",
    ),
    (r"The quantization method \S+ is deprecated", "a method is deprecated", "vllm/config/model.py:1474", False),
)
