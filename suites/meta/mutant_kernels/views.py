"""Quantizers that are right on a contiguous matrix, and wrong on a view, or do harm to their input."""

from __future__ import annotations

import torch

from narrowgauge import Quantize, kernel

_TOKENS = Quantize("vllm.fp8_per_token_dynamic")
_E4 = ["float8_e4m3fn"]


def quantized(x):
    """vLLM's steps: over the scale, NaN to the bound, held to the bound."""
    x = x.float()
    amax = torch.where(x.isnan(), 0.0, x.abs()).amax(1, keepdim=True) if x.shape[1] else x.new_zeros(x.shape[0], 1)
    scale = torch.maximum(amax / 448, torch.tensor(1 / (448 * 512)))
    y = (x / scale).nan_to_num(448.0, float("inf"), float("-inf"))
    return y.clamp(-448, 448).to(torch.float8_e4m3fn), scale


@kernel(_TOKENS, _E4, ["float32", "bfloat16"])
def right(x, format):
    return quantized(x)


@kernel(_TOKENS, _E4)
def takes_all_for_contiguous(x, format):
    """Rows are taken to follow each other: the address of the first element and the shape are all it looks at."""
    return quantized(torch.as_strided(x, x.shape, (x.shape[1], 1)))


@kernel(_TOKENS, _E4)
def takes_columns_for_adjacent(x, format):
    """The stride of rows is looked at, that of columns is taken for 1: right for a slice alone."""
    return quantized(torch.as_strided(x, x.shape, (x.stride(0), 1)))


@kernel(_TOKENS, _E4)
def takes_the_first_of_each_pair(x, format):
    """The stride of rows is read from a neighbour that has as many columns: right but for rows that are skipped."""
    stride = x.shape[1] if x.stride(0) == 2 * x.shape[1] else x.stride(0)
    return quantized(torch.as_strided(x, x.shape, (stride, x.stride(1))))


def _reads(x, more):
    wide = torch.as_strided(x, (x.shape[0], x.shape[1] + more), x.stride())
    _, scale = quantized(wide)
    y = (x / scale).nan_to_num(448.0, float("inf"), float("-inf"))
    return y.clamp(-448, 448).to(torch.float8_e4m3fn), scale


@kernel(_TOKENS, _E4)
def reads_beyond_its_columns(x, format):
    """amax takes a vector of columns more than the matrix has, where the memory has them."""
    return _reads(x, 16 if x.stride(0) > x.shape[1] and x.stride(1) == 1 and x.storage_offset() else 0)


@kernel(_TOKENS, _E4)
def offsets_in_32_bits(x, format):
    """Offsets wrap at 2^32 bytes' worth of elements."""
    rows = []
    for row in range(x.shape[0]):
        offset = (row * x.stride(0)) % (1 << 31)
        rows.append(torch.as_strided(x, (x.shape[1],), (x.stride(1),), x.storage_offset() + offset))
    return quantized(torch.stack(rows)) if rows else quantized(x)


@kernel(_TOKENS, _E4)
def wants_contiguous(x, format):
    if not x.is_contiguous():
        raise ValueError("x must be contiguous")
    return quantized(x)


@kernel(_TOKENS, _E4)
def clamps_in_place(x, format):
    """The clamp is done in x: the caller's activations are changed."""
    made = quantized(x)
    x.clamp_(-5, 5)
    return made
