"""The engines' dynamic float8 quantizers with one scale for 128 elements, or 128 by 128."""

from __future__ import annotations

import triton
import triton.language as tl

from narrowgauge.kernels_under_test.claiming import (
    BFLOAT16,
    E4M3,
    FNUZ,
    TWO_SOURCES,
    native,
    soft,
)
from narrowgauge.kernels_under_test.triton_steps import (
    about_one_over,
    at_least,
    ceil_log_power,
    ceil_power,
    clamp,
    clamp_nan_low,
    not_finite_to,
    over,
    to_bfloat16,
)
from narrowgauge.kernels_under_test.triton_targets import (
    NATIVE,
    OWN_BOUNDS,
)
from narrowgauge.kernels_under_test.triton_tiling import (
    by_groups,
    by_tiles,
)

# --- groups ----------------------------------------------------------------------------------------------------------


@triton.jit
def group(x, amax, bound):
    scale = over(tl.maximum(amax, 1e-10), bound)
    return scale, clamp_nan_low(x * over(1.0, scale), bound)


@triton.jit
def group_logarithm(x, amax, bound):
    scale = ceil_log_power(tl.maximum(over(tl.maximum(amax, 1e-10), bound), 1e-10))
    return scale, clamp_nan_low(x * over(1.0, scale), bound)


@triton.jit
def group_power(x, amax, bound):
    scale = ceil_power(tl.maximum(over(tl.maximum(amax, 1e-10), bound), 1e-10))
    return scale, clamp_nan_low(x * over(1.0, scale), bound)


@triton.jit
def group_power_bf16(x, amax, bound):
    scale = ceil_power(tl.maximum(over(tl.maximum(amax, 1e-10), bound), 1e-10))
    return scale, clamp_nan_low(to_bfloat16(x * over(1.0, scale)), bound)


@triton.jit
def group_over(x, amax, bound):
    scale = over(tl.maximum(amax, 1e-10), bound)
    return scale, clamp_nan_low(over(x, scale), bound)


@triton.jit
def vllm_triton(x, amax, bound):
    scale = tl.maximum(amax, 1e-10) * over(1.0, bound)
    return scale, clamp_nan_low(over(x, scale), bound)


@triton.jit
def vllm_triton_power(x, amax, bound):
    scale = ceil_log_power(tl.maximum(amax, 1e-10) * over(1.0, bound))
    return scale, clamp_nan_low(over(x, scale), bound)


@triton.jit
def vllm_native_group(x, amax, bound):
    scale = at_least(over(amax, bound), over(1.0, bound * 512.0))
    return scale, clamp(over(x, scale), bound)


@triton.jit
def vllm_native_group_power(x, amax, bound):
    scale = ceil_log_power(at_least(over(amax, bound), over(1.0, bound * 512.0)))
    return scale, clamp(over(x, scale), bound)


@triton.jit
def sglang_group(x, amax, bound):
    """The multiplier is 448 / amax, and not the reciprocal of the scale."""
    lowest = tl.maximum(amax, 1e-10)
    return lowest * over(1.0, bound), tl.minimum(x * over(bound, lowest), bound)


@triton.jit
def aiter_hip_group(x, amax, bound):
    scale = tl.maximum(amax, 1e-10) * over(1.0, bound)
    return scale, x * about_one_over(scale)


@soft("vllm.fp8_group", (*E4M3, *FNUZ), TWO_SOURCES)
def triton_soft_vllm_group(x, format):
    return by_groups(x, group, format, 128)


@native("vllm.fp8_group", (*E4M3, *FNUZ))
def triton_native_vllm_group(x, format):
    return by_groups(x, group, format, 128, code=NATIVE[format])


@soft("vllm.fp8_group_ue8m0")
def triton_soft_vllm_group_ue8m0(x, format):
    return by_groups(x, group_logarithm, format, 128)


@soft("vllm.fp8_group_ue8m0_registers")
def triton_soft_vllm_group_ue8m0_registers(x, format):
    return by_groups(x, group_power, format, 128)


@soft("vllm.fp8_group_ue8m0_packed", E4M3, BFLOAT16)
def triton_soft_vllm_group_ue8m0_packed(x, format):
    return by_groups(x, group_power, format, 128)


@soft("vllm.fp8_group_ue8m0_packed_bf16", E4M3, BFLOAT16)
def triton_soft_vllm_group_ue8m0_packed_bf16(x, format):
    return by_groups(x, group_power_bf16, format, 128)


@soft("vllm.fp8_group_triton")
def triton_soft_vllm_group_triton(x, format):
    return by_groups(x, vllm_triton, format, 128)


@soft("vllm.fp8_group_triton_ue8m0")
def triton_soft_vllm_group_triton_ue8m0(x, format):
    return by_groups(x, vllm_triton_power, format, 128)


@soft("vllm.fp8_native_group")
def triton_soft_vllm_native_group(x, format):
    return by_groups(x, vllm_native_group, format, 128, ragged=True, nan="keep")


@soft("vllm.fp8_native_group_ue8m0")
def triton_soft_vllm_native_group_ue8m0(x, format):
    return by_groups(x, vllm_native_group_power, format, 128, ragged=True, nan="keep")


@soft("sglang.fp8_group", E4M3, TWO_SOURCES)
def triton_soft_sglang_group(x, format):
    return by_groups(x, sglang_group, format, 128)


@soft("sglang.fp8_group_triton_row_major")
def triton_soft_sglang_group_row_major(x, format):
    return by_groups(x, group, format, 128)


@soft("sglang.fp8_group_triton_column_major")
def triton_soft_sglang_group_column_major(x, format):
    return by_groups(x, group_over, format, 128)


@soft("aiter.fp8_hip_group", (*E4M3, *FNUZ))
def triton_soft_aiter_hip_group(x, format):
    return by_groups(x, aiter_hip_group, format, 128, bound=OWN_BOUNDS[format])


# --- blocks of weights -----------------------------------------------------------------------------------------------


@triton.jit
def weight_block(x, amax, bound):
    scale = over(at_least(amax, 1e-4), bound)
    return scale, x * over(1.0, scale)


@triton.jit
def vllm_weight_block_power(x, amax, bound):
    scale = ceil_log_power(over(at_least(amax, 1e-4), bound))
    return scale, x * over(1.0, scale)


@triton.jit
def sglang_weight_block_power(x, amax, bound):
    """The exponent is held to 1..254: what is no number becomes 2^127."""
    scale = ceil_power(not_finite_to(over(at_least(amax, 1e-4), bound), 1.7014118346046923e38))
    return scale, x * over(1.0, scale)


@soft("vllm.fp8_block", E4M3, TWO_SOURCES)
def triton_soft_vllm_block(x, format):
    return by_tiles(x, weight_block, format)


@soft("vllm.fp8_block_ue8m0")
def triton_soft_vllm_block_ue8m0(x, format):
    return by_tiles(x, vllm_weight_block_power, format)


@soft("sglang.fp8_block_ue8m0")
def triton_soft_sglang_block_ue8m0(x, format):
    return by_tiles(x, sglang_weight_block_power, format)
