"""Triton attention of one new token of each sequence over a quantized cache: online softmax, all in float32.

A program has the query heads of one head of the cache and goes through the tokens a block at a time: scores, their
running maximum, weights, and the weighted sum of values, rescaled where the maximum rises. Nothing is loaded from
slots that are not used, so that no NaN of theirs meets a weight of 0. Products are summed element by element, and not
by matrix instructions, which on some hardware cut float32 operands short. Nothing is fused: threads that hold copies of
one element sum products in turn, and of a product that is rounded on one side alone their copies would differ.

A sequence may be split: then each program makes the mean of its own tokens and the logarithm of its sum of weights,
and a second kernel weighs the means by these.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from narrowgauge.kernels_under_test.claiming import ALL_SOURCES
from narrowgauge.kernels_under_test.kv_checks import check_format, check_heads, check_query, check_sequences
from narrowgauge.kernels_under_test.triton_codec import INTERPRETED, load_float32_bits, store_float32_bits
from narrowgauge.kernels_under_test.triton_kv_gather import patterns_for
from narrowgauge.kernels_under_test.triton_kv_parts import elements_at
from narrowgauge.kernels_under_test.triton_steps import bits, over, real, to_bfloat16
from narrowgauge.kernels_under_test.triton_tiling import elements_of

#: tokens of a block, and query heads of a program
TOKENS, HEADS = (16, 64) if INTERPRETED else (8, 4)


@triton.jit
def in_float32(weight):
    return weight


#: what softmax's numbers become before they meet values
WEIGHTS = {"float32": in_float32, "bfloat16": to_bfloat16}


@triton.jit
def capped(score, cap):
    """cap · tanh(score / cap), by one exponential of a number that is not positive."""
    small = tl.exp(-2.0 * tl.abs(over(score, cap)))
    tanh = over(1.0 - small, 1.0 + small)
    return cap * tl.where(score < 0.0, -tanh, tanh)


@triton.jit
def scores_of(query, part, page, place, head, there, width, FORM: tl.constexpr, WIDTH: tl.constexpr):
    """query · key of each token [heads, tokens]; ``query`` is [heads, 1, WIDTH]."""
    column = tl.arange(0, WIDTH)[None, :]
    key = elements_at(part, page[:, None], place[:, None], head, column, there[:, None] & (column < width), FORM)
    return tl.sum(query * key[None, :, :], 2)


@triton.jit(
    do_not_specialize=["block", "group", "splits", "width", "rope_width", "value_width", "query_row", "query_head"]
)
def attend_tokens(
    query, keys, rope, values, out, sums, table, lengths, block, group, splits, width, rope_width, value_width,
    query_row, query_head, table_strides, scale, cap,
    KEYS: tl.constexpr, OF_ROPE: tl.constexpr, VALUES: tl.constexpr, NARROW: tl.constexpr, CAPPED: tl.constexpr,
    BF16: tl.constexpr, TO: tl.constexpr, HEADS: tl.constexpr, TOKENS: tl.constexpr, WIDTH: tl.constexpr,
    ROPE: tl.constexpr, VALUE: tl.constexpr,
):  # fmt: skip
    """HEADS query heads of one head of the cache, of one split of one sequence.

    ``out`` [sequences, query heads, splits, columns]; ``sums``: the logarithms of the sums of weights, if it is split.
    """
    sequence, split = tl.program_id(0), tl.program_id(2)
    tiles = tl.cdiv(group, HEADS)
    head = tl.program_id(1) // tiles
    within = tl.program_id(1) % tiles * HEADS + tl.arange(0, HEADS)
    row = head * group + within
    wanted = within < group
    length = tl.load(lengths + sequence)
    each = tl.cdiv(tl.cdiv(length, splits), TOKENS) * TOKENS
    first = split * each
    end = tl.minimum(first + each, length)

    of_query = sequence.to(tl.int64) * query_row + row * query_head
    column = tl.arange(0, WIDTH)
    asked = wanted[:, None] & (column < width)[None, :]
    q = real(load_float32_bits(query, of_query[:, None] + column[None, :], asked, BF16))[:, None, :]
    if rope is not None:
        column = tl.arange(0, ROPE)
        asked = wanted[:, None] & (column < rope_width)[None, :]
        q_rope = real(load_float32_bits(query, of_query[:, None] + width + column[None, :], asked, BF16))[:, None, :]

    best = tl.full((HEADS,), float("-inf"), tl.float32)
    total = tl.zeros((HEADS,), tl.float32)
    mean = tl.zeros((HEADS, VALUE), tl.float32)
    of_value = tl.arange(0, VALUE)[None, :]
    for start in range(first, end, TOKENS):
        token = start + tl.arange(0, TOKENS)
        there = token < end
        entry = sequence.to(tl.int64) * table_strides[0] + token // block * table_strides[1]
        page = tl.load(table + entry, there, other=0).to(tl.int64)
        place = (token % block).to(tl.int64)
        score = scores_of(q, keys, page, place, head, there, width, KEYS, WIDTH)
        if rope is not None:
            score += scores_of(q_rope, rope, page, place, head, there, rope_width, OF_ROPE, ROPE)
        score = score * scale
        if CAPPED:
            score = capped(score, cap)
        score = tl.where(there[None, :], score, float("-inf"))
        higher = tl.maximum(best, tl.max(score, 1))
        rescaled = tl.exp(best - higher)
        weight = tl.exp(score - higher[:, None])
        mask = there[:, None] & (of_value < value_width)
        value = elements_at(values, page[:, None], place[:, None], head, of_value, mask, VALUES)
        total = total * rescaled + tl.sum(weight, 1)
        mean = mean * rescaled[:, None] + tl.sum(NARROW(weight)[:, :, None] * value[None, :, :], 1)
        best = higher

    mean = tl.where(first < end, over(mean, total[:, None]), 0.0)
    number = (sequence.to(tl.int64) * tl.num_programs(1) // tiles * group + row) * splits + split
    mask = wanted[:, None] & (of_value < value_width)
    store_float32_bits(out, number[:, None] * value_width + of_value, bits(mean), mask, TO)
    if sums is not None:
        tl.store(sums + number, tl.where(first < end, best + tl.log(total), float("-inf")), wanted)


@triton.jit(do_not_specialize=["splits", "rows", "width"])
def merge_splits(
    means, sums, out, splits, rows, width, TO: tl.constexpr, ROWS: tl.constexpr, SPLITS: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """ROWS means of splits a program, weighed by the sums of weights that they stand for."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    split = tl.arange(0, SPLITS)[None, :]
    column = tl.arange(0, WIDTH)
    mask = (row < rows)[:, None] & (split < splits)
    logarithm = tl.load(sums + row[:, None] * splits + split, mask, other=float("-inf"))
    best = tl.max(logarithm, 1)
    # of a sequence without tokens no split has a weight
    weight = tl.where(logarithm == float("-inf"), 0.0, tl.exp(logarithm - best[:, None]))
    total = tl.sum(weight, 1)
    where = (row[:, None] * splits + split)[:, :, None] * width + column[None, None, :]
    mean = tl.load(means + where, mask[:, :, None] & (column < width)[None, None, :], other=0.0)
    mean = over(tl.sum(mean * weight[:, :, None], 1), tl.where(total == 0.0, 1.0, total)[:, None])
    there = (row < rows)[:, None] & (column < width)[None, :]
    store_float32_bits(out, row[:, None] * width + column[None, :], bits(mean), there, TO)


