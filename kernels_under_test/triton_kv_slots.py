"""The frame of the Triton writers of key-value caches: a token's groups of elements go to the slot that it is given.

A recipe is a jitted function, as for the quantizers: of elements, the largest magnitude of their group (or the scale
that is given), and the bound it makes the scale and what the last cast is given. Where an element stands follows from
the strides of a view of six axes (kv_places.py), so one kernel writes pages of any form. Offsets are 64 bits wide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from narrowgauge.kernels_under_test.kv_checks import (
    NEGATIVE,
    ZERO,
    check_angles,
    check_numbers,
    check_rows,
    check_same_slots,
    check_scale,
    check_scale_cache,
    check_slots,
    check_stored,
    check_within,
)
from narrowgauge.kernels_under_test.kv_places import block_of, count_of, last_of_each, patterns
from narrowgauge.kernels_under_test.triton_codec import load_float32_bits
from narrowgauge.kernels_under_test.triton_kv_before import ROUND, hadamard, rotated
from narrowgauge.kernels_under_test.triton_steps import bits, real, to_bfloat16
from narrowgauge.kernels_under_test.triton_targets import BOUNDS, SOFT
from narrowgauge.kernels_under_test.triton_tiling import amax_of, elements_of, groups_of

#: what becomes of padding: skipped, by either rule; or written to slot 0 as any other token
SKIP_NEGATIVE, SKIP_ZERO, WRITE_ALL = "skip_negative", "skip_zero", "write_all"


@triton.jit
def slots_of(slots, token, tokens, RULE: tl.constexpr):
    """The slot of each token, int64, and whether anything is written there."""
    exists = token < tokens
    slot = tl.load(slots + token, exists, other=-1).to(tl.int64)
    if RULE == "skip_zero":
        return slot, exists & (slot > 0)
    else:
        return slot, exists & (slot >= 0)


@triton.jit
def offset_of(slot, head, column, block, s0, s1, s2, s3, s4, s5, PLACES: tl.constexpr, COLUMNS: tl.constexpr):
    """Where an element stands in a view of six axes, whose strides are given. All are int64."""
    place = slot % block
    page = slot // block * s0 + place // PLACES * s1 + place % PLACES * s2
    return page + head * s3 + column // COLUMNS * s4 + column % COLUMNS * s5


@triton.jit(
    do_not_specialize=[
        "tokens", "groups", "per_token", "size", "width", "token_stride", "head_stride", "block",
        "c0", "c1", "c2", "c3", "c4", "c5", "s0", "s1", "s2", "s3", "s4", "s5", "given_stride",
        "rotated_columns", "angle_stride",
    ]
)  # fmt: skip
def write_groups(
    x, slots, codes, scales, given, whole, beside, positions, tokens, groups, per_token, size, width, token_stride,
    head_stride, column_stride, block, c0, c1, c2, c3, c4, c5, s0, s1, s2, s3, s4, s5, given_stride,
    rotated_columns, angle_stride, bound,
    RECIPE: tl.constexpr, CODE: tl.constexpr, RULE: tl.constexpr, FIRST: tl.constexpr, ROUNDED: tl.constexpr,
    NAN: tl.constexpr, BF16: tl.constexpr, PACK: tl.constexpr, CODE_PLACES: tl.constexpr, CODE_COLUMNS: tl.constexpr,
    SCALE_PLACES: tl.constexpr, SCALE_COLUMNS: tl.constexpr, GROUPS: tl.constexpr, WIDTH: tl.constexpr,
    TURNS: tl.constexpr,
):  # fmt: skip
    """GROUPS groups of ``size`` elements a program; a head has ``width``, a whole number of groups.

    ``given``: static scales, one for each head; ``whole``: a number of the tensor, if a recipe has it. PACK codes
    share a byte, the first one lowest. FIRST: what is done to a head before; ``beside`` are then signs, or cosines and
    sines of each position.
    """
    group = tl.program_id(0).to(tl.int64) * GROUPS + tl.arange(0, GROUPS)[:, None]
    token, first = group // per_token, group % per_token * size
    head, start = first // width, first % width
    slot, kept = slots_of(slots, token, tokens, RULE)
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
    column = start // PACK + unit
    to = offset_of(slot, head, column, block, c0, c1, c2, c3, c4, c5, CODE_PLACES, CODE_COLUMNS)
    tl.store(codes + to, code.to(codes.dtype.element_ty), kept & (unit < size // PACK))
    if scales is not None:
        to = offset_of(slot, head, start // size, block, s0, s1, s2, s3, s4, s5, SCALE_PLACES, SCALE_COLUMNS)
        tl.store(scales + to, scale.to(scales.dtype.element_ty), kept)


@triton.jit(
    do_not_specialize=[
        "tokens", "rows", "heads", "width", "token_stride", "head_stride", "block", "c0", "c1", "c2", "c3", "c4", "c5"
    ]
)  # fmt: skip
def copy_rows(
    x, slots, codes, tokens, rows, heads, width, token_stride, head_stride, column_stride, block,
    c0, c1, c2, c3, c4, c5,
    RULE: tl.constexpr, PLACES: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """ROWS heads of tokens a program, bit for bit."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    token, head, column = row // heads, row % heads, tl.arange(0, WIDTH)[None, :]
    slot, kept = slots_of(slots, token, tokens, RULE)
    mask = kept & (column < width)
    pattern = tl.load(x + token * token_stride + head * head_stride + column * column_stride, mask, other=0)
    to = offset_of(slot, head, column, block, c0, c1, c2, c3, c4, c5, PLACES, COLUMNS)
    tl.store(codes + to, pattern, mask)


