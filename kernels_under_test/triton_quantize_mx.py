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
    bits,
    ceil_log_power,
    ceil_power,
    clamp,
    clamp_nan_low,
    even_power,
    floor_power,
    not_finite_to,
    over,
    stored_e4m3,
    stored_power_down,
    stored_power_up,
    zero_to,
)
from narrowgauge.kernels_under_test.triton_targets import FINITE, NATIVE, to_e2m1_unsigned_zero
from narrowgauge.kernels_under_test.triton_tiling import amax_by_blocks, by_groups

FP6 = ("float6_e2m3fn", "float6_e3m2fn")


def by_32(x, recipe, format, nan="keep", code=None, ragged=False):
    """Codes, and an E8M0 scale for each 32 elements."""
    return by_groups(x, recipe, format, 32, nan=nan, stored=torch.uint8, code=code, ragged=ragged)


# --- OCP and NVIDIA --------------------------------------------------------------------------------------------------


@triton.jit
def ocp(x, amax, bound):
    """The power of two not above amax, over that of the format's largest value."""
    power = over(floor_power(amax), floor_power(bound))
    code, scale = stored_power_down(tl.where(amax != amax, amax, power))
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
    """A NaN as an exponent is stored as 0, and still divided by."""
    power = ceil_log_power(over(at_least(amax, 1.1754943508222875e-38), bound))
    divisor = tl.minimum(at_least(power, 5.877471754111438e-39), 1.7014118346046923e38, tl.PropagateNan.ALL)
    code, _ = stored_power_up(tl.where(divisor != divisor, 0.0, divisor))
    return code, over(x, divisor)


@triton.jit
def vllm_triton(x, amax, bound):
    code, scale = stored_power_up(ceil_log_power(over(tl.maximum(amax, 1.1754943508222875e-38), bound)))
    return code, over(x, scale)


@triton.jit
def sglang_kv(x, amax, bound):
    code, scale = stored_power_up(ceil_log_power(over(tl.maximum(amax, 1e-30), bound)))
    return code, clamp_nan_low(over(x, scale), bound)


@triton.jit
def triton_kernels(x, amax, bound):
    """The code is the exponent of the power, of which a NaN has 0."""
    scale = ceil_power(over(amax, bound))
    return (bits(scale) >> 23) & 0xFF, x * tl.where(scale == 0.0, 0.0, over(1.0, scale))


@triton.jit
def modelopt(x, amax, bound):
    code, scale = stored_power_up(ceil_log_power(over(tl.where(amax != amax, 0.0, amax), bound)))
    return code, clamp(x * over(1.0, scale), bound)


@triton.jit
def quark_even(x, amax, bound):
    """Elements are divided by a power that may be 2^-127; the scale is at least 2^-126."""
    power = tl.maximum(over(even_power(amax), floor_power(bound)), 5.877471754111438e-39)
    power = tl.where(amax != amax, amax, tl.minimum(power, 1.7014118346046923e38))
    code, _ = stored_power_down(at_least(power, 1.1754943508222875e-38))
    return code, over(x, power)


@triton.jit
def vllm_even(x, amax, bound):
    """What the rounding carries beyond the largest exponent is 2^126, as is an infinite amax. The exponent 0 is 0."""
    code, scale = stored_power_down(not_finite_to(even_power(amax) * 0.25, 8.507059173023462e37))
    power = floor_power(scale)
    return code, x * tl.where(power == 0.0, 0.0, over(1.0, power))


@soft("vllm.mxfp8_torch")
def triton_soft_vllm_mxfp8_torch(x, format):
    return by_32(x, vllm_torch, format)


@soft("vllm.mxfp8_triton", E4M3, TWO_SOURCES)
def triton_soft_vllm_mxfp8(x, format):
    return by_32(x, vllm_triton, format, nan="drop", code=FINITE[format])


@soft("sglang.mxfp8_kv")
def triton_soft_sglang_mxfp8_kv(x, format):
    return by_32(x, sglang_kv, format, nan="drop")


@soft("triton_kernels.mxfp8", (*E4M3, *E5M2))
def triton_soft_triton_kernels_mxfp8(x, format):
    return by_32(x, triton_kernels, format, nan="all")


@soft("modelopt.mxfp8")
def triton_soft_modelopt_mxfp8(x, format):
    return by_32(x, modelopt, format, ragged=True)


@soft("quark.mxfp4_even", FP4, TWO_SOURCES)
def triton_soft_quark_mxfp4(x, format):
    return by_32(x, quark_even, format, code=to_e2m1_unsigned_zero)


@soft("vllm.mxfp4_cuda", FP4)
def triton_soft_vllm_mxfp4(x, format):
    return by_32(x, vllm_even, format, nan="drop")


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
