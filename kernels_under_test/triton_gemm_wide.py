"""Products of bfloat16 and float16, and those whose second matrix is dequantized to the format of the first.

b is [N, K], or words of codes of four bits as AWQ, GPTQ and vLLM store a weight [K, N]. What a code stands for is
rounded to a's format before it is multiplied.
"""

from __future__ import annotations

from narrowgauge.kernels_under_test.claiming import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    TWO_SOURCES,
    native_product,
    soft_product,
)
from narrowgauge.kernels_under_test.gemm_checks import check_words, depth_of
from narrowgauge.kernels_under_test.triton_gemm import End, product
from narrowgauge.kernels_under_test.triton_gemm_operands import (
    Operand,
    less_eight,
    less_zero,
    words_along_rows,
    words_less_one,
)
from narrowgauge.kernels_under_test.triton_packed import awq, gptq


def plain(x, b, format, source, *, bias=None, native=False, **how):
    shape = x.shape[0], b.shape[0], depth_of(x, b)
    a, b = (Operand(each, source, native=native) for each in (x, b))
    return product(a, b, shape, format, End(bias=bias), **how)


@soft_product("plain.matmul", TWO_SOURCES, BFLOAT16)
def triton_soft_matmul_bfloat16(x, format, b, source):
    return plain(x, b, format, source)


@soft_product("plain.matmul", (*FLOAT16, *FLOAT32), FLOAT16)
def triton_soft_matmul_float16(x, format, b, source):
    return plain(x, b, format, source)


@soft_product("plain.matmul", FLOAT32, FLOAT32)
def triton_soft_matmul_float32(x, format, b, source):
    return plain(x, b, format, source)


@soft_product("plain.matmul_bias", BFLOAT16, BFLOAT16)
def triton_soft_matmul_bias(x, format, b, bias, source):
    return plain(x, b, format, source, bias=bias)


@native_product("plain.matmul", BFLOAT16, BFLOAT16, "float32")
def triton_native_matmul_bfloat16(x, format, b, source):
    return plain(x, b, format, source, native=True)


@native_product("plain.matmul", FLOAT16, FLOAT16, "float32")
def triton_native_matmul_float16(x, format, b, source):
    return plain(x, b, format, source, native=True)


# --- weights of four bits, in words ----------------------------------------------------------------------------------


def four_bits(x, b, b_scale, format, source, load, rows, *, zero=None, zeros=None, groups=None, native=False, **how):
    """b_scale is [K / 128, N]; zero points are words [K / 128, N / 8]."""
    of_zeros = {} if zero is None else {"zero": zero, "zeros": zeros, "value": less_zero}
    weights = Operand(
        b, "uint4", b_scale.t(), 1, 128, source, groups=groups, enters=source, load=load, native=native,
        turned=", turned,",
        **{"value": less_eight, **of_zeros},
    )  # fmt: skip
    a = Operand(x, source, native=native)
    return product(a, weights, (x.shape[0], rows, x.shape[1]), format, **how)


def vllm_words(x, b, b_scale, format, source, **how):
    """b is [K, N / 8] words, in order."""
    check_words(x, b, 1)
    return four_bits(x, b, b_scale, format, source, words_along_rows, 8 * b.shape[1], zeros=words_along_rows, **how)


def gptq_words(x, b, b_scale, format, source, **how):
    """b is [K / 8, N] words; zero points are stored less 1."""
    check_words(x, b, 8)
    return four_bits(x, b, b_scale, format, source, gptq, b.shape[1], zeros=words_less_one, **how)


def awq_words(x, b, b_scale, format, source, **how):
    """b is [K, N / 8] words, the even ones of a word first."""
    check_words(x, b, 1)
    return four_bits(x, b, b_scale, format, source, awq, 8 * b.shape[1], zeros=awq, **how)


@soft_product("vllm.w4a16_uint4b8", FLOAT16, FLOAT16)
def triton_soft_w4a16_float16(x, format, b, b_scale, source):
    return vllm_words(x, b, b_scale, format, source)


