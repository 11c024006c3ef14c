"""The frame of the Triton readers of caches: the tokens of sequences, gathered by block tables, become values.

What differs between caches are functions that the frame is given: where a code and its scale stand, what a code is,
and what it becomes under its scale. Offsets are 64 bits wide, strides come from the tensors; sizes are not specialized.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from narrowgauge.kernels_under_test.claiming import ALL_SOURCES
from narrowgauge.kernels_under_test.triton_codec import INTERPRETED, store_float32_bits
from narrowgauge.kernels_under_test.triton_steps import bits

#: elements of a program, and columns at most; interpreted, one program costs 1.4 ms whatever its size
TILE, COLUMNS = (65536, 1024) if INTERPRETED else (2048, 256)


@triton.jit
def by_strides(page, place, head, column, of_page, of_place, of_head, of_column):
    """Where an element stands: an axis of its own for each of the four."""
    return page * of_page + place * of_place + head * of_head + column * of_column


@triton.jit
def times(code, scale, beside):
    return code * scale


@triton.jit
def alone(code, scale, beside):
    """Kept without a scale."""
    return code


@triton.jit
def as_it_is(value):
    """A scale that is stored as float32."""
    return value


@triton.jit
def from_bits_of_bfloat16(code):
    return (code << 16).to(tl.float32, bitcast=True)


@triton.jit
def from_bits_of_float16(code):
    return code.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def element_at(
    cache, scales, beside, page, place, head, column, mask,
    of_page, of_place, of_head, of_column, scale_page, scale_place, scale_head, scale_group, group,
    PER_BYTE: tl.constexpr, READ: tl.constexpr, WHERE: tl.constexpr, SCALE_WHERE: tl.constexpr, SCALE: tl.constexpr,
    VALUE: tl.constexpr,
):  # fmt: skip
    """float32 values of a cache's elements, 0 where ``mask`` is not: nothing is loaded there."""
    offset = WHERE(page, place, head, column // PER_BYTE, of_page, of_place, of_head, of_column)
    code = tl.load(cache + offset, mask, other=0).to(tl.int32)
    if PER_BYTE == 2:
        code = code >> (column % 2 * 4) & 0xF
    if scales is None:
        return tl.where(mask, VALUE(READ(code), 1.0, 1.0), 0.0)
    else:
        where = SCALE_WHERE(page, place, head, column // group, scale_page, scale_place, scale_head, scale_group)
        if scales.dtype.element_ty == tl.float32:
            scale = SCALE(tl.load(scales + where, mask, other=0.0))
        else:
            scale = SCALE(tl.load(scales + where, mask, other=0).to(tl.int32))
        if beside is None:
            return tl.where(mask, VALUE(READ(code), scale, 1.0), 0.0)
        else:
            return tl.where(mask, VALUE(READ(code), scale, tl.load(beside)), 0.0)


@triton.jit(
    do_not_specialize=[
        "columns", "width", "block", "table_row", "of_page", "of_place", "of_head", "of_column",
        "scale_page", "scale_place", "scale_head", "scale_group", "group",
    ]
)  # fmt: skip
def gather_values(
    cache, scales, beside, out, table, lengths, starts, columns, width, block, table_row, table_column,
    of_page, of_place, of_head, of_column, scale_page, scale_place, scale_head, scale_group, group,
    PER_BYTE: tl.constexpr, READ: tl.constexpr, WHERE: tl.constexpr, SCALE_WHERE: tl.constexpr, SCALE: tl.constexpr,
    VALUE: tl.constexpr, FINISH: tl.constexpr, TO: tl.constexpr, TOKENS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """TOKENS tokens of a sequence by COLUMNS columns a program. ``starts``: the first row in ``out`` of each sequence.
    """
    sequence = tl.program_id(1)
    length = tl.load(lengths + sequence)
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)[:, None]
    column = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    there = token < length
    mask = there & (column < columns)
    entry = sequence.to(tl.int64) * table_row + token // block * table_column
    page = tl.load(table + entry, there, other=0).to(tl.int64)
    value = element_at(
        cache, scales, beside, page, (token % block).to(tl.int64), column // width, column % width, mask,
        of_page, of_place, of_head, of_column, scale_page, scale_place, scale_head, scale_group, group,
        PER_BYTE, READ, WHERE, SCALE_WHERE, SCALE, VALUE,
    )  # fmt: skip
    row = tl.load(starts + sequence) + token
    store_float32_bits(out, row * columns + column, bits(FINISH(value, column, width, COLUMNS)), mask, TO)


@triton.jit
def finished(value, column, width, COLUMNS: tl.constexpr):
    """Nothing is done to the values of a head."""
    return value


def patterns_like(format, shape, device):
    """Memory for patterns of an output format, and that format's number for ``store_float32_bits``."""
    to = ALL_SOURCES.index(format)
    return torch.empty(shape, dtype=torch.int32 if to == 0 else torch.int16, device=device), to


def gathered(
    cache, strides, heads, width, format, block_table, seq_lens, block, read, *, per_byte=1, where=by_strides,
    scales=None, scale_strides=(0, 0, 0, 0), group=1, scale_where=by_strides, of_scale=as_it_is, value=None,
    beside=None, finish=finished,
):  # fmt: skip
    """The values of all sequences [tokens, heads · width], as patterns of ``format``.

    ``strides``: of ``cache`` for a page, a place in it, a head and a column of a head; ``scale_strides`` likewise, the
    last for each ``group`` columns.
    """
    columns, lengths = heads * width, seq_lens.long()
    ends = torch.cumsum(lengths, 0)
    total = int(ends[-1]) if ends.numel() else 0
    out, to = patterns_like(format, (total, columns), cache.device)
    if out.numel():
        across = min(COLUMNS, max(16, triton.next_power_of_2(columns)))
        longest = block_table.shape[1] * block
        tokens = min(TILE // across, triton.next_power_of_2(longest))
        grid = triton.cdiv(longest, tokens), len(seq_lens), triton.cdiv(columns, across)
        gather_values[grid](
            as_bits(cache), None if scales is None else as_bits(scales), beside, out, block_table, seq_lens,
            ends - lengths, columns, width, block, *block_table.stride(), *strides, *scale_strides, group,
            per_byte, read, where, scale_where, of_scale, value or (alone if scales is None else times), finish, to,
            tokens, across,
        )  # fmt: skip
    return out


def as_bits(tensor):
    """The same memory as integers, so that nothing is converted on the way; float32 stays."""
    if tensor.dtype == torch.float32:
        return tensor
    return tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.element_size()])
