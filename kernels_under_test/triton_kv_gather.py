"""The frame of the Triton readers of caches: the tokens of sequences, gathered by block tables, become values."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from narrowgauge.kernels_under_test.claiming import ALL_SOURCES
from narrowgauge.kernels_under_test.hadamard_signs import signs_of
from narrowgauge.kernels_under_test.kv_checks import check_format, check_sequences
from narrowgauge.kernels_under_test.triton_codec import INTERPRETED, store_float32_bits
from narrowgauge.kernels_under_test.triton_kv_before import hadamard
from narrowgauge.kernels_under_test.triton_kv_parts import elements_at
from narrowgauge.kernels_under_test.triton_steps import bits

#: elements of a program, and columns at most; interpreted, one program costs 1.4 ms whatever its size
TILE, COLUMNS = (65536, 1024) if INTERPRETED else (1024, 128)


@triton.jit
def sequence_of(row, starts, sequences, there, steps):
    """The last sequence that starts at or before a row, by halving; 2^steps is at least their number."""
    found = tl.zeros_like(row)
    for step in range(steps):
        next = found + (1 << (steps - 1 - step))
        start = tl.load(starts + next, there & (next < sequences), other=row + 1)
        found = tl.where(start <= row, next, found)
    return found


@triton.jit(do_not_specialize=["sequences", "steps", "total", "columns", "block"])
def gather_values(
    part, out, table, starts, signs, sequences, steps, total, columns, block, table_strides,
    FORM: tl.constexpr, TO: tl.constexpr, TURNS: tl.constexpr, WIDTH: tl.constexpr,
    TOKENS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """TOKENS rows of the result by COLUMNS columns a program. ``starts``: each sequence's first row.

    ``signs`` of a head's columns, if 2^TURNS of them at a time were rotated (Hadamard): they are turned back.
    """
    row = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)[:, None]
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    there = row < total
    mask = there & (column < columns)
    sequence = sequence_of(row, starts, sequences, there, steps)
    token = row - tl.load(starts + sequence, there, other=0)
    entry = sequence * table_strides[0] + token // block * table_strides[1]
    page = tl.load(table + entry, there, other=0).to(tl.int64)
    value = elements_at(part, page, token % block, column // WIDTH, column % WIDTH, mask, FORM)
    if signs is not None:
        turned = hadamard(value, TURNS)
        value = turned * tl.load(signs + column % WIDTH, column < columns, other=0.0) * (1.0 / (1 << TURNS))
    store_float32_bits(out, row * columns + column, bits(value), mask, TO)


def patterns_for(format, shape, device):
    """Memory for patterns of an output format, and that format's number for ``store_float32_bits``."""
    to = ALL_SOURCES.index(format)
    return torch.empty(shape, dtype=torch.int32 if to == 0 else torch.int16, device=device), to


def read(parts, format, table, lengths, turned=False):
    """The values of each part: of all sequences, one after the other [tokens, heads · width], as patterns of a format.

    ``turned``: heads were rotated (Hadamard) before they were written. Raises ``ValueError`` for a bad call.
    """
    check_format(format, ALL_SOURCES)
    for part in parts:
        part.check(parts[0])
    check_sequences(table, lengths, parts[0].codes)
    ends = torch.cumsum(lengths, 0)
    total = int(ends[-1]) if ends.numel() else 0
    return tuple(_gathered(part, format, table, ends - lengths, total, turned) for part in parts)


def _gathered(part, format, table, starts, total, turned):
    columns, device = part.heads * part.width, part.codes.device
    out, to = patterns_for(format, (total, columns), device)
    if out.numel():
        across = min(COLUMNS, max(16, triton.next_power_of_2(columns)))
        tokens = min(TILE // across, triton.next_power_of_2(total))
        turns = (part.width & -part.width).bit_length() - 1 if turned else 0
        gather_values[triton.cdiv(total, tokens), triton.cdiv(columns, across)](
            part.handed, out, table, starts, signs_of(part.width, device) if turned else None, len(starts),
            (len(starts) - 1).bit_length(), total, columns, part.block, table.stride(), part.form, to, turns,
            part.width, tokens, across,
            enable_fp_fusion=False,  # a product of code and scale meets a sum where heads are turned back
        )  # fmt: skip
    return out
