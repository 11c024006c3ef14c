"""Products of MXFP8, MXFP4 and NVFP4 operands: scaled by the matrix unit, or dequantized to bfloat16 before.

``soft`` ones multiply float32 numbers, in which a code times its scale is exact.
"""

from __future__ import annotations

from functools import partial

from narrowgauge.kernels_under_test.claiming import BFLOAT16, E4M3, FP4, TWO_SOURCES, native_product, soft_product
from narrowgauge.kernels_under_test.gemm_checks import check_whole, depth_of
from narrowgauge.kernels_under_test.triton_dequantize import one_per_byte
from narrowgauge.kernels_under_test.triton_gemm import End, product
from narrowgauge.kernels_under_test.triton_gemm_operands import Operand, over_whole, scaled
from narrowgauge.kernels_under_test.triton_gemm_scaled import scaled_product
from narrowgauge.kernels_under_test.triton_packed import nibble

E8M0 = "float8_e8m0fnu"


def mx(codes, format, scale, **more):
    """Groups of 32; codes of four bits two to a byte, the first one lower."""
    return _operand(codes, format, scale, 32, E8M0, **more)


def nv(codes, scale, **more):
    """Groups of 16."""
    return _operand(codes, FP4[0], scale, 16, E4M3[0], **more)


def _operand(codes, format, scale, group, scale_format, *, value=scaled, **more):
    load = nibble if format == FP4[0] else one_per_byte
    return Operand(codes, format, scale, 1, group, scale_format, value=value, load=load, **more)


def multiplied(a, b, format, by=product, end=None):
    depth = depth_of(a.codes, b.codes, *(2 if each.format == FP4[0] else 1 for each in (a, b)))
    check_whole(depth, b.block_columns)
    return by(a, b, (a.codes.shape[0], b.codes.shape[0], depth), format, end)


# --- scaled by the unit ----------------------------------------------------------------------------------------------


@soft_product("ocp.mxfp8", TWO_SOURCES, E4M3)
def triton_soft_mxfp8(x, format, b, a_scale, b_scale):
    return multiplied(mx(x, E4M3[0], a_scale), mx(b, E4M3[0], b_scale), format)


@native_product("ocp.mxfp8", TWO_SOURCES, E4M3, "float32")
def triton_dot_scaled_mxfp8(x, format, b, a_scale, b_scale):
    return multiplied(mx(x, E4M3[0], a_scale), mx(b, E4M3[0], b_scale), format, scaled_product)


@soft_product("ocp.mxfp4", TWO_SOURCES, FP4)
def triton_dot_scaled_mxfp4(x, format, b, a_scale, b_scale):
    return multiplied(mx(x, FP4[0], a_scale), mx(b, FP4[0], b_scale), format, scaled_product)


@soft_product("ocp.mxfp4", TWO_SOURCES, FP4)
def triton_soft_mxfp4(x, format, b, a_scale, b_scale):
    return multiplied(mx(x, FP4[0], a_scale), mx(b, FP4[0], b_scale), format)


@soft_product("ocp.mxfp8_mxfp4", TWO_SOURCES, E4M3)
def triton_soft_mxfp8_mxfp4(x, format, b, a_scale, b_scale):
    return multiplied(mx(x, E4M3[0], a_scale), mx(b, FP4[0], b_scale), format)


@native_product("ocp.mxfp8_mxfp4", BFLOAT16, E4M3, "float32")
def triton_dot_scaled_mxfp8_mxfp4(x, format, b, a_scale, b_scale):
    return multiplied(mx(x, E4M3[0], a_scale), mx(b, FP4[0], b_scale), format, scaled_product)


@soft_product("nvidia.nvfp4", TWO_SOURCES, FP4)
def triton_soft_nvfp4(x, format, b, a_scale, b_scale, a_global_scale, b_global_scale):
    end = End(a_whole=a_global_scale, b_whole=b_global_scale)
    return multiplied(nv(x, a_scale), nv(b, b_scale), format, end=end)


@native_product("nvidia.nvfp4", BFLOAT16, FP4, "float32")
def triton_dot_scaled_nvfp4(x, format, b, a_scale, b_scale, a_global_scale, b_global_scale):
    end = End(a_whole=a_global_scale, b_whole=b_global_scale)
    return multiplied(nv(x, a_scale), nv(b, b_scale), format, scaled_product, end)


# --- dequantized to bfloat16 -----------------------------------------------------------------------------------------


def wide(x, weights, format, native):
    return multiplied(Operand(x, BFLOAT16[0], native=native), weights, format)


def of_mx(x, b, format, source, scale, native=False):
    return wide(x, mx(b, source, scale, enters=BFLOAT16[0], native=native), format, native)


def of_nv(x, b, scale, whole, format, native=False):
    return wide(x, nv(b, scale, value=over_whole, whole=whole, enters=BFLOAT16[0], native=native), format, native)


of_mxfp8, of_mxfp4 = (partial(of_mx, source=each) for each in (E4M3[0], FP4[0]))


@soft_product("ocp.mxfp8_to_bf16", BFLOAT16, BFLOAT16)
def triton_soft_mxfp8_to_bfloat16(x, format, b, b_scale):
    return of_mxfp8(x, b, format, scale=b_scale)


@soft_product("ocp.mxfp4_to_bf16", BFLOAT16, BFLOAT16)
def triton_soft_mxfp4_to_bfloat16(x, format, b, b_scale):
    return of_mxfp4(x, b, format, scale=b_scale)


@soft_product("vllm.nvfp4_to_bf16", BFLOAT16, BFLOAT16)
def triton_soft_nvfp4_to_bfloat16(x, format, b, b_scale, b_global_scale):
    return of_nv(x, b, b_scale, b_global_scale, format)


@native_product("ocp.mxfp8_to_bf16", BFLOAT16, BFLOAT16, "float32")
def triton_native_mxfp8_to_bfloat16(x, format, b, b_scale):
    return of_mxfp8(x, b, format, scale=b_scale, native=True)


@native_product("ocp.mxfp4_to_bf16", BFLOAT16, BFLOAT16, "float32")
def triton_native_mxfp4_to_bfloat16(x, format, b, b_scale):
    return of_mxfp4(x, b, format, scale=b_scale, native=True)


@native_product("vllm.nvfp4_to_bf16", BFLOAT16, BFLOAT16, "float32")
def triton_native_nvfp4_to_bfloat16(x, format, b, b_scale, b_global_scale):
    return of_nv(x, b, b_scale, b_global_scale, format, native=True)
