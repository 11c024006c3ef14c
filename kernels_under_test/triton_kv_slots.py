"""The frame of the Triton writers of key-value caches: a token's groups of elements go to the slot that it is given.

A recipe is a jitted function, as for the quantizers: of elements, the largest magnitude of their group (or the scale
that is given), and the bound it makes the scale and what the last cast is given. Where an element stands follows from
the strides of a view of six axes (kv_places.py), so one kernel writes pages of any form. Offsets are 64 bits wide.
"""

from __future__ import annotations

import triton
import triton.language as tl

from narrowgauge.kernels_under_test.hadamard_signs import signs_of
from narrowgauge.kernels_under_test.kv_places import block_of, patterns
from narrowgauge.kernels_under_test.kv_rows import SKIP_NEGATIVE, checked
from narrowgauge.kernels_under_test.triton_codec import load_float32_bits
from narrowgauge.kernels_under_test.triton_kv_before import ROUND, hadamard, rotated
from narrowgauge.kernels_under_test.triton_steps import bits, real, to_bfloat16
from narrowgauge.kernels_under_test.triton_targets import BOUNDS, SOFT
from narrowgauge.kernels_under_test.triton_tiling import amax_of, elements_of, groups_of


@triton.jit
def slots_of(slots, token, tokens, lowest):
    """The slot of each token, int64, and whether anything is written there."""
    slot = tl.load(slots + token, token < tokens, other=-1).to(tl.int64)
    return slot, (token < tokens) & (slot >= lowest)


