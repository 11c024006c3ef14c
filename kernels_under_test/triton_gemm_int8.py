"""int8 products, exact in int32: scales of tokens and channels, zero points of a.

A zero point of a takes the sum of each row of b times it away from the int32 sums: made in the same loop, or in a pass
before it, where K is split.
"""

from __future__ import annotations

from narrowgauge.kernels_under_test.claiming import ALL_SOURCES, SIXTEEN, TWO_SOURCES, soft_product
from narrowgauge.kernels_under_test.gemm_checks import depth_of
from narrowgauge.kernels_under_test.triton_gemm import End, product, row_sums
from narrowgauge.kernels_under_test.triton_gemm_operands import Operand

INT8 = ("int8",)


def whole_numbers(x, b, a_scale, b_scale, format, *, zero=None, sums=None, bias=None, **how):
    shape = x.shape[0], b.shape[0], depth_of(x, b)
    return product(Operand(x, *INT8), Operand(b, *INT8), shape, format, End(a_scale, b_scale, zero, sums, bias), **how)


def product_of(name, formats=ALL_SOURCES, accumulator="int32"):
    return soft_product(name, formats, INT8, accumulator)


@soft_product("plain.matmul_int8", ("int32",), INT8, "int32")
def triton_soft_matmul_int8(x, format, b):
    return whole_numbers(x, b, None, None, format)


@product_of("vllm.int8_token_channel")
def triton_soft_int8_token_channel(x, format, b, a_scale, b_scale):
    return whole_numbers(x, b, a_scale, b_scale, format)


@product_of("vllm.int8_azp_tensor", TWO_SOURCES)
def triton_soft_int8_azp_tensor(x, format, b, a_scale, b_scale, a_zero_point):
    return whole_numbers(x, b, a_scale, b_scale, format, zero=a_zero_point)


@product_of("vllm.int8_azp_token")
def triton_soft_int8_azp_token(x, format, b, a_scale, b_scale, a_zero_point):
    return whole_numbers(x, b, a_scale, b_scale, format, zero=a_zero_point)


@product_of("vllm.int8_azp_token", TWO_SOURCES)
def triton_soft_int8_azp_sums_before(x, format, b, a_scale, b_scale, a_zero_point):
    """The sums of b's rows, which an engine makes when it loads them, and two parts of K."""
    return whole_numbers(x, b, a_scale, b_scale, format, zero=a_zero_point, sums=row_sums(b), parts=2)


@product_of("vllm.int8_azp_token_bias", SIXTEEN)
def triton_soft_int8_azp_token_bias(x, format, b, a_scale, b_scale, a_zero_point, bias):
    return whole_numbers(x, b, a_scale, b_scale, format, zero=a_zero_point, bias=bias)
