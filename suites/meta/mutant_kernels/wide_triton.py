# SPDX-License-Identifier: Apache-2.0
"""Wide operations with a mistake each, in Triton. Each says its mistake in its first words."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from narrowgauge import WideOp, kernel


@triton.jit
def _normed(x, weight, y, rows, columns, count, END: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    row, column = tl.arange(0, ROWS)[:, None], tl.arange(0, WIDTH)[None, :]
    mask = (row < rows) & (column < columns)
    value = tl.load(x + row * columns + column, mask, other=0.0)
    squares = tl.where(column < columns - END, value * value, 0.0)
    mean = tl.div_rn(tl.sum(squares, 1)[:, None], count)
    normal = value * tl.div_rn(1.0, tl.sqrt_rn(mean + 1e-6))
    tl.store(y + row * columns + column, normal * tl.load(weight + column, column < columns, other=0.0), mask)


def normed(x, weight, count, end):
    y, (rows, columns) = torch.empty_like(x), x.shape
    sizes = triton.next_power_of_2(rows), triton.next_power_of_2(columns)
    _normed[(1,)](x.contiguous(), weight, y, rows, columns, float(count), end, *sizes)
    return y


@kernel(WideOp("rms_norm"), ["float32"], ["float32"], backend="triton")
def triton_mean_over_padding(x, format, weight):
    """The sum is divided by the columns of the block."""
    return normed(x, weight, triton.next_power_of_2(x.shape[1]), 0)


@kernel(WideOp("rms_norm"), ["float32"], ["float32"], backend="triton")
def triton_last_column(x, format, weight):
    """The last column is not in the sum."""
    return normed(x, weight, x.shape[1], 1)


@triton.jit
def _turned(x, cos, sin, y, count, half, SIZE: tl.constexpr):
    pair = tl.arange(0, SIZE)
    mask = pair < count
    one = pair // half * half * 2 + pair % half * 2
    a, b = tl.load(x + one, mask, other=0.0), tl.load(x + one + 1, mask, other=0.0)
    c, s = tl.load(cos + pair, mask, other=0.0), tl.load(sin + pair, mask, other=0.0)
    tl.store(y + one, a * c - b * s, mask)
    tl.store(y + one + 1, b * c + a * s, mask)


@kernel(WideOp("rope_neox"), ["float32"], ["float32"], backend="triton")
def triton_neighbours(x, format, cos, sin):
    """Neighbours are turned where halves are pairs."""
    y, half = torch.empty_like(x), x.shape[1] // 2
    _turned[(1,)](x.contiguous(), cos, sin, y, x.shape[0] * half, half, triton.next_power_of_2(x.shape[0] * half))
    return y
