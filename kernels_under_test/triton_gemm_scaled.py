"""Products that a matrix unit scales itself: MXFP8, MXFP4, NVFP4 by ``tl.dot_scaled``.

Where a target has no such unit, Triton dequantizes to bfloat16 first. In the interpreter, E4M3 NaN and E4M3 scales are
wrong; E2M1 with E8M0 scales is right.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from narrowgauge.kernels_under_test.gemm_checks import RESULTS, check_product
from narrowgauge.kernels_under_test.triton_codec import INTERPRETED
from narrowgauge.kernels_under_test.triton_gemm import LEAST, End, finish
from narrowgauge.kernels_under_test.triton_gemm_operands import patterns

#: the most sums of a program each way, and how far it goes along K at once
TILE, DEEP = (256, 64) if INTERPRETED else (128, 128)
#: how ``tl.dot_scaled`` calls a format, and how many codes are in a byte
KINDS = {"float8_e4m3fn": ("e4m3", 1), "float4_e2m1fn": ("e2m1", 2)}


@triton.jit
def typed(code, KIND: tl.constexpr):
    """fp8 codes in their own type; pairs of codes of four bits stay bytes."""
    if KIND == "e4m3":
        return code.to(tl.float8e4nv, bitcast=True)  # narrowgauge: ignore[no_scale] scales come beside them
    else:
        return code


@triton.jit
def stored_scale(code, E4M3: tl.constexpr):
    """E8M0 is passed as bytes."""
    if E4M3:
        return code.to(tl.float8e4nv, bitcast=True)
    else:
        return code


@triton.jit(do_not_specialize=["rows", "columns", "depth"])
def multiply_scaled(
    a, b, out, end, rows, columns, depth, a_strides, b_strides,
    A: tl.constexpr, B: tl.constexpr, A_CODES: tl.constexpr, B_CODES: tl.constexpr, GROUP: tl.constexpr,
    E4M3: tl.constexpr, TO: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEEP: tl.constexpr,
):  # fmt: skip
    """``a``, ``b``: codes and scales. A, B: what they are; A_CODES, B_CODES: how many are in a byte."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, depth, DEEP):
        byte = start // A_CODES + tl.arange(0, DEEP // A_CODES)[None, :]
        there = (row < rows) & (byte * A_CODES < depth)
        left = tl.load(a[0] + row * a_strides[0] + byte * a_strides[1], there, other=0)
        byte = start // B_CODES + tl.arange(0, DEEP // B_CODES)[:, None]
        there = (column[None, :] < columns) & (byte * B_CODES < depth)
        right = tl.load(b[0] + column[None, :] * b_strides[0] + byte * b_strides[1], there, other=0)
        group = start // GROUP + tl.arange(0, DEEP // GROUP)[None, :]
        inside = group * GROUP < depth
        of_left = tl.load(a[1] + row * a_strides[2] + group * a_strides[3], (row < rows) & inside, other=0)
        place = column[:, None] * b_strides[2] + group * b_strides[3]
        of_right = tl.load(b[1] + place, (column[:, None] < columns) & inside, other=0)
        total = tl.dot_scaled(
            typed(left, A), stored_scale(of_left, E4M3), A, typed(right, B), stored_scale(of_right, E4M3), B, total
        )
    mask = (row < rows) & (column[None, :] < columns)
    finish(out, row * columns + column[None, :], total, 0, end, row, column[None, :], mask, False, TO)


def scaled_product(a, b, shape, format, end=None):
    """y [M, N] of two operands with scales of 8 bits, codes of four bits two to a byte."""
    end = end or End()
    rows, columns, depth = shape
    check_product(a, b, shape, format, end, None)
    to = RESULTS.index(format)
    out = torch.empty((rows, columns), dtype=torch.int32 if to == 0 else torch.int16, device=a.codes.device)
    if not out.numel():
        return out
    high, wide = (max(LEAST, min(TILE, triton.next_power_of_2(n))) for n in (rows, columns))
    if not INTERPRETED:
        high, wide = TILE, TILE
    (kind, codes), (other, others) = KINDS[a.format], KINDS[b.format]
    multiply_scaled[triton.cdiv(rows, high), triton.cdiv(columns, wide)](
        (patterns(a.codes), patterns(a.scale)), (patterns(b.codes), patterns(b.scale)), out, end.handed,
        rows, columns, depth, (*a.codes.stride(), *a.scale.stride()), (*b.codes.stride(), *b.scale.stride()),
        kind, other, codes, others, a.block_columns, a.scale_format == "float8_e4m3fn", to, high, wide, DEEP,
    )  # fmt: skip
    return out
