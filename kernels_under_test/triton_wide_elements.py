"""SwiGLU, the soft cap and rotations in Triton: a program has elements, or pairs of them, and all is float32."""

from __future__ import annotations

import triton
import triton.language as tl

from narrowgauge.kernels_under_test.claiming import BFLOAT16, FLOAT32, wide
from narrowgauge.kernels_under_test.triton_attention import capped
from narrowgauge.kernels_under_test.triton_codec import block_of, load_float32_bits, store_float32_bits
from narrowgauge.kernels_under_test.triton_kv_gather import patterns_for
from narrowgauge.kernels_under_test.triton_steps import bits, over, real
from narrowgauge.kernels_under_test.triton_tiling import elements_of
from narrowgauge.kernels_under_test.triton_wide_norms import ROUND, in_float32


@triton.jit(do_not_specialize=["count", "columns"])
def gate_elements(x, y, count, columns, NORMAL: tl.constexpr, BF16: tl.constexpr, TO: tl.constexpr, SIZE: tl.constexpr):
    """Gate and up of a row stand one half after the other."""
    place = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    mask = place < count
    at = place // columns * columns * 2 + place % columns
    gate, up = (real(load_float32_bits(x, at, mask, BF16)), real(load_float32_bits(x, at + columns, mask, BF16)))
    value = NORMAL(over(gate, 1.0 + tl.exp(-gate))) * up
    store_float32_bits(y, place, bits(value), mask, TO)


@triton.jit(do_not_specialize=["count"])
def cap_elements(x, y, count, cap, BF16: tl.constexpr, TO: tl.constexpr, SIZE: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    mask = place < count
    value = real(load_float32_bits(x, place, mask, BF16))
    store_float32_bits(y, place, bits(capped(value, cap)), mask, TO)


@triton.jit(do_not_specialize=["count", "half"])
def turn_pairs(
    x, cos, sin, y, count, half, TOGETHER: tl.constexpr, BF16: tl.constexpr, TO: tl.constexpr, SIZE: tl.constexpr
):
    """``TOGETHER``: the two of a pair stand side by side, and not half a row apart."""
    pair = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    mask = pair < count
    row, within = pair // half, pair % half
    if TOGETHER:
        one = row * half * 2 + within * 2
        two = one + 1
    else:
        one = row * half * 2 + within
        two = one + half
    a, b = (real(load_float32_bits(x, one, mask, BF16)), real(load_float32_bits(x, two, mask, BF16)))
    c, s = tl.load(cos + pair, mask, other=0.0), tl.load(sin + pair, mask, other=0.0)
    store_float32_bits(y, one, bits(a * c - b * s), mask, TO)
    store_float32_bits(y, two, bits(b * c + a * s), mask, TO)


def gated(x, format, *, rounds_normal=False):
    rows, columns = x.shape[0], x.shape[1] // 2
    y, to = patterns_for(format, (rows, columns), x.device)
    loaded, bf16 = elements_of(x.contiguous())
    normal = ROUND[x.dtype] if rounds_normal else in_float32
    block = block_of(y.numel())
    gate_elements[(triton.cdiv(y.numel(), block),)](loaded, y, y.numel(), columns, normal, bf16, to, block)
    return y


def turned(x, format, cos, sin, *, together):
    y, to = patterns_for(format, x.shape, x.device)
    loaded, bf16 = elements_of(x.contiguous())
    count, half = x.numel() // 2, x.shape[1] // 2
    block = block_of(count)
    turn_pairs[(triton.cdiv(count, block),)](
        loaded, cos.contiguous(), sin.contiguous(), y, count, half, together, bf16, to, block
    )
    return y


@wide("silu_mul", BFLOAT16)
def triton_wide_silu_mul(x, format):
    return gated(x, format)


@wide("silu_mul_twice_rounded", BFLOAT16)
def triton_wide_silu_mul_twice(x, format):
    return gated(x, format, rounds_normal=True)


@wide("soft_cap", FLOAT32)
def triton_wide_soft_cap(x, format):
    y, to = patterns_for(format, x.shape, x.device)
    loaded, bf16 = elements_of(x.contiguous())
    block = block_of(x.numel())
    cap_elements[(triton.cdiv(x.numel(), block),)](loaded, y, x.numel(), 30.0, bf16, to, block)
    return y


@wide("rope_neox", BFLOAT16)
def triton_wide_rope_neox(x, format, cos, sin):
    return turned(x, format, cos, sin, together=False)


@wide("rope_interleaved", FLOAT32)
def triton_wide_rope_interleaved(x, format, cos, sin):
    return turned(x, format, cos, sin, together=True)
