"""Why a recipe of an engine is not run against its source here."""

from __future__ import annotations

from collections.abc import Iterable

#: who has engines' recipes; what stands for a library is run by against_libraries
OWNERS = ("vllm.", "sglang.", "aiter.", "triton_kernels.", "awq.", "gptq.")
_REASONS: dict[str, str] = {
    "its source is CUDA or HIP": (
        "vllm.fp8_static_tensor vllm.fp8_static_token vllm.fp8_static_channel vllm.fp8_static_group_128 "
        "vllm.fp8_per_tensor_dynamic vllm.fp8_per_token_dynamic vllm.fp8_per_token_dynamic_bounded vllm.fp8_group "
        "vllm.fp8_group_ue8m0 vllm.fp8_group_ue8m0_registers vllm.fp8_group_ue8m0_packed "
        "vllm.fp8_group_ue8m0_packed_bf16 vllm.int8_static_tensor vllm.int8_static_token vllm.int8_per_token_dynamic "
        "vllm.int8_static_azp vllm.int8_per_token_dynamic_azp vllm.int8_group vllm.int8_rms_norm_token vllm.nvfp4 "
        "vllm.mxfp4_cuda vllm.kv_fp8_tensor vllm.kv_fp8_head vllm.kv_fp8_tensor_rocm vllm.kv_fp8_head_rocm "
        "vllm.kv_fp8_tensor_rocm_float16 vllm.kv_fp8_head_rocm_float16 vllm.fp8_ds_mla vllm.fp8_indexer "
        "vllm.fp8_indexer_ue8m0 vllm.nvfp4_ds_mla vllm.nvfp4_kv vllm.nvfp4_kv_over4 sglang.fp8_per_token_warp "
        "sglang.fp8_per_token_cta sglang.fp8_per_tensor_dynamic sglang.fp8_group sglang.fp8_group_ue8m0_bfloat16 "
        "sglang.fp8_group_ue8m0_float16 sglang.int8_group aiter.fp8_hip_token aiter.fp8_hip_group aiter.fp8_hip_smooth "
        "aiter.mxfp8_hip aiter.mxfp4_hip"
    ),
    "torch takes this way on a GPU alone": (
        "vllm.fp8_native_tensor_gpu vllm.fp8_native_token_gpu vllm.fp8_native_token_bounded_gpu "
        "vllm.fp8_native_group_gpu vllm.fp8_native_group_ue8m0_gpu vllm.fp8_block_gpu vllm.fp8_block_ue8m0_gpu "
        "sglang.fp8_native_tensor_gpu sglang.fp8_native_token_gpu sglang.fp8_block_ue8m0_gpu"
    ),
    "the function is that of the tensor's scale, which is run": (
        "vllm.fp8_native_static_token vllm.fp8_native_static_channel vllm.fp8_native_static_group_128 "
        "sglang.fp8_native_static_token"
    ),
    "it is a line within a method": "sglang.kv_fp8 sglang.kv_fp8_number",
    "no package of that name holds AITER's kernels": (
        "aiter.fp8_triton aiter.int8_triton aiter.fp8_triton_tensor aiter.int8_triton_tensor aiter.fp8_triton_static "
        "aiter.int8_triton_static aiter.mxfp4_triton aiter.nvfp4_triton"
    ),
    "vLLM carries an older copy, whose ties differ; nothing else is packaged": (
        "triton_kernels.mxfp4 triton_kernels.mxfp4_down"
    ),
    "it was not tried": (
        "awq.uint4 awq.uint4_bf16 gptq.uint4_symmetric gptq.uint4_symmetric_bf16 gptq.uint4_asymmetric "
        "gptq.uint4_asymmetric_bf16"
    ),
    "its writer is run as a whole, by Triton's interpreter: suites/meta/test_kv_engines.py": "vllm.int4_per_token_head",
    "it is FlashInfer's kernel, which nobody has read": "sglang.nvfp4_kv_sm90",
}
UNRUN = {name: reason for reason, names in _REASONS.items() for name in names.split()}


def of_engines(names: Iterable[str]) -> list[str]:
    """The names that are an engine's."""
    return [name for name in names if name.startswith(OWNERS)]
