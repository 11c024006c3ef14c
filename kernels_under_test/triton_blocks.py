"""Kernels of the kinds that engines have besides casts: loops over blocks, reductions, KV cache by slots, packing.

They claim nothing: suites/portability compares what they give compiled, interpreted and in NumPy.
"""

from __future__ import annotations

import triton
import triton.language as tl

from narrowgauge.kernels_under_test.triton_codec import decode, encode


@triton.jit
def row_scale(x, amaxes, scales, columns, BOUND: tl.constexpr, BLOCK: tl.constexpr):
    """A row to a program: the largest magnitude, NaN left out, over blocks of columns; and that divided by BOUND."""
    row = tl.program_id(0).to(tl.int64)
    largest = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        value = tl.load(x + row * columns + column, column < columns, other=0.0)
        magnitude = value.to(tl.int32, bitcast=True) & 0x7FFFFFFF
        largest = tl.maximum(largest, tl.where(magnitude > 0x7F800000, 0, magnitude))
    amax = tl.max(largest, 0).to(tl.float32, bitcast=True)
    tl.store(amaxes + row, amax)
    tl.store(scales + row, amax / BOUND)


@triton.jit
def kv_write(x, slots, cache, scales, width, bound, BLOCK: tl.constexpr):
    """A token to a program: its row to e4m3fn codes in the slot of the cache that it is given; below 0 it has none."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token)
    if slot >= 0:
        column = tl.arange(0, BLOCK)
        mask = column < width
        value = tl.load(x + token * width + column, mask, other=0.0)
        magnitude = value.to(tl.int32, bitcast=True) & 0x7FFFFFFF
        amax = tl.max(magnitude, 0).to(tl.float32, bitcast=True)
        scale = tl.div_rn(tl.maximum(amax, 1e-10), bound)
        scaled = tl.div_rn(value, tl.zeros((BLOCK,), tl.float32) + scale).to(tl.int32, bitcast=True)
        code = encode(scaled, 3, 7, 0x7E, 0x80, 0x7E, 0x7E, 0x7F, 0x7F, True)
        tl.store(cache + slot.to(tl.int64) * width + column, code.to(tl.uint8), mask)
        tl.store(scales + slot, scale)


@triton.jit
def kv_read(cache, scales, slots, out, width, BLOCK: tl.constexpr):
    """The rows of the slots back to float32; zeros where a token has no slot."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token)
    column = tl.arange(0, BLOCK)
    mask = column < tl.where(slot >= 0, width, 0)
    code = tl.load(cache + slot.to(tl.int64) * width + column, mask, other=0).to(tl.int32)
    value = decode(code, 3, 7, 0x7E, 0x80, -1, 0x7F, 0.001953125).to(tl.float32, bitcast=True)
    scale = tl.load(scales + tl.maximum(slot, 0))
    tl.store(out + token * width + column, value * scale, column < width)


@triton.jit
def pack_fp4(x, packed, sums, columns, BLOCK: tl.constexpr):
    """A row to a program: e2m1 codes, two to a byte, the even column below; and the sum of the row's codes."""
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, columns // 2, BLOCK):
        pair = start + tl.arange(0, BLOCK)
        mask = pair < columns // 2
        even = tl.load(x + row * columns + 2 * pair, mask, other=0.0).to(tl.int32, bitcast=True)
        odd = tl.load(x + row * columns + 2 * pair + 1, mask, other=0.0).to(tl.int32, bitcast=True)
        low = encode(even, 1, 1, 7, 8, 7, 7, 7, 7, True)
        high = encode(odd, 1, 1, 7, 8, 7, 7, 7, 7, True)
        tl.store(packed + row * (columns // 2) + pair, (low | high << 4).to(tl.uint8), mask)
        total += tl.where(mask, low + high, 0)
    tl.store(sums + row, tl.sum(total, 0))
