"""Grouped products: each row of a is multiplied by the matrix of its expert; rows of expert -1 are zeros.

The matrices of the experts stand below one another, [E · N, K], and so do their scales. Rows are ordered by expert and
padded to whole tiles, so that a tile meets one matrix.
"""

from __future__ import annotations

from narrowgauge.kernels_under_test.claiming import BFLOAT16, E4M3, FNUZ, SIXTEEN, native_product, soft_product
from narrowgauge.kernels_under_test.gemm_checks import columns_of, depth_of
from narrowgauge.kernels_under_test.triton_gemm import End, product
from narrowgauge.kernels_under_test.triton_gemm_operands import Operand


def grouped(x, b, experts, count, format, source, *, a_scale=None, b_scale=None, block=0, native=False, **how):
    """Scales of rows, or with ``block`` of 1 × block and block × block."""
    shape = x.shape[0], columns_of(b, count, block), depth_of(x, b)
    if block:
        a = Operand(x, source, a_scale, 1, block, native=native)
        b = Operand(b, source, b_scale, block, block, native=native)
        return product(a, b, shape, format, stretches=True, of_experts=experts, **how)
    a, b = (Operand(codes, source, native=native) for codes in (x, b))
    return product(a, b, shape, format, End(a_scale, b_scale), of_experts=experts, **how)


@soft_product("vllm.moe", BFLOAT16, BFLOAT16)
def triton_soft_moe(x, format, b, experts, expert_count, source):
    return grouped(x, b, experts, expert_count, format, source)


@soft_product("vllm.moe_fp8_channel", BFLOAT16, (*E4M3, *FNUZ))
def triton_soft_moe_fp8_channel(x, format, b, a_scale, b_scale, experts, expert_count, source):
    return grouped(x, b, experts, expert_count, format, source, a_scale=a_scale, b_scale=b_scale)


@soft_product("vllm.moe_fp8_block", SIXTEEN, E4M3)
def triton_soft_moe_fp8_block(x, format, b, a_scale, b_scale, experts, expert_count, source):
    return grouped(x, b, experts, expert_count, format, source, a_scale=a_scale, b_scale=b_scale, block=128)


@native_product("vllm.moe_fp8_block", BFLOAT16, E4M3)
def triton_native_moe_fp8_block(x, format, b, a_scale, b_scale, experts, expert_count, source):
    how = {"a_scale": a_scale, "b_scale": b_scale, "block": 128, "native": True}
    return grouped(x, b, experts, expert_count, format, source, **how)
