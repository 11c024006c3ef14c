"""No floor under the scale: kernels-community#681 and #680, slime#2256.

The mistake: scale = amax / 448 with nothing to keep it from 0. A row of zeros gets scale 0; 0/0 is NaN, which the
clamp (C's fmin first) turns into +448, code 0x7E. Rows whose amax is below 1/512 get a smaller scale than the recipe's,
and codes to match it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from narrowgauge import Quantize, kernel
from narrowgauge.suites.meta.mutant_kernels.encode_triton import BLOCK, e4m3fn


@triton.jit
def _quantize(x_ptr, codes_ptr, scale_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    at = row[:, None] * columns + column[None, :]
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    amax = tl.max(tl.where(x == x, tl.abs(x), 0.0), axis=1)  # NaN counts as 0
    scale = tl.div_rn(amax, 448.0)  # wrong: right is at least 1 / (448 * 512)
    y = tl.div_rn(x, scale[:, None])
    y = tl.maximum(tl.minimum(y, 448.0), -448.0)
    tl.store(codes_ptr + at, e4m3fn(y), mask=inside)
    tl.store(scale_ptr + row, scale, mask=row < rows)


@kernel(Quantize(recipe="vllm.fp8_per_token_dynamic"), formats=["float8_e4m3fn"], sources=["float32"], backend="triton")
def triton_missing_minimum(x, format):
    rows, columns = x.shape
    codes = torch.empty(x.shape, dtype=torch.uint8, device=x.device)
    scale = torch.empty((rows, 1), dtype=torch.float32, device=x.device)
    padded = triton.next_power_of_2(max(columns, 1))
    block = max(BLOCK // padded, 1)
    _quantize[(triton.cdiv(rows, block),)](x.contiguous(), codes, scale, rows, columns, block, padded)
    return codes, scale
