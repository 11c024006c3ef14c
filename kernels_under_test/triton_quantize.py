"""The engines' dynamic float8 quantizers with one scale for a token, or a tensor.

A recipe's function is the engine's arithmetic in its order. Where two engines' are the same, they share it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from narrowgauge.kernels_under_test.claiming import (
    ALL_SOURCES,
    E4M3,
    FNUZ,
    TWO_SOURCES,
    native,
    soft,
)
from narrowgauge.kernels_under_test.triton_steps import (
    about_one_over,
    at_least,
    clamp,
    clamp_nan_high,
    over,
    to_bfloat16,
)
from narrowgauge.kernels_under_test.triton_targets import (
    FINITE,
    NATIVE,
    OWN_BOUNDS,
)
from narrowgauge.kernels_under_test.triton_tiling import (
    by_groups,
    by_tensor,
)

# --- one scale for a token, or a tensor ------------------------------------------------------------------------------


@triton.jit
def vllm_token(x, amax, bound):
    scale = tl.maximum(over(amax, bound), over(1.0, bound * 512.0))
    return scale, clamp_nan_high(over(x, scale), bound)


@triton.jit
def times_inverse(x, amax, bound):
    scale = over(amax, bound)
    return scale, clamp_nan_high(x * over(1.0, scale), bound)


@triton.jit
def sglang_warp(x, amax, bound):
    scale = over(amax, bound)
    return scale, clamp_nan_high(x * tl.where(scale == 0.0, 0.0, over(1.0, scale)), bound)


@triton.jit
def vllm_native(x, amax, bound):
    scale = at_least(over(amax, bound), over(1.0, bound * 512.0))
    return scale, clamp(x * over(1.0, scale), bound)


@triton.jit
def sglang_native(x, amax, bound):
    scale = over(at_least(amax, 1e-12), bound)
    return scale, clamp(over(x, scale), bound)


@triton.jit
def aiter_triton(x, amax, bound):
    scale = over(amax, bound)
    return scale, x * over(1.0, scale)


@triton.jit
def aiter_hip(x, amax, bound):
    scale = amax * over(1.0, bound)
    return scale, x * about_one_over(scale)


@triton.jit
def input_to_float8(x, amax, bound):
    encode = over(1.0, at_least(amax, 1e-12)) * bound
    return over(1.0, encode), clamp(x * encode, bound)


@triton.jit
def input_to_float8_bf16(x, amax, bound):
    """Each step is rounded to bfloat16, as torch does with a bfloat16 tensor."""
    reciprocal = to_bfloat16(over(1.0, to_bfloat16(at_least(amax, 1e-12))))
    encode = to_bfloat16(reciprocal * bound)
    return over(1.0, encode), clamp(to_bfloat16(x * encode), bound)


@soft("vllm.fp8_per_token_dynamic", (*E4M3, *FNUZ), ALL_SOURCES)
def triton_soft_vllm_per_token(x, format):
    return by_groups(x, vllm_token, format)


@native("vllm.fp8_per_token_dynamic", (*E4M3, *FNUZ))
def triton_native_vllm_per_token(x, format):
    return by_groups(x, vllm_token, format, code=NATIVE[format])


@soft("sglang.fp8_per_token_cta", (*E4M3, *FNUZ), TWO_SOURCES)
def triton_soft_sglang_per_token(x, format):
    return by_groups(x, times_inverse, format)


@native("sglang.fp8_per_token_cta", (*E4M3, *FNUZ))
def triton_native_sglang_per_token(x, format):
    return by_groups(x, times_inverse, format, code=NATIVE[format])


@soft("sglang.fp8_per_token_warp")
def triton_soft_sglang_per_token_warp(x, format):
    return by_groups(x, sglang_warp, format)


@soft("vllm.fp8_native_token")
def triton_soft_vllm_native_token(x, format):
    return by_groups(x, vllm_native, format, nan="keep")


@soft("sglang.fp8_native_token")
def triton_soft_sglang_native_token(x, format):
    return by_groups(x, sglang_native, format, nan="keep")


@soft("aiter.fp8_triton", (*E4M3, *FNUZ))
def triton_soft_aiter_token(x, format):
    return by_groups(x, aiter_triton, format, nan="all", bound=OWN_BOUNDS[format], code=FINITE[format])


@soft("aiter.fp8_hip_token")
def triton_soft_aiter_hip_token(x, format):
    return by_groups(x, aiter_hip, format, bound=OWN_BOUNDS[format])


@soft("vllm.fp8_per_tensor_dynamic", (*E4M3, *FNUZ), TWO_SOURCES)
def triton_soft_vllm_per_tensor(x, format):
    return by_tensor(x, times_inverse, format)


@native("vllm.fp8_per_tensor_dynamic", (*E4M3, *FNUZ))
def triton_native_vllm_per_tensor(x, format):
    return by_tensor(x, times_inverse, format, code=NATIVE[format])


@soft("sglang.fp8_per_tensor_dynamic")
def triton_soft_sglang_per_tensor(x, format):
    return by_tensor(x, times_inverse, format)


@soft("vllm.fp8_native_tensor")
def triton_soft_vllm_native_tensor(x, format):
    return by_tensor(x, vllm_native, format, nan="keep")


@soft("vllm.input_to_float8", E4M3, TWO_SOURCES)
def triton_soft_vllm_input_to_float8(x, format):
    recipe = input_to_float8_bf16 if x.dtype == torch.bfloat16 else input_to_float8
    return by_tensor(x, recipe, format, nan="keep", bound=OWN_BOUNDS[format])