def attended(query, parts, format, table, lengths, scale, cap=0.0, *, weights="float32", splits=1):
    """What each query makes of its sequence, [sequences, query heads, columns of a value] as patterns of ``format``.

    ``parts``: keys, values, and of MLA the columns that follow those of the keys. Raises ``ValueError`` for a bad call.
    """
    keys, values, *others = parts
    rope = others[0] if others else None
    check_format(format, ALL_SOURCES)
    for part in parts:
        part.check(keys)
    check_sequences(table, lengths, keys.codes)
    rope_width = 0 if rope is None else rope.width
    check_heads("v", values.codes, keys.codes)
    check_query(query, len(lengths), keys.heads, keys.width + rope_width)
    sequences, heads, _ = query.shape
    group, width = heads // keys.heads, values.width
    out, to = patterns_for(format, (sequences, heads, width), query.device)
    if not out.numel():
        return out
    means, sums = out, None
    if splits > 1:
        means = torch.empty((sequences, heads, splits, width), dtype=torch.int32, device=query.device)
        sums = torch.empty((sequences, heads, splits), dtype=torch.float32, device=query.device)
    loaded, bf16 = elements_of(query)
    tile = min(HEADS, triton.next_power_of_2(group))
    of_rope = (None, None) if rope is None else (rope.handed, rope.form)
    attend_tokens[sequences, keys.heads * triton.cdiv(group, tile), splits](
        loaded, keys.handed, of_rope[0], values.handed, means, sums, table, lengths, keys.block, group, splits,
        keys.width, rope_width, width, *query.stride()[:2], table.stride(), scale, cap or 1.0,
        keys.form, of_rope[1], values.form, WEIGHTS[weights], bool(cap), bf16, 0 if splits > 1 else to, tile, TOKENS,
        triton.next_power_of_2(keys.width), triton.next_power_of_2(max(rope_width, 1)), triton.next_power_of_2(width),
        enable_fp_fusion=False,
    )  # fmt: skip
    if splits > 1:
        rows, each = sequences * heads, 64 if INTERPRETED else 1
        merge_splits[(triton.cdiv(rows, each),)](
            means.view(torch.float32), sums, out, splits, rows, width, to, each, triton.next_power_of_2(splits),
            triton.next_power_of_2(width), enable_fp_fusion=False,
        )  # fmt: skip
    return out