@soft_product("vllm.w4a16_uint4b8_bf16", BFLOAT16, BFLOAT16)
def triton_soft_w4a16_bfloat16(x, format, b, b_scale, source):
    return vllm_words(x, b, b_scale, format, source)


@soft_product("vllm.w4a16_zero_point", FLOAT16, FLOAT16)
def triton_soft_w4a16_zero_point_float16(x, format, b, b_scale, b_zero_point, source):
    return vllm_words(x, b, b_scale, format, source, zero=b_zero_point)


@soft_product("gptq.gemm_symmetric", FLOAT16, FLOAT16)
def triton_soft_gptq_symmetric_float16(x, format, b, b_scale, source):
    return gptq_words(x, b, b_scale, format, source)


@soft_product("vllm.w4a16_zero_point_bf16", BFLOAT16, BFLOAT16)
def triton_soft_w4a16_zero_point_bfloat16(x, format, b, b_scale, b_zero_point, source):
    return vllm_words(x, b, b_scale, format, source, zero=b_zero_point)


@soft_product("gptq.gemm_symmetric_bf16", BFLOAT16, BFLOAT16)
def triton_soft_gptq_symmetric_bfloat16(x, format, b, b_scale, source):
    return gptq_words(x, b, b_scale, format, source)


@soft_product("gptq.gemm", FLOAT16, FLOAT16)
def triton_soft_gptq_float16(x, format, b, b_scale, b_zero_point, source):
    return gptq_words(x, b, b_scale, format, source, zero=b_zero_point)


@soft_product("gptq.gemm_bf16", BFLOAT16, BFLOAT16)
def triton_soft_gptq_bfloat16(x, format, b, b_scale, b_zero_point, source):
    return gptq_words(x, b, b_scale, format, source, zero=b_zero_point)


@soft_product("gptq.gemm_act_order", (*FLOAT16, *FLOAT32), FLOAT16)
def triton_soft_gptq_act_order_float16(x, format, b, b_scale, b_zero_point, b_group_index, source):
    return gptq_words(x, b, b_scale, format, source, zero=b_zero_point, groups=b_group_index)


@soft_product("gptq.gemm_act_order_bf16", (*BFLOAT16, *FLOAT32), BFLOAT16)
def triton_soft_gptq_act_order_bfloat16(x, format, b, b_scale, b_zero_point, b_group_index, source):
    return gptq_words(x, b, b_scale, format, source, zero=b_zero_point, groups=b_group_index)


@soft_product("awq.gemm", (*FLOAT16, *FLOAT32), FLOAT16)
def triton_soft_awq_float16(x, format, b, b_scale, b_zero_point, source):
    return awq_words(x, b, b_scale, format, source, zero=b_zero_point)


@soft_product("awq.gemm_bf16", (*BFLOAT16, *FLOAT32), BFLOAT16)
def triton_soft_awq_bfloat16(x, format, b, b_scale, b_zero_point, source):
    return awq_words(x, b, b_scale, format, source, zero=b_zero_point)


@native_product("awq.gemm", FLOAT16, FLOAT16, "float32")
def triton_native_awq_float16(x, format, b, b_scale, b_zero_point, source):
    return awq_words(x, b, b_scale, format, source, zero=b_zero_point, native=True)


@native_product("awq.gemm_bf16", BFLOAT16, BFLOAT16, "float32")
def triton_native_awq_bfloat16(x, format, b, b_scale, b_zero_point, source):
    return awq_words(x, b, b_scale, format, source, zero=b_zero_point, native=True)


@soft_product("awq.gemm", FLOAT16, FLOAT16)
def triton_soft_awq_split_k(x, format, b, b_scale, b_zero_point, source):
    """Sums of three parts of K in float32, where vLLM keeps float16."""
    return awq_words(x, b, b_scale, format, source, zero=b_zero_point, parts=3)
