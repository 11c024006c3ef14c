"""Products of matrices in Triton: tiles of both operands, sums along K in float32 or int32, and what comes at the end.

A program has ROWS by COLUMNS sums and goes through K by DEEP. Scales come where the product has them: at the end, after
each stretch of K, or in the operands already. K may be split: then each part is kept, float32 or int32, and a second
kernel adds the parts in order; or they are added where they meet, by atomic operations, in any order.

What ``soft`` operands hold is float32, and multiplied as such (``ieee``), interpreted and compiled; nothing is fused
then. The result is rounded once, by integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from narrowgauge.kernels_under_test.gemm_checks import RESULTS, check_product
from narrowgauge.kernels_under_test.triton_codec import INTERPRETED, load_float32_bits, store_float32_bits
from narrowgauge.kernels_under_test.triton_gemm_operands import scales_of, strides, tile_of
from narrowgauge.kernels_under_test.triton_steps import bits, over, real
from narrowgauge.kernels_under_test.triton_tiling import elements_of

#: the most sums of a program each way, and how far it goes along K at once; interpreted, programs are few and large
TILE, DEEP = ((256, 256), 256) if INTERPRETED else ((32, 32), 32)
NATIVE_TILE, NATIVE_DEEP = (64, 64), 128
#: the same where K is split: interpreted, these products go through several programs each way
SPLIT_TILE, SPLIT_DEEP = ((16, 128), 64) if INTERPRETED else ((32, 32), 32)
#: the least that a matrix unit takes each way
LEAST = 16


@dataclass(frozen=True)
class End:
    """What comes after the sums: a zero point of a, of each row, times the sum of each column of b; scales; a bias."""

    a_scale: Any = None  #: float32 [M or 1, 1]
    b_scale: Any = None  #: float32 [N or 1, 1]
    zero: Any = None  #: int32 [M or 1, 1]
    sums: Any = None  #: int32 [N], if they are not made on the way
    bias: Any = None  #: [1, N]
    a_whole: Any = None  #: float32 [1, 1], by which a's scales were multiplied
    b_whole: Any = None

    @property
    def handed(self):
        of_rows = [(None, 0) if v is None else (v, strides(v)[0]) for v in (self.a_scale, self.b_scale, self.zero)]
        bias = None if self.bias is None else elements_of(self.bias.reshape(-1))[0]
        flat = [part for each in of_rows for part in each]
        return *flat, self.sums, bias, self.a_whole, self.b_whole


@triton.jit
def finish(out, place, total, sums, end, row, column, mask, BF16: tl.constexpr, TO: tl.constexpr):
    """Store what comes of sums. ``sums``: of the columns of b, made on the way; ``end`` may have them instead.

    TO: 0 to 2 are float32, bfloat16, float16; 3 is int32, of sums alone.
    """
    if end[4] is not None:
        zero = tl.load(end[4] + row * end[5], mask, other=0)
        if end[6] is not None:
            sums = tl.load(end[6] + column, mask, other=0)
        total = total - zero * sums
    if TO == 3:
        tl.store(out + place, total, mask)
    else:
        value = total.to(tl.float32)
        if end[0] is not None:
            value = value * tl.load(end[0] + row * end[1], mask, other=0.0)
        if end[2] is not None:
            value = value * tl.load(end[2] + column * end[3], mask, other=0.0)
        if end[8] is not None:
            value = value * (over(1.0, tl.load(end[8])) * over(1.0, tl.load(end[9])))
        if end[7] is not None:
            value = value + real(load_float32_bits(end[7], column, mask, BF16))
        store_float32_bits(out, place, bits(value), mask, TO)


@triton.jit
def tiles_at(a, b, start, last, row, of_b, wanted, wide, A: tl.constexpr, B: tl.constexpr, DEEP: tl.constexpr):
    """What both operands have from ``start`` on, and before ``last``."""
    along = start + tl.arange(0, DEEP)
    there = along < last
    left = tile_of(a, row[:, None], along[None, :], wanted[:, None] & there[None, :], A)
    return left, tile_of(b, of_b[None, :], along[:, None], there[:, None] & wide[None, :], B)


@triton.jit(do_not_specialize=["rows", "columns", "depth", "each"])
def multiply(
    a, b, out, end, lines, experts, rows, columns, depth, each,
    A: tl.constexpr, B: tl.constexpr, INTEGERS: tl.constexpr, STRETCH: tl.constexpr, PROMOTED: tl.constexpr,
    ATOMIC: tl.constexpr, BF16: tl.constexpr, TO: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    DEEP: tl.constexpr,
):  # fmt: skip
    """TO: what the result is stored as, -1 for sums that are not finished, of each part of ``each`` of K.

    STRETCH: so much of K is summed up before scales are applied; 0 for scales that come at the end.

    ``lines``: rows of a and of the result, those of an expert together, padded with -1; ``experts``: of each ROWS.
    """
    part = tl.program_id(2)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    wanted = row < rows
    wide = column < columns
    of_b = column
    if lines is not None:
        row = tl.load(lines + row).to(tl.int64)
        wanted = row >= 0
        of_b = tl.load(experts + tl.program_id(0)).to(tl.int64) * columns + column
    first = part * each
    last = tl.minimum(first + each, depth)
    total = tl.zeros((ROWS, COLUMNS), tl.int32 if INTEGERS else tl.float32)
    sums = tl.zeros((COLUMNS,), tl.int32)
    for start in range(first, last, STRETCH if STRETCH else DEEP):
        if STRETCH:
            products = tl.zeros((ROWS, COLUMNS), tl.float32)
            for inside in tl.static_range(0, STRETCH, DEEP):
                left, right = tiles_at(a, b, start + inside, last, row, of_b, wanted, wide, A, B, DEEP)
                products = tl.dot(left, right, products, input_precision="ieee")
            at = start + tl.zeros((1, 1), tl.int32)
            products = products * scales_of(a, row[:, None], at, wanted[:, None], A)
            total += products * scales_of(b, of_b[None, :], at, wide[None, :], B)
        else:
            left, right = tiles_at(a, b, start, last, row, of_b, wanted, wide, A, B, DEEP)
            if INTEGERS:
                total = tl.dot(left, right, total, out_dtype=tl.int32)
                if end[4] is not None and end[6] is None:
                    sums += tl.sum(right.to(tl.int32), 0)
            elif PROMOTED:
                total += tl.dot(left, right, input_precision="ieee")
            else:
                total = tl.dot(left, right, total, input_precision="ieee")
    mask = wanted[:, None] & wide[None, :]
    place = row[:, None] * columns + column[None, :]
    if TO >= 0:
        finish(out, place, total, sums[None, :], end, row[:, None], of_b[None, :], mask, BF16, TO)
    elif ATOMIC:
        tl.atomic_add(out + place, total, mask)
    else:
        tl.store(out + part.to(tl.int64) * rows * columns + place, total, mask)


@triton.jit(do_not_specialize=["rows", "columns", "parts"])
def add_parts(
    of_parts, out, end, rows, columns, parts,
    BF16: tl.constexpr, TO: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Sums of parts of K, the first one first, and what comes at the end."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    mask = (row < rows) & (column < columns)
    place = row * columns + column
    total = tl.load(of_parts + place, mask, other=0)
    of_part = place
    for _ in range(1, parts):
        of_part += rows.to(tl.int64) * columns
        total += tl.load(of_parts + of_part, mask, other=0)
    finish(out, place, total, 0, end, row, column, mask, BF16, TO)


@triton.jit(do_not_specialize=["columns", "depth", "row_stride", "column_stride"])
def sums_of_rows(b, sums, columns, depth, row_stride, column_stride, COLUMNS: tl.constexpr, DEEP: tl.constexpr):
    """The sum of each row of b [columns, depth], int32."""
    row = tl.program_id(0).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)[:, None]
    total = tl.zeros((COLUMNS,), tl.int32)
    for start in range(0, depth, DEEP):
        column = start + tl.arange(0, DEEP)[None, :]
        place = row * row_stride + column.to(tl.int64) * column_stride
        total += tl.sum(tl.load(b + place, (row < columns) & (column < depth), other=0).to(tl.int32), 1)
    row = tl.program_id(0).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    tl.store(sums + row, total, row < columns)


def row_sums(b):
    """int32 [N] of int8 codes [N, K]."""
    sums = torch.empty(b.shape[0], dtype=torch.int32, device=b.device)
    if b.shape[0]:
        sums_of_rows[(triton.cdiv(b.shape[0], TILE[0]),)](b, sums, *b.shape, *b.stride(), TILE[0], DEEP)
    return sums


def tiles(a, rows, columns, stretches, parts):
    """ROWS, COLUMNS, DEEP of a product."""
    most, deep = (TILE, DEEP) if parts == 1 else (SPLIT_TILE, SPLIT_DEEP)
    most, deep = (NATIVE_TILE, NATIVE_DEEP) if a.native else (most, deep)
    deep = min(deep, a.block_columns) if stretches else deep
    sizes = zip(most, (rows, columns), strict=True)
    return *(max(LEAST, min(one, triton.next_power_of_2(size))) for one, size in sizes), deep


def product(
    a, b, shape, format, end=None, *, stretches=False, promoted=False, parts=1, atomic=False, of_experts=None,
):  # fmt: skip
    """y [M, N] of ``shape`` (M, N, K), as patterns of ``format``.

    ``stretches``: scales are those of the operands, applied to the sum of each of their blocks. ``parts`` of K;
    ``atomic``: added where they meet. ``of_experts``: int32 [1, M]. Raises ``ValueError`` for a bad call.
    """
    end = end or End()
    rows, columns, depth = shape
    check_product(a, b, shape, format, end, of_experts)
    to = RESULTS.index(format)
    make = torch.empty if of_experts is None else torch.zeros
    out = make((rows, columns), dtype=torch.int16 if to in (1, 2) else torch.int32, device=a.codes.device)
    if not out.numel():
        return out
    high, wide, deep = tiles(a, rows, columns, stretches, parts)
    lines, experts = (None, None) if of_experts is None else lines_of(of_experts.reshape(-1), high)
    blocks = triton.cdiv(rows, high) if experts is None else experts.numel()
    integers = a.format == "int8"
    stretch = a.block_columns if stretches else 0
    step = max(stretch, deep)
    each = triton.cdiv(triton.cdiv(depth, parts), step) * step
    into = out
    if parts > 1:
        kept = (1 if atomic else parts, rows, columns)
        into = (torch.zeros if atomic else torch.empty)(
            kept, dtype=torch.int32 if integers else torch.float32, device=out.device
        )
    bf16 = end.bias is not None and end.bias.dtype == torch.bfloat16
    fusion = {} if a.native else {"enable_fp_fusion": False}
    if blocks:
        multiply[blocks, triton.cdiv(columns, wide), parts](
            a.handed, b.handed, into, end.handed, lines, experts, rows, columns, depth, each or 1,
            a.form, b.form, integers, stretch, promoted, atomic, bf16, to if parts == 1 else -1, high, wide, deep,
            **fusion,
        )  # fmt: skip
    if parts > 1:
        add_parts[triton.cdiv(rows, high), triton.cdiv(columns, wide)](
            into, out, end.handed, rows, columns, kept[0], bf16, to, high, wide, **fusion
        )
    return out


def lines_of(experts, each):
    """Rows ordered by expert, each expert's padded with -1 to whole blocks of ``each``; the expert of each block."""
    order = torch.argsort(experts, stable=True)
    chosen = experts[order]
    numbers, counts = torch.unique_consecutive(chosen, return_counts=True)
    blocks = torch.where(numbers < 0, 0, (counts + each - 1) // each)
    of_block = torch.repeat_interleave(numbers, blocks).to(torch.int32)
    lines = torch.full((int(blocks.sum()) * each,), -1, dtype=torch.int32, device=experts.device)
    begins = torch.repeat_interleave((torch.cumsum(blocks, 0) - blocks) * each, counts)
    within = torch.arange(experts.numel(), device=experts.device)
    within = within - torch.repeat_interleave(torch.cumsum(counts, 0) - counts, counts)
    taken = chosen >= 0
    lines[(begins + within)[taken]] = order[taken].to(torch.int32)
    return lines, of_block
