"""fp8 products: scales of tensors, of tokens and channels, of 1 × 128 and 128 × 128 blocks.

``soft`` ones decode by integers and multiply float32; ``native`` ones leave fp8 to the matrix unit. Of these, one adds
products in the unit's own accumulator all along K, as vLLM's does; on Hopper that has 13 bits. The others take the sum
out every 128 of K, and add it in float32.
"""

from __future__ import annotations

from narrowgauge.kernels_under_test.claiming import (
    ALL_SOURCES,
    BFLOAT16,
    E4M3,
    E5M2,
    FLOAT32,
    FNUZ,
    SIXTEEN,
    TWO_SOURCES,
    native_product,
    soft_product,
)
from narrowgauge.kernels_under_test.gemm_checks import depth_of
from narrowgauge.kernels_under_test.triton_gemm import End, product
from narrowgauge.kernels_under_test.triton_gemm_operands import Operand

FP8 = (*E4M3, *FNUZ)
ALL_FP8 = (*FP8, *E5M2, "float8_e5m2fnuz")
TENSOR, TOKENS, BLOCKS = "vllm.fp8_tensor", "vllm.fp8_token_channel", "vllm.fp8_block"


def at_the_end(x, b, a_scale, b_scale, format, source, *, bias=None, native=False, **how):
    """Scales of tensors, rows of a, or rows of b."""
    shape = x.shape[0], b.shape[0], depth_of(x, b)
    a, b = (Operand(codes, source, native=native) for codes in (x, b))
    return product(a, b, shape, format, End(a_scale, b_scale, bias=bias), **how)


def by_blocks(x, b, a_scale, b_scale, format, source, *, native=False, **how):
    """1 × 128 of a, 128 × 128 of b."""
    shape = x.shape[0], b.shape[0], depth_of(x, b)
    a = Operand(x, source, a_scale, 1, 128, native=native)
    b = Operand(b, source, b_scale, 128, 128, native=native)
    return product(a, b, shape, format, stretches=True, **how)


@soft_product("plain.matmul_fp8", FLOAT32, ALL_FP8)
def triton_soft_matmul_fp8(x, format, b, source):
    return at_the_end(x, b, None, None, format, source)


@soft_product(TENSOR, ALL_SOURCES, FP8)
def triton_soft_fp8_tensor(x, format, b, a_scale, b_scale, source):
    return at_the_end(x, b, a_scale, b_scale, format, source)


@soft_product(TOKENS, TWO_SOURCES, FP8)
def triton_soft_fp8_token_channel(x, format, b, a_scale, b_scale, source):
    return at_the_end(x, b, a_scale, b_scale, format, source)


@soft_product("vllm.fp8_token_channel_bias", SIXTEEN, E4M3)
def triton_soft_fp8_token_channel_bias(x, format, b, a_scale, b_scale, bias, source):
    return at_the_end(x, b, a_scale, b_scale, format, source, bias=bias)


@soft_product(TOKENS, BFLOAT16, E4M3)
def triton_soft_fp8_split_k(x, format, b, a_scale, b_scale, source):
    """Sums of three parts of K, added in order."""
    return at_the_end(x, b, a_scale, b_scale, format, source, parts=3)


@soft_product(TOKENS, BFLOAT16, E4M3)
def triton_soft_fp8_split_k_atomic(x, format, b, a_scale, b_scale, source):
    """Sums of three parts of K, added by whoever is first."""
    return at_the_end(x, b, a_scale, b_scale, format, source, parts=3, atomic=True)


@soft_product(BLOCKS, ALL_SOURCES, E4M3)
def triton_soft_fp8_block(x, format, b, a_scale, b_scale, source):
    return by_blocks(x, b, a_scale, b_scale, format, source)


@soft_product(BLOCKS, BFLOAT16, E4M3)
def triton_soft_fp8_block_split_k(x, format, b, a_scale, b_scale, source):
    return by_blocks(x, b, a_scale, b_scale, format, source, parts=2)


@native_product("plain.matmul_fp8", FLOAT32, ALL_FP8, "")
def triton_native_matmul_fp8(x, format, b, source):
    """All of K in the unit's own accumulator."""
    return at_the_end(x, b, None, None, format, source, native=True)


@native_product(TENSOR, BFLOAT16, FP8)
def triton_native_fp8_tensor(x, format, b, a_scale, b_scale, source):
    return at_the_end(x, b, a_scale, b_scale, format, source, native=True, promoted=True)


@native_product(TENSOR, BFLOAT16, FP8, accumulator="")
def triton_native_fp8_tensor_fast(x, format, b, a_scale, b_scale, source):
    """All of K in the unit's own accumulator, whatever the target's has."""
    return at_the_end(x, b, a_scale, b_scale, format, source, native=True)


@native_product(TOKENS, BFLOAT16, FP8)
def triton_native_fp8_token_channel(x, format, b, a_scale, b_scale, source):
    return at_the_end(x, b, a_scale, b_scale, format, source, native=True, promoted=True)


@native_product(BLOCKS, BFLOAT16, E4M3)
def triton_native_fp8_block(x, format, b, a_scale, b_scale, source):
    return by_blocks(x, b, a_scale, b_scale, format, source, native=True)
