"""Quantizers to the microscaling formats, and to NVFP4: a scale of 8 bits for 32 elements, or for 16.

A recipe's function returns the code of the scale, which is what is stored.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from narrowgauge.kernels_under_test.claiming import E4M3, E5M2, FLOAT32, FP4, TWO_SOURCES, native, soft
from narrowgauge.kernels_under_test.triton_steps import (
    at_least,
    ceil_log_power,
    clamp,
    even_power,
    floor_power,
    not_finite_to,
    over,
    stored_e4m3,
    stored_power_down,
    stored_power_up,
    zero_to,
)
from narrowgauge.kernels_under_test.triton_targets import NATIVE
from narrowgauge.kernels_under_test.triton_tiling import amax_by_blocks, by_groups

FP6 = ("float6_e2m3fn", "float6_e3m2fn")


def by_32(x, recipe, format, keep_nan=True, code=None):
    """Codes, and an E8M0 scale for each 32 elements."""
    return by_groups(x, recipe, format, 32, keep_nan=keep_nan, stored=torch.uint8, code=code)


# --- OCP and NVIDIA --------------------------------------------------------------------------------------------------


@triton.jit
def ocp(x, amax, bound):
    """The power of two not above amax, over that of the format's largest value."""
    code, scale = stored_power_down(over(amax, floor_power(bound)))
    return code, over(x, scale)


@triton.jit
def ocp_held(x, amax, bound):
    """The same to a conversion that saturates: AMD's documents leave open what CDNA4's makes of an infinity."""
    code, value = ocp(x, amax, bound)
    return code, clamp(value, bound)


@triton.jit
def ocp_int8(x, amax, bound):
    """Codes are multiples of 2^-6, and -128 is none."""
    code, scale = stored_power_down(amax)
    return code, clamp(over(x, scale) * 64.0, bound)


@triton.jit
def rounded_up(x, amax, bound):
    code, scale = stored_power_up(over(amax, bound))
    return code, over(x, scale)


@soft("ocp.mxfp8_e4m3", E4M3, TWO_SOURCES)
def triton_soft_ocp_mxfp8_e4m3(x, format):
    return by_32(x, ocp, format)


@native("ocp.mxfp8_e4m3", E4M3)
def triton_native_ocp_mxfp8_e4m3(x, format):
    return by_32(x, ocp_held, format, code=NATIVE[format])


@soft("ocp.mxfp8_e5m2", E5M2)
def triton_soft_ocp_mxfp8_e5m2(x, format):
    return by_32(x, ocp, format)


@native("ocp.mxfp8_e5m2", E5M2)
def triton_native_ocp_mxfp8_e5m2(x, format):
    return by_32(x, ocp_held, format, code=NATIVE[format])


@soft("ocp.mxfp6_e2m3", FP6[:1])
def triton_soft_ocp_mxfp6_e2m3(x, format):
    return by_32(x, ocp, format)


@soft("ocp.mxfp6_e3m2", FP6[1:])
def triton_soft_ocp_mxfp6_e3m2(x, format):
    return by_32(x, ocp, format)


@soft("ocp.mxfp4", FP4, TWO_SOURCES)
def triton_soft_ocp_mxfp4(x, format):
    return by_32(x, ocp, format)


@soft("ocp.mxint8", ("int8",), TWO_SOURCES)
def triton_soft_ocp_mxint8(x, format):
    return by_32(x, ocp_int8, format)


@soft("nvidia.mxfp8_e4m3", E4M3, TWO_SOURCES)
def triton_soft_nvidia_mxfp8_e4m3(x, format):
    return by_32(x, rounded_up, format)


@soft("nvidia.mxfp8_e5m2", E5M2)
def triton_soft_nvidia_mxfp8_e5m2(x, format):
    return by_32(x, rounded_up, format)


# --- engines ---------------------------------------------------------------------------------------------------------


@triton.jit
def vllm_torch(x, amax, bound):
    code, scale = stored_power_up(ceil_log_power(over(at_least(amax, 1.1754943508222875e-38), bound)))
    return code, over(x, scale)


