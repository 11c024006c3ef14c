"""Products of bfloat16 and float16, and those whose second matrix is dequantized to the format of the first.

b is [N, K], or words of codes of four bits as AWQ, GPTQ and vLLM store a weight [K, N]. What a code stands for is
rounded to a's format before it is multiplied.
"""

from __future__ import annotations

from narrowgauge.kernels_under_test.claiming import BFLOAT16, FLOAT16, TWO_SOURCES, native_product, soft_product
from narrowgauge.kernels_under_test.gemm_checks import depth_of
from narrowgauge.kernels_under_test.triton_gemm import End, product
from narrowgauge.kernels_under_test.triton_gemm_operands import (
    Operand,
    less_eight,
    less_zero,
    words_along_rows,
)
from narrowgauge.kernels_under_test.triton_packed import awq, gptq


def plain(x, b, format, source, *, bias=None, native=False, **how):
    shape = x.shape[0], b.shape[0], depth_of(x, b)
    a, b = (Operand(each, source, native=native) for each in (x, b))
    return product(a, b, shape, format, End(bias=bias), **how)


@soft_product("plain.matmul", TWO_SOURCES, BFLOAT16)
def triton_soft_matmul_bfloat16(x, b, format, source):
    return plain(x, b, format, source)


@soft_product("plain.matmul", (*FLOAT16, "float32"), FLOAT16)
def triton_soft_matmul_float16(x, b, format, source):
    return plain(x, b, format, source)


@soft_product("plain.matmul_bias", BFLOAT16, BFLOAT16)
def triton_soft_matmul_bias(x, b, bias, format, source):
    return plain(x, b, format, source, bias=bias)


@native_product("plain.matmul", BFLOAT16, BFLOAT16, "float32")
def triton_native_matmul_bfloat16(x, b, format, source):
    return plain(x, b, format, source, native=True)


@native_product("plain.matmul", FLOAT16, FLOAT16, "float32")
def triton_native_matmul_float16(x, b, format, source):
    return plain(x, b, format, source, native=True)


# --- weights of four bits, in words ----------------------------------------------------------------------------------


def four_bits(x, b, b_scale, format, source, load, rows, *, zero=None, groups=None, native=False, **how):
    """b_scale and zero points are [K / 128, N]."""
    a = Operand(x, source, native=native)
    weights = Operand(
        b, "uint4", b_scale.t(), 1, 128, source, None if zero is None else zero.t(), groups=groups,
        value=less_eight if zero is None else less_zero, enters=source, load=load, native=native,
    )  # fmt: skip
    return product(a, weights, (x.shape[0], rows, x.shape[1]), format, **how)


def vllm_words(x, b, b_scale, format, source, **how):
    """b is [K, N / 8] words, in order."""
    return four_bits(x, b, b_scale, format, source, words_along_rows, 8 * b.shape[1], **how)


def gptq_words(x, b, b_scale, format, source, **how):
    """b is [K / 8, N] words."""
    return four_bits(x, b, b_scale, format, source, gptq, b.shape[1], **how)


def awq_words(x, b, b_scale, format, source, **how):
    """b is [K, N / 8] words, the even ones of a word first."""
    return four_bits(x, b, b_scale, format, source, awq, 8 * b.shape[1], **how)


@soft_product("vllm.w4a16_uint4b8", FLOAT16, FLOAT16)
def triton_soft_w4a16_float16(x, b, b_scale, format, source):
    return vllm_words(x, b, b_scale, format, source)


@soft_product("vllm.w4a16_uint4b8_bf16", BFLOAT16, BFLOAT16)
def triton_soft_w4a16_bfloat16(x, b, b_scale, format, source):
    return vllm_words(x, b, b_scale, format, source)


@soft_product("vllm.w4a16_zero_point", FLOAT16, FLOAT16)
def triton_soft_w4a16_zero_point_float16(x, b, b_scale, b_zero_point, format, source):
    return vllm_words(x, b, b_scale, format, source, zero=b_zero_point)


@soft_product("vllm.w4a16_zero_point_bf16", BFLOAT16, BFLOAT16)
def triton_soft_w4a16_zero_point_bfloat16(x, b, b_scale, b_zero_point, format, source):
    return vllm_words(x, b, b_scale, format, source, zero=b_zero_point)


@soft_product("gptq.gemm", FLOAT16, FLOAT16)
def triton_soft_gptq_float16(x, b, b_scale, format, source):
    return gptq_words(x, b, b_scale, format, source)


@soft_product("gptq.gemm_bf16", BFLOAT16, BFLOAT16)
def triton_soft_gptq_bfloat16(x, b, b_scale, format, source):
    return gptq_words(x, b, b_scale, format, source)


@soft_product("gptq.gemm_zero_point", FLOAT16, FLOAT16)
def triton_soft_gptq_zero_point_float16(x, b, b_scale, b_zero_point, format, source):
    return gptq_words(x, b, b_scale, format, source, zero=b_zero_point)


@soft_product("gptq.gemm_zero_point_bf16", BFLOAT16, BFLOAT16)
def triton_soft_gptq_zero_point_bfloat16(x, b, b_scale, b_zero_point, format, source):
    return gptq_words(x, b, b_scale, format, source, zero=b_zero_point)


@soft_product("gptq.gemm_act_order", FLOAT16, FLOAT16)
def triton_soft_gptq_act_order_float16(x, b, b_scale, b_zero_point, b_group_index, format, source):
    return gptq_words(x, b, b_scale, format, source, zero=b_zero_point, groups=b_group_index)


@soft_product("gptq.gemm_act_order_bf16", BFLOAT16, BFLOAT16)
def triton_soft_gptq_act_order_bfloat16(x, b, b_scale, b_zero_point, b_group_index, format, source):
    return gptq_words(x, b, b_scale, format, source, zero=b_zero_point, groups=b_group_index)


@soft_product("awq.gemm", FLOAT16, FLOAT16)
def triton_soft_awq_float16(x, b, b_scale, b_zero_point, format, source):
    return awq_words(x, b, b_scale, format, source, zero=b_zero_point)


@soft_product("awq.gemm_bf16", BFLOAT16, BFLOAT16)
def triton_soft_awq_bfloat16(x, b, b_scale, b_zero_point, format, source):
    return awq_words(x, b, b_scale, format, source, zero=b_zero_point)


@native_product("awq.gemm", FLOAT16, FLOAT16, "float32")
def triton_native_awq_float16(x, b, b_scale, b_zero_point, format, source):
    return awq_words(x, b, b_scale, format, source, zero=b_zero_point, native=True)


@native_product("awq.gemm_bf16", BFLOAT16, BFLOAT16, "float32")
def triton_native_awq_bfloat16(x, b, b_scale, b_zero_point, format, source):
    return awq_words(x, b, b_scale, format, source, zero=b_zero_point, native=True)


@soft_product("awq.gemm", FLOAT16, FLOAT16)
def triton_soft_awq_split_k(x, b, b_scale, b_zero_point, format, source):
    """Sums of four parts of K in float32, where vLLM keeps float16."""
    return awq_words(x, b, b_scale, format, source, zero=b_zero_point, parts=4)
