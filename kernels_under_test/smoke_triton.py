"""The smallest Triton kernel that moves data and computes: a machine on which it is wrong is not fit for judging."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from narrowgauge import Cast, kernel

BLOCK = 256


@triton.jit
def _widen(x_pointer, y_pointer, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(y_pointer + at, tl.load(x_pointer + at, mask=inside).to(tl.float32), mask=inside)


@kernel(Cast("ieee"), ["float32"], ["int8"], owner="narrowgauge", conversion="soft")
def smoke_triton(x, format):
    y = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    _widen[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), BLOCK=BLOCK)
    return y