@triton.jit
def vllm_triton(x, amax, bound):
    code, scale = stored_power_up(ceil_log_power(over(at_least(amax, 1.1754943508222875e-38), bound)))
    return code, x * over(1.0, scale)


@triton.jit
def sglang_kv(x, amax, bound):
    code, scale = stored_power_up(ceil_log_power(over(at_least(amax, 1e-30), bound)))
    return code, clamp(over(x, scale), bound)


@triton.jit
def triton_kernels(x, amax, bound):
    code, scale = stored_power_up(over(amax, bound))
    return code, x * over(1.0, scale)


@triton.jit
def modelopt(x, amax, bound):
    code, scale = stored_power_up(ceil_log_power(over(amax, bound)))
    return code, clamp(over(x, scale), bound)


@triton.jit
def quark_even(x, amax, bound):
    code, scale = stored_power_down(even_power(amax) * 0.25)
    return code, over(x, scale)


@triton.jit
def vllm_even(x, amax, bound):
    """What the rounding carries beyond the largest exponent is 2^126, as is an infinite amax."""
    code, scale = stored_power_down(not_finite_to(even_power(amax) * 0.25, 8.507059173023462e37))
    return code, over(x, scale)


@soft("vllm.mxfp8_torch")
def triton_soft_vllm_mxfp8_torch(x, format):
    return by_32(x, vllm_torch, format)


@soft("vllm.mxfp8_triton", E4M3, TWO_SOURCES)
def triton_soft_vllm_mxfp8(x, format):
    return by_32(x, vllm_triton, format)


@soft("sglang.mxfp8_kv")
def triton_soft_sglang_mxfp8_kv(x, format):
    return by_32(x, sglang_kv, format)


@soft("triton_kernels.mxfp8")
def triton_soft_triton_kernels_mxfp8(x, format):
    return by_32(x, triton_kernels, format)


@soft("modelopt.mxfp8")
def triton_soft_modelopt_mxfp8(x, format):
    return by_32(x, modelopt, format)


@soft("quark.mxfp4_even", FP4, TWO_SOURCES)
def triton_soft_quark_mxfp4(x, format):
    return by_32(x, quark_even, format, keep_nan=False)


@soft("vllm.mxfp4_cuda", FP4)
def triton_soft_vllm_mxfp4(x, format):
    return by_32(x, vllm_even, format, keep_nan=False)


# --- NVFP4 -----------------------------------------------------------------------------------------------------------


@triton.jit
def divisor_of(amax):
    return not_finite_to(over(2688.0, amax), 1.0)


@triton.jit
def multiplier_of(amax):
    return zero_to(over(amax, 2688.0), 1.0)


@triton.jit
def whole_scale(found, out, OF: tl.constexpr):
    tl.store(out, OF(tl.load(found)))


@triton.jit
def by_divisor(x, amax, bound, divisor):
    code, scale = stored_e4m3(over(amax, bound) * divisor)
    return code, x * tl.where(scale == 0.0, 0.0, over(divisor, scale))


@triton.jit
def by_multiplier(x, amax, bound, multiplier):
    code, scale = stored_e4m3(over(over(amax, bound), multiplier))
    return code, x * tl.where(scale == 0.0, 0.0, over(1.0, scale * multiplier))


def two_levels(x, of, recipe, format):
    """Codes, the float32 scale of the tensor [1, 1], and an E4M3 scale for each 16 elements."""
    whole = torch.empty((1, 1), dtype=torch.float32, device=x.device)
    whole_scale[(1,)](amax_by_blocks(x, 0, 0), whole, of)
    codes, scales = by_groups(x, recipe, format, 16, stored=torch.uint8, whole=whole)
    return codes, whole, scales


@soft("nvidia.nvfp4_divisor", FP4, TWO_SOURCES)
def triton_soft_nvfp4_divisor(x, format):
    return two_levels(x, divisor_of, by_divisor, format)


@soft("nvidia.nvfp4_multiplier", FP4, FLOAT32)
def triton_soft_nvfp4_multiplier(x, format):
    return two_levels(x, multiplier_of, by_multiplier, format)
