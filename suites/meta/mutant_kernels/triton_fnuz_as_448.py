"""The bound of the OCP format used for the FNUZ one: ROCm/TransformerEngine#485 (scales made with 448).

The mistake: 448 where the recipe has 224 for float8_e4m3fnuz: in the scale, in its minimum and in the clamp. Scales are
half of the recipe's, and what lies beyond 240 scales saturates in the cast, at 0x7F: a row's amax loses almost half.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from narrowgauge import Quantize, kernel
from narrowgauge.suites.meta.mutant_kernels.encode_triton import BLOCK, e4m3fn

BOUND = tl.constexpr(448.0)  # wrong: right is 224


@triton.jit
def _e4m3fnuz(y):
    """The FNUZ code of a number: e4m3fn's of its double, but for 0x7F (240) and a zero that has no sign."""
    code = e4m3fn(y * 2.0)
    code = tl.where(tl.abs(y) > 232.0, code | 0x7F, code)  # 232 is the tie of 224 and 240
    return tl.where(code == 0x80, 0, code)


@triton.jit
def _quantize(x_ptr, codes_ptr, scale_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    at = row[:, None] * columns + column[None, :]
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    amax = tl.max(tl.where(x == x, tl.abs(x), 0.0), axis=1)  # NaN counts as 0
    scale = tl.maximum(tl.div_rn(amax, BOUND), 1 / (BOUND * 512))
    y = tl.div_rn(x, scale[:, None])
    y = tl.maximum(tl.minimum(y, BOUND), -BOUND)
    tl.store(codes_ptr + at, _e4m3fnuz(y), mask=inside)
    tl.store(scale_ptr + row, scale, mask=row < rows)


@kernel(
    Quantize(recipe="vllm.fp8_per_token_dynamic"), formats=["float8_e4m3fnuz"], sources=["float32"], backend="triton"
)
def triton_fnuz_as_448(x, format):
    rows, columns = x.shape
    codes = torch.empty(x.shape, dtype=torch.uint8, device=x.device)
    scale = torch.empty((rows, 1), dtype=torch.float32, device=x.device)
    padded = triton.next_power_of_2(max(columns, 1))
    block = max(BLOCK // padded, 1)
    _quantize[(triton.cdiv(rows, block),)](x.contiguous(), codes, scale, rows, columns, block, padded)
    return codes, scale
