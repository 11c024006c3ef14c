"""What SGLang 0.5.23's ``--kv-cache-dtype`` stores."""

from __future__ import annotations

from narrowgauge.reference.kv.flag import E2, E4, E4Z, E5, FNUZ_GFX, OCP_GFX, Flag, Row, elsewhere

_KV_DTYPE, _HOOK = "sglang/srt/mem_cache/kv_cache_dtype.py", "sglang/srt/arg_groups/kv_cache_hook.py"
_FIELD = "sglang/srt/arg_groups/fields/model.py:197-223"
_E5M2_ON_HIP = "both fp8 flags are the platform's e4m3 on HIP, and nothing is said"
_SGLANG_HIP = f"{_KV_DTYPE}:60-71; sglang/kernels/ops/quantization/fp8_kernel.py:102-107"


def _on_hip(says: str = "") -> tuple[Row, ...]:
    return tuple(
        Row(targets, stored, "sglang.kv_fp8", says, source=_SGLANG_HIP)
        for targets, stored in ((OCP_GFX, E4), (FNUZ_GFX, E4Z))
    )


#: set_kv_buffer divides where the dtypes differ; the Triton backend's readers take k_scale_float whatever the cache is
_UNDIVIDED = "a checkpoint's scales stay in use: Triton's reader multiplies by them, and nobody divided (read, not run)"
_UNDIVIDED_AT = "sglang/srt/mem_cache/memory_pool.py:2926-2930; sglang/srt/layers/attention/triton_backend.py:2368-2373"


def _bfloat16(name: str) -> Flag:
    row = Row("*", "bfloat16", says=_UNDIVIDED, source=f"{_KV_DTYPE}:74-75; {_UNDIVIDED_AT}")
    return Flag(name, "bfloat16", "none", "16 bits", (row,), _FIELD)


_NO_HIP = Row("gfx*", "", says="RuntimeError: FP4 in the cache is for CUDA", refused=True, source=f"{_HOOK}:317-318")
_DROP = "a warning that accuracy might drop"
SGLANG = (
    Flag("auto", "the model's dtype", "none", "16 bits", (
        Row("*", "model", says=_UNDIVIDED, source=f"{_KV_DTYPE}:49-59; {_UNDIVIDED_AT}"),), _FIELD,
         "a checkpoint whose kv_cache_quant_algo is FP8 makes it fp8_e4m3, without the warning that this flag has"),
    _bfloat16("bf16"),
    _bfloat16("bfloat16"),
    Flag("fp8_e4m3", "uint8", "tensor", "fp8",
         (Row("sm_*", E4, "sglang.kv_fp8", source=f"{_KV_DTYPE}:67-71"), *_on_hip()), _FIELD),
    Flag("fp8_e5m2", "uint8", "tensor", "fp8",
         (Row("sm_*", E5, "sglang.kv_fp8", source=f"{_KV_DTYPE}:60-66"), *_on_hip(_E5M2_ON_HIP)), _FIELD),
    Flag("mxfp8", E4, "block", "mxfp8", (
        Row("sm_10? sm_11? sm_12?", E4, "sglang.mxfp8_kv", source=f"{_KV_DTYPE}:72-73; {_HOOK}:100-109"),
        elsewhere("ValueError: mxfp8 needs sm_100 or later", f"{_HOOK}:105-109")), _FIELD),
    Flag("nvfp4", "uint8", "block and tensor", "fp4 in blocks of 16", (
        Row("sm_10?", E2,
            says=f"{_DROP}; FlashInfer's kernel, which is not read; given scales but 1 are multiplied by 6",
            source=f"{_KV_DTYPE}:76-82; {_HOOK}:124-131; fp4_kv_cache_quant_method.py:533-566"),
        Row("sm_12?", E2, says=f"{_DROP}; FlashInfer's kernel, which is not read",
            source=f"{_KV_DTYPE}:76-82; {_HOOK}:124-131"),
        _NO_HIP,
        Row("sm_*", "", says="RuntimeError: nvfp4 needs sm_100 or sm_120", refused=True, source=f"{_HOOK}:125-131")),
        _FIELD),
    Flag("fp4_mx_block16", "uint8", "block", "fp4 in blocks of 16", (
        _NO_HIP,
        Row("sm_*", E2, "sglang.fp4_kv_block16", _DROP,
            source=f"{_KV_DTYPE}:76-82; fp4_kv_cache_quant_method.py:842-868")), _FIELD),
    Flag("fp4_e2m1", "", "none", "", (
        elsewhere("no choice any more; earlier releases had it: say nvfp4 or fp4_mx_block16", _FIELD),),
        _FIELD),
)  # fmt: skip
