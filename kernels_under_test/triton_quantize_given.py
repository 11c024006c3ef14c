"""Quantizers that are given a scale, or a number of the whole tensor beside x."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from narrowgauge.kernels_under_test.claiming import E4M3, FNUZ, FP4, TWO_SOURCES, native, soft
from narrowgauge.kernels_under_test.triton_quantize_integers import with_zero
from narrowgauge.kernels_under_test.triton_steps import (
    about_one_over,
    clamp,
    clamp_nan_high,
    over,
    stored_e4m3,
    zero_to,
)
from narrowgauge.kernels_under_test.triton_targets import NATIVE
from narrowgauge.kernels_under_test.triton_tiling import by_blocks, by_groups

INT8 = ("int8",)


@triton.jit
def vllm(x, scale, bound):
    return scale, clamp_nan_high(x * over(1.0, scale), bound)


@triton.jit
def sglang(x, scale, bound):
    return scale, clamp(over(x, scale), bound)


@triton.jit
def divided(x, scale, bound):
    return scale, over(x, scale)


@triton.jit
def vllm_zero(x, scale, bound, zero):
    return scale, with_zero(x, over(1.0, scale), zero)


@triton.jit
def as_it_is(code):
    return code


@triton.jit
def vllm_token_bounded(x, amax, bound, upper_bound):
    scale = tl.maximum(over(tl.minimum(amax, upper_bound), bound), over(1.0, bound * 512.0))
    return scale, clamp_nan_high(over(x, scale), bound)


@triton.jit
def vllm_nvfp4(x, amax, bound, divisor):
    code, scale = stored_e4m3(amax * about_one_over(bound) * divisor)
    encode = about_one_over(about_one_over(divisor) * scale)
    return code, x * tl.where(scale == 0.0, 0.0, encode)


@triton.jit
def vllm_nvfp4_emulated(x, amax, bound, divisor):
    code, scale = stored_e4m3(clamp(amax * over(1.0, bound) * divisor, 448.0))
    encode = over(1.0, zero_to(over(1.0, divisor) * scale, 1e8))
    return code, zero_to(clamp(x * encode, bound), 0.0)


# --- one scale for a tensor, token, channel or group -----------------------------------------------------------------


@soft("vllm.fp8_static_tensor")
def triton_soft_vllm_static_tensor(x, format, scale):
    return by_blocks(x, scale, vllm, format, 0, 0)


@native("vllm.fp8_static_tensor", (*E4M3, *FNUZ))
def triton_native_vllm_static_tensor(x, format, scale):
    return by_blocks(x, scale, vllm, format, 0, 0, code=NATIVE[format])


@soft("vllm.fp8_static_token")
def triton_soft_vllm_static_token(x, format, scale):
    return by_blocks(x, scale, vllm, format, 1, 0)


@soft("vllm.fp8_static_channel", E4M3, TWO_SOURCES)
def triton_soft_vllm_static_channel(x, format, scale):
    return by_blocks(x, scale, vllm, format, 0, 1)


@soft("vllm.fp8_static_group_128")
def triton_soft_vllm_static_group(x, format, scale):
    return by_blocks(x, scale, vllm, format, 1, 128)


@soft("sglang.fp8_native_static_tensor")
def triton_soft_sglang_static_tensor(x, format, scale):
    return by_blocks(x, scale, sglang, format, 0, 0)


@soft("sglang.fp8_native_static_token")
def triton_soft_sglang_static_token(x, format, scale):
    return by_blocks(x, scale, sglang, format, 1, 0)


@soft("vllm.int8_static_tensor", INT8)
def triton_soft_vllm_int8_static_tensor(x, format, scale):
    return by_blocks(x, scale, divided, format, 0, 0)


@soft("vllm.int8_static_token", INT8, TWO_SOURCES)
def triton_soft_vllm_int8_static_token(x, format, scale):
    return by_blocks(x, scale, divided, format, 1, 0)


@soft("vllm.int8_static_azp", INT8, TWO_SOURCES)
def triton_soft_vllm_int8_static_asymmetric(x, format, scale, zero_point):
    return by_blocks(x, scale, vllm_zero, format, 0, 0, code=as_it_is, whole=zero_point)


# --- a number of the tensor ------------------------------------------------------------------------------------------


@soft("vllm.fp8_per_token_dynamic_bounded")
def triton_soft_vllm_per_token_bounded(x, format, upper_bound):
    return by_groups(x, vllm_token_bounded, format, whole=upper_bound)


@soft("vllm.nvfp4", FP4, TWO_SOURCES)
def triton_soft_vllm_nvfp4(x, format, global_scale):
    return by_groups(x, vllm_nvfp4, format, 16, nan="all", stored=torch.uint8, whole=global_scale)


@soft("vllm.nvfp4_emulated", FP4)
def triton_soft_vllm_nvfp4_emulated(x, format, global_scale):
    return by_groups(x, vllm_nvfp4_emulated, format, 16, nan="keep", stored=torch.uint8, whole=global_scale)
