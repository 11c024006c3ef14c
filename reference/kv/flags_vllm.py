"""What vLLM 0.33.0's ``--kv-cache-dtype`` stores. Read in its Python files and in what the facts quote of csrc/."""

from __future__ import annotations

from narrowgauge.reference.kv.flag import E2, E4, E4Z, E5, FNUZ_GFX, FROM_SM_89, OCP_GFX, Flag, Row, elsewhere

_BACKENDS = "vllm/v1/attention/backends"
_ROCM_READS = "vllm/v1/attention/ops/chunked_prefill_paged_decode.py:369-385; prefix_prefill.py:848-859"
_TRITON_WRITER = "vllm/v1/attention/ops/triton_reshape_and_cache_flash.py:18-29,418-436"
_NATIVE = "csrc/cache_kernels.cu:335-421; nvidia/quant_utils.cuh:222-271"
_NATIVE_HIP = "csrc/cache_kernels.cu:335-421; amd/quant_utils.cuh:26-49,259-267"

_OLD = (
    Row("sm_75", "", says="no backend takes it: FLASHINFER begins at sm_80, Triton's fp8 at sm_89", refused=True,
        source=f"{_BACKENDS}/flashinfer.py:696-704; triton_attn.py:511-524"),
    Row("sm_8[06]", "", writer="triton", refused=True, source=f"{_BACKENDS}/triton_attn.py:511-524",
        says="ValueError: fp8 in the cache needs sm_89"),
)  # fmt: skip
_ON_HIP = (
    Row(FNUZ_GFX, E4Z, "vllm.kv_fp8_tensor_rocm", "float16 is divided in float16", writer="native", source=_NATIVE_HIP),
    Row(OCP_GFX, E4, "vllm.kv_fp8_tensor_rocm", "float16 is divided in float16", writer="native", source=_NATIVE_HIP),
)
#: the Triton writer views the cache as the platform's e4m3, whatever fp8 the flag asks for
_TRITON_E4 = (
    Row(f"{FROM_SM_89} {OCP_GFX}", E4, "vllm.kv_fp8_tensor_triton", writer="triton", source=_TRITON_WRITER),
    Row(FNUZ_GFX, E4Z, "vllm.kv_fp8_tensor_triton", writer="triton", source=_TRITON_WRITER),
)
_FP8 = (
    *_OLD,
    Row("sm_8[069]", E4, "vllm.kv_fp8_tensor", "by FLASHINFER; FLASH_ATTN takes fp8 on sm_90 and sm_10x alone",
        writer="native", source=f"{_NATIVE}; {_BACKENDS}/fa_utils.py:282-311"),
    Row("sm_9? sm_1??", E4, "vllm.kv_fp8_tensor", writer="native", source=_NATIVE),
    *_ON_HIP,
    *_TRITON_E4,
)  # fmt: skip
_LABEL = "e4m3 under a label of e5m2; right only where the reader does the same"
_E5M2 = (
    *_OLD,
    Row("sm_8[069] sm_9? sm_1??", E5, "vllm.kv_fp8_tensor", "by FLASHINFER; FLASH_ATTN refuses e5m2", writer="native",
        source=f"{_NATIVE}; {_BACKENDS}/fa_utils.py:293-294"),
    Row("gfx*", "", says="RuntimeError at the first write: unsupported data type of the cache", refused=True,
        writer="native", source="csrc/quantization/w8a8/fp8/amd/quant_utils.cuh, DISPATCH_BY_KV_CACHE_DTYPE"),
    Row(FROM_SM_89, E4, "vllm.kv_fp8_tensor_triton", _LABEL, writer="triton", source=_TRITON_WRITER),
    *(
        Row(targets, stored, "vllm.kv_fp8_tensor_triton", f"{_LABEL}: ROCM_ATTN reads it as float8_e5m2",
            writer="triton", source=f"{_TRITON_WRITER}; {_ROCM_READS}")
        for targets, stored in ((OCP_GFX, E4), (FNUZ_GFX, E4Z))
    ),
)  # fmt: skip
_MODEL = Row("*", "model", source="vllm/utils/torch_utils.py:519-525")


def _float(name: str) -> Flag:
    says = "refused where it is not the model's own dtype"
    old = (
        (Row("sm_75", "", writer="triton", refused=True, source=f"{_BACKENDS}/triton_attn.py:525-532",
             says="ValueError: bfloat16 in the cache needs sm_80"),)
        if name == "bfloat16" else ()
    )  # fmt: skip
    rest = Row("*", name, source="vllm/utils/torch_utils.py:40-45")
    return Flag(name, name, "none", "16 bits", (*old, rest), "vllm/config/vllm.py:1492-1508", says)


def _head(name: str, storage: str, kind: str, rows: tuple[Row, ...]) -> Flag:
    return Flag(f"{name}_per_token_head", storage, "token and head", kind, rows, f"{_BACKENDS}/triton_attn.py:307-336")