@triton.jit
def offset_of(slot, head, column, block, s0, s1, s2, s3, s4, s5, places, columns):
    """Where an element stands in a view of six axes, whose strides are given. ``column`` is int32, the others int64."""
    place = slot % block
    page = slot // block * s0 + place // places * s1 + place % places * s2
    return page + head * s3 + (column // columns).to(tl.int64) * s4 + (column % columns).to(tl.int64) * s5


@triton.jit(
    do_not_specialize=[
        "tokens", "groups", "per_token", "size", "width", "token_stride", "head_stride", "block",
        "c0", "c1", "c2", "c3", "c4", "c5", "s0", "s1", "s2", "s3", "s4", "s5", "given_stride",
        "code_places", "code_columns", "scale_places", "scale_columns", "rotated_columns", "angle_stride", "lowest",
    ]
)  # fmt: skip
def write_groups(
    x, slots, codes, scales, given, whole, beside, positions, tokens, groups, per_token, size, width, token_stride,
    head_stride, column_stride, block, c0, c1, c2, c3, c4, c5, s0, s1, s2, s3, s4, s5, given_stride,
    code_places, code_columns, scale_places, scale_columns, rotated_columns, angle_stride, lowest, bound,
    RECIPE: tl.constexpr, CODE: tl.constexpr, FIRST: tl.constexpr, ROUNDED: tl.constexpr, NAN: tl.constexpr,
    BF16: tl.constexpr, PACK: tl.constexpr, GROUPS: tl.constexpr, WIDTH: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    """GROUPS groups of ``size`` elements a program; a head has ``width``, a whole number of groups.

    ``given``: static scales, one for each head; ``whole``: a number of the tensor, if a recipe has it. PACK codes
    share a byte, the first one lowest. FIRST: what is done to a head before; ``beside`` are then signs, or cosines and
    sines of each position.
    """
    group = tl.program_id(0).to(tl.int64) * GROUPS + tl.arange(0, GROUPS)[:, None]
    token, first = group // per_token, group % per_token * size
    head, start = first // width, first % width
    slot, kept = slots_of(slots, token, tokens, lowest)
    within = tl.arange(0, WIDTH)[None, :]
    mask = kept & (within < size)
    row = token * token_stride + head * head_stride
    pattern = load_float32_bits(x, row + (start + within) * column_stride, mask, BF16)
    if FIRST == "hadamard":
        signs = tl.load(beside + within, within < size, other=0.0)
        pattern = bits(to_bfloat16(hadamard(real(pattern) * signs, TURNS)))
    elif FIRST is not None:
        angles = beside + tl.load(positions + token, kept, other=0).to(tl.int64) * angle_stride
        pattern = bits(
            rotated(
                real(pattern), x, row, start + within, column_stride, angles, mask, rotated_columns, ROUNDED, BF16,
                FIRST == "rope_interleaved",
            )
        )  # fmt: skip
    if NAN == "range":  # what is no element of the group is NaN, which a recipe that looks for ends leaves out
        pattern = tl.where(mask, pattern, 0x7FC00000)
        amax = tl.zeros((GROUPS, 1), tl.float32)
    elif given is None:
        amax = real(amax_of(pattern, mask, 1, NAN)[:, None])
    else:
        amax = tl.load(given + head * given_stride, kept, other=1.0)
    limit = tl.full((1, 1), bound, tl.float32)
    if whole is None:
        scale, value = RECIPE(real(pattern), amax, limit)
    else:
        scale, value = RECIPE(real(pattern), amax, limit, tl.load(whole))
    code, unit = CODE(value), within
    if PACK > 1:
        shifted = code << (within % PACK * (8 // PACK)).to(tl.int32)
        code = tl.sum(tl.reshape(shifted, (GROUPS, WIDTH // PACK, PACK)), 2)
        unit = tl.arange(0, WIDTH // PACK)[None, :]
    column = (start // PACK).to(tl.int32) + unit
    to = offset_of(slot, head, column, block, c0, c1, c2, c3, c4, c5, code_places, code_columns)
    tl.store(codes + to, code.to(codes.dtype.element_ty), kept & (unit < size // PACK))
    if scales is not None:
        column = (start // size).to(tl.int32)
        to = offset_of(slot, head, column, block, s0, s1, s2, s3, s4, s5, scale_places, scale_columns)
        tl.store(scales + to, scale.to(scales.dtype.element_ty), kept)


@triton.jit(
    do_not_specialize=[
        "tokens", "rows", "per_token", "size", "width", "token_stride", "head_stride", "block",
        "c0", "c1", "c2", "c3", "c4", "c5", "places", "columns", "lowest",
    ]
)  # fmt: skip
def copy_rows(
    x, slots, codes, tokens, rows, per_token, size, width, token_stride, head_stride, column_stride, block,
    c0, c1, c2, c3, c4, c5, places, columns, lowest,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """ROWS runs of ``size`` elements a program, bit for bit; a head has ``width``, a whole number of runs."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    token, first, within = row // per_token, row % per_token * size, tl.arange(0, WIDTH)[None, :]
    head, column = first // width, (first % width).to(tl.int32) + within
    slot, kept = slots_of(slots, token, tokens, lowest)
    mask = kept & (within < size)
    pattern = tl.load(x + token * token_stride + head * head_stride + column * column_stride, mask, other=0)
    to = offset_of(slot, head, column, block, c0, c1, c2, c3, c4, c5, places, columns)
    tl.store(codes + to, pattern, mask)


def write(slots, *parts, rule=SKIP_NEGATIVE):
    """Write parts of tokens into their slots. Raises ``ValueError`` for a bad call, before anything is written."""
    slots = checked(slots, parts, rule)
    for part in parts:
        if part.x.numel():
            (_copy if part.recipe is None else _quantize)(slots, part, rule)


def _copy(slots, part, rule):
    x, view = patterns(part.x), patterns(part.view)
    tokens, heads, width = x.shape
    per_token = heads * width // part.group
    tile, wide = groups_of(tokens * per_token, part.group)
    copy_rows[(triton.cdiv(tokens * per_token, tile),)](
        x, slots, view, tokens, tokens * per_token, per_token, part.group, width, *x.stride(), block_of(view),
        *view.stride(), view.shape[2], view.shape[5], rule.lowest, tile, wide,
    )  # fmt: skip


def _quantize(slots, part, rule):
    tokens, heads, width = part.x.shape
    per_token = heads * width // part.group
    view, scales = patterns(part.view), part.scales
    at = view if scales is None else scales
    loaded, bf16 = elements_of(part.x)
    beside = signs_of(width, part.x.device) if part.first == "hadamard" else part.beside
    beside = None if beside is None else elements_of(beside)[0]
    turned, per_position = (0, 0) if part.positions is None else (part.beside.shape[1], part.beside.stride(0))
    given_stride = part.given.stride(0) if part.given is not None and part.per_head else 0
    tile, wide = groups_of(tokens * per_token, part.group)
    code, rounded = part.code or SOFT, ROUND[part.x.dtype] if turned else None
    turns = (width & -width).bit_length() - 1 if part.first == "hadamard" else 0
    write_groups[(triton.cdiv(tokens * per_token, tile),)](
        loaded, slots, view, None if scales is None else patterns(scales), part.given, part.whole, beside,
        part.positions, tokens, tokens * per_token, per_token, part.group, width, *loaded.stride(), block_of(view),
        *view.stride(), *at.stride(), given_stride, view.shape[2], view.shape[5], at.shape[2], at.shape[5],
        turned, per_position, rule.lowest, part.bound or BOUNDS[part.format],
        part.recipe, code[part.format] if isinstance(code, dict) else code, part.first, rounded, part.nan,
        bf16, part.pack, tile, wide, turns,
        enable_fp_fusion=False,  # int8 and int4 round a product before they add to it
    )  # fmt: skip