@dataclass(frozen=True)
class Rows:
    """A part of tokens, ``x`` [tokens, heads, columns], and where it goes. Without a recipe it is copied."""

    name: str
    x: torch.Tensor
    view: torch.Tensor  #: of six axes
    recipe: Any = None
    format: str = ""
    code: Any = None  #: another last cast than the format's by integers
    size: int = 0  #: elements of a group; 0 for a head
    given: torch.Tensor | None = None  #: static scales, float32 [1] or [heads]
    per_head: bool = False  #: they are one for each head
    scaled_by: str = ""  #: the part after which the given scale is named; "" for this one
    scales: torch.Tensor | None = None  #: a view of six axes to which scales are stored
    scale_format: str = "float32"
    bound: float = 0.0  #: 0 for what the engines divide by
    whole: torch.Tensor | None = None  #: a number of the tensor, float32 [1]
    nan: str = "drop"  #: what a NaN is to the largest magnitude
    pack: int = 1  #: codes of a byte
    first: str | None = None  #: "hadamard", "rope", "rope_interleaved"
    beside: torch.Tensor | None = None  #: signs [columns]; or cosines and sines [positions, rotated columns]
    positions: torch.Tensor | None = None

    @property
    def group(self):
        """How many elements share a scale."""
        return self.size or self.x.shape[2]

    def check(self, first):
        """Raise ``ValueError`` for what does not fit, or does not fit the first part."""
        named = self.scaled_by or self.name
        check_rows(self.name, self.x, self.view, self.pack, first.x.shape[0])
        check_same_slots(self.name, self.view, first.view)
        check_stored(self.name, self.view, _types(self.format) if self.recipe else (self.x.dtype,))
        if self.given is not None:
            check_scale(f"{named}_scale", self.given, self.x.shape[1] if self.per_head else 1)
        if self.whole is not None:
            check_scale(f"{named}_global_scale", self.whole, 1)
        if self.scales is not None:
            _, heads, width = self.x.shape
            check_same_slots(f"{self.name}_scale", self.scales, first.view)
            check_scale_cache(self.name, self.scales, heads, width // self.group, _types(self.scale_format))
        if self.positions is not None:
            check_numbers("positions", self.positions, first.x.shape[0])
            check_within("positions", self.positions, 0, self.beside.shape[0] - 1)
            check_angles(self.beside, self.x)


def _types(format):
    """Types of a tensor that holds codes of a format: its own, and bytes."""
    own = getattr(torch, format, torch.uint8)
    return (own, torch.uint8) if own.itemsize == 1 else (own,)


def write(slots, *parts, rule=SKIP_NEGATIVE):
    """Write parts of tokens into their slots. Raises ``ValueError`` for a bad call, before anything is written."""
    first = parts[0]
    count = count_of(first.view)
    for part in parts:
        part.check(first)
    check_slots(slots, first.x.shape[0], count, NEGATIVE if rule == SKIP_NEGATIVE else ZERO)
    slots = last_of_each(slots, count)
    for part in parts:
        if part.x.numel():
            (_copy if part.recipe is None else _quantize)(slots, part, rule)


def _copy(slots, part, rule):
    x, view = patterns(part.x), patterns(part.view)
    tokens, heads, width = x.shape
    tile, wide = groups_of(tokens * heads, width)
    copy_rows[(triton.cdiv(tokens * heads, tile),)](
        x, slots, view, tokens, tokens * heads, heads, width, *x.stride(), block_of(view), *view.stride(),
        rule, view.shape[2], view.shape[5], tile, wide,
    )  # fmt: skip


def _quantize(slots, part, rule):
    tokens, heads, width = part.x.shape
    per_token = heads * width // part.group
    view, scales = patterns(part.view), part.scales
    at = view if scales is None else scales
    loaded, bf16 = elements_of(part.x)
    beside = None if part.beside is None else elements_of(part.beside)[0]
    turned, per_position = (0, 0) if part.positions is None else (beside.shape[1], beside.stride(0))
    given_stride = part.given.stride(0) if part.given is not None and part.per_head else 0
    tile, wide = groups_of(tokens * per_token, part.group)
    write_groups[(triton.cdiv(tokens * per_token, tile),)](
        loaded, slots, view, None if scales is None else patterns(scales), part.given, part.whole, beside,
        part.positions, tokens, tokens * per_token, per_token, part.group, width, *loaded.stride(), block_of(view),
        *view.stride(), *at.stride(), given_stride, turned, per_position, part.bound or BOUNDS[part.format],
        part.recipe, part.code or SOFT[part.format], rule, part.first, ROUND[part.x.dtype], part.nan, bf16, part.pack,
        view.shape[2], view.shape[5], at.shape[2], at.shape[5], tile, wide,
        (width & -width).bit_length() - 1,
        enable_fp_fusion=False,  # int8 and int4 round a product before they add to it
    )  # fmt: skip