def _own(name: str, kind: str, targets: str, source: str) -> Flag:
    """A code of the engine's own that this catalogue does not describe."""
    rows = [Row(targets, "", says="packed codes of the engine's own, no recipe of this catalogue", source=source)]
    if targets != "*":
        rows.append(Row("sm_*", "", says="no backend takes it on CUDA", refused=True, source=source))
    return Flag(name, "uint8", "own", kind, tuple(rows), source)


_CACHE = "vllm/config/cache.py:44-67"
_TOKEN_HEAD = "vllm/v1/attention/ops/triton_reshape_and_cache_flash.py:169-286"
_SPARSE = f"{_BACKENDS}/mla/flashmla_sparse.py:149-155,203-204"
_FI = f"{_BACKENDS}/flashinfer.py:114-115,654-664,2819-2856"
_TURBOQUANT = ("k8v4", "4bit_nc", "k3v4_nc", "3bit_nc")
_OCTAVE = ("k3v4", "k3v3", "k3v3_compact")

VLLM = (
    Flag("auto", "the model's dtype", "none", "16 bits", (_MODEL,), "vllm/utils/torch_utils.py:498-525",
         "a checkpoint that declares its cache in fp8 or nvfp4 makes it that flag"),
    _float("float16"),
    _float("bfloat16"),
    Flag("fp8", "uint8", "tensor", "fp8", _FP8, _CACHE, "on FLASHMLA_SPARSE it means fp8_ds_mla"),
    Flag("fp8_e4m3", "uint8", "tensor", "fp8", _FP8, _CACHE),
    Flag("fp8_e5m2", "uint8", "tensor", "fp8", _E5M2, _CACHE, "refused with an fp8 checkpoint"),
    Flag("fp8_inc", E4, "tensor", "fp8",
         (elsewhere("no backend takes it: it is Gaudi's", "vllm/config/cache.py:240-242"),), _CACHE),
    Flag("fp8_ds_mla", "uint8", "own", "fp8_ds_mla", (
        Row("sm_90 sm_10? sm_12?", E4, "vllm.fp8_ds_mla", "bytes by rows, scales inside; the rotary part is bfloat16",
            source=f"{_SPARSE}; flashinfer_mla_sparse.py:168-193; csrc/cache_kernels.cu:529-635"),
        elsewhere("no backend of DeepSeek-V3.2 takes it here (V4 has rows of its own)", _SPARSE)), _CACHE),
    Flag("nvfp4_ds_mla", "uint8", "own", "nvfp4_ds_mla", (
        Row("sm_10?", E2, "vllm.nvfp4_ds_mla",
            "bytes by rows, scales inside; the rotary part is float8_e4m3fn without a scale",
            source=f"{_BACKENDS}/mla/flashmla_sparse.py:111-122,250-254"),
        elsewhere("FLASHMLA_SPARSE takes it on sm_10x alone", f"{_BACKENDS}/mla/flashmla_sparse.py:250-254")),
        _CACHE),
    *(_own(f"turboquant_{n}", f"turboquant_{n}", "*", f"{_BACKENDS}/turboquant_attn.py:133-153") for n in _TURBOQUANT),
    *(_own(f"octave_{n}", "", "gfx*", f"{_BACKENDS}/rocm_octave_attn.py:95-157") for n in _OCTAVE),
    _own("ultraquant_4bit", "ultraquant", "*", f"{_BACKENDS}/ultraquant_attn.py:71-81"),
    _head("int4", "uint8", "int4, scale of a head", (
        Row("*", "uint4", "vllm.int4_per_token_head", "heads are rotated first; the zero point hides in the scale",
            source="vllm/v1/attention/ops/int4_per_token_head.py"),)),
    _head("int8", "int8", "8 bits, scale of a head", (
        Row("*", "int8", "vllm.kv_int8_token_head", source=_TOKEN_HEAD),)),
    _head("fp8", "uint8", "8 bits, scale of a head", (
        Row("sm_75 sm_8[06]", "", refused=True, source=f"{_BACKENDS}/triton_attn.py:511-524",
            says="ValueError: fp8 in the cache needs sm_89"),
        Row(f"{FROM_SM_89} {OCP_GFX}", E4, "vllm.kv_fp8_token_head", source=_TOKEN_HEAD),
        Row(FNUZ_GFX, E4Z, "vllm.kv_fp8_token_head", source=_TOKEN_HEAD))),
    Flag("nvfp4", "uint8", "block and tensor", "fp4 in blocks of 16", (
        Row("sm_10?", E2, "vllm.nvfp4_kv", "needs TensorRT-LLM's attention for both phases", source=_FI),
        Row("sm_8? sm_9? sm_12?", E2, says="FlashInfer's own writer (fa2), which is not read", source=_FI),
        elsewhere("FLASHINFER alone takes it", _FI)), _CACHE),
    Flag("nvfp4_4over6", "uint8", "block and tensor", "fp4 in blocks of 16", (
        Row("sm_10?", E2, "vllm.nvfp4_kv", "each block takes vllm.nvfp4_kv or vllm.nvfp4_kv_over4, which errs less",
            source=_FI),
        elsewhere("on sm_10x alone: the other writer has no search", _FI)), _CACHE),
)  # fmt: skip
