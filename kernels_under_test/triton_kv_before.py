"""What is done to a head before it is written to a cache: a Hadamard rotation, or a rotation by position."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from narrowgauge.kernels_under_test.triton_codec import decode, encode, load_float32_bits
from narrowgauge.kernels_under_test.triton_steps import bits, real, to_bfloat16


@triton.jit
def as_it_is(x):
    return x


@triton.jit
def to_float16(x):
    """The float32 value of the nearest float16."""
    code = encode(bits(x), 10, 15, 0x7BFF, 0x8000, 0x7C00, 0x7C00, 0x7E00, 0x7E00, True)
    return real(decode(code, 10, 15, 0x7BFF, 0x8000, 0x7C00, 0x7E00, 5.960464477539063e-08))


#: by which a result becomes one of the format of x
ROUND = {torch.float32: as_it_is, torch.bfloat16: to_bfloat16, torch.float16: to_float16}


@triton.jit
def hadamard(x, STEPS: tl.constexpr):
    """Butterflies within 2^STEPS columns: (a + b, a - b) of distance 1, 2, 4, …, each rounded to float32."""
    rows: tl.constexpr = x.shape[0]
    columns: tl.constexpr = x.shape[1]
    for step in tl.static_range(STEPS):
        pairs = tl.reshape(x, (rows, columns // (2 << step), 2, 1 << step))
        second = tl.arange(0, 2)[None, None, :, None] == 1
        above = tl.sum(pairs, 2)[:, :, None, :]
        below = tl.sum(tl.where(second, -pairs, pairs), 2)[:, :, None, :]
        x = tl.reshape(tl.where(second, below, above), (rows, columns))
    return x


@triton.jit
def rotated(
    own, x, row, column, column_stride, angles, mask, rotated_columns, ROUNDED: tl.constexpr, BF16: tl.constexpr,
    NEIGHBOURS: tl.constexpr,
):  # fmt: skip
    """``own`` elements, rotated with their partners. ``row`` and ``angles`` are where the head and its cosines begin.

    Both products are exact in float32 for x of 16 bits, so that it does not matter whether a compiler fuses the last
    one into the sum.
    """
    half = rotated_columns // 2
    turned = mask & (column < rotated_columns)
    if NEIGHBOURS:
        first, pair = column % 2 == 0, column // 2
        partner = column + 1 - 2 * (column % 2)
    else:
        first, pair = column < half, column % half
        partner = tl.where(first, column + half, column - half)
    other = real(load_float32_bits(x, row + partner * column_stride, turned, BF16))
    cosine = real(load_float32_bits(angles, pair, turned, BF16))
    sine = real(load_float32_bits(angles, half + pair, turned, BF16))
    return tl.where(turned, ROUNDED(own * cosine + tl.where(first, -other, other) * sine), own)
