"""The frames of the Triton quantizers: which elements a program takes, and which of them share a scale.

A recipe is a jitted function that a frame is given: of elements, the largest magnitude of their block, and the bound it
makes the block's scale and what the last cast is given. In ``quantize_groups`` a program has whole groups of a row (a
token is one). A block of more rows takes two launches: ``block_amax``, then ``quantize_blocks``.

Sizes are not specialized: every shape would be compiled anew. Offsets are 64 bits wide.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from narrowgauge.kernels_under_test.triton_codec import INTERPRETED, load_float32_bits
from narrowgauge.kernels_under_test.triton_steps import real
from narrowgauge.kernels_under_test.triton_targets import BOUNDS, SOFT

#: elements of a program that has groups: interpreted, one program costs 1.4 ms whatever its size
GROUP_TILE = 65536 if INTERPRETED else 2048
#: rows and columns of a program that has a part of a block, at least and at most; the rows divide blocks of 128
SMALLEST_PART = (32, 64)
LARGEST_PART = (128, 512) if INTERPRETED else SMALLEST_PART


@triton.jit
def amax_of(pattern, mask, AXIS: tl.constexpr, NAN: tl.constexpr):
    """The largest magnitude of float32 patterns (int32), as a pattern: they are ordered as magnitudes are.

    A NaN is told by its pattern, and not left to what a maximum of floats does with it. "keep": it makes the maximum
    NaN; "drop": it counts as nothing; "all": the same, but where there is nothing else.
    """
    magnitude = pattern & 0x7FFFFFFF
    if NAN == "all":
        return tl.max(tl.where(mask & (magnitude <= 0x7F800000), magnitude, -1), AXIS)  # -1 is the pattern of a NaN
    else:
        return tl.max(tl.where(magnitude > 0x7F800000, 0x7FC00000 if NAN == "keep" else 0, magnitude), AXIS)


@triton.jit
def by_strides(row, column, row_stride, column_stride):
    """Where the scale of a block stands: a matrix with strides."""
    return row * row_stride + column * column_stride


@triton.jit(
    do_not_specialize=[
        "groups", "per_row", "size", "columns", "row_stride", "scale_row_stride", "scale_column_stride"
    ]
)  # fmt: skip
def quantize_groups(
    x, codes, scales, whole, groups, per_row, size, columns, row_stride, column_stride,
    scale_row_stride, scale_column_stride, bound,
    RECIPE: tl.constexpr, CODE: tl.constexpr, PLACE: tl.constexpr, NAN: tl.constexpr, BF16: tl.constexpr,
    GROUPS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """GROUPS groups of at most ``size`` elements a program. ``whole``: a number of the tensor, if a recipe has it."""
    group = tl.program_id(0).to(tl.int64) * GROUPS + tl.arange(0, GROUPS)[:, None]
    row, within = group // per_row, tl.arange(0, WIDTH)[None, :]
    column = group % per_row * size + within
    mask = (group < groups) & (within < size) & (column < columns)
    pattern = load_float32_bits(x, row * row_stride + column * column_stride, mask, BF16)
    amax = real(amax_of(pattern, mask, 1, NAN)[:, None])
    limit = tl.full((1, 1), bound, tl.float32)
    if whole is None:
        scale, value = RECIPE(real(pattern), amax, limit)
    else:
        scale, value = RECIPE(real(pattern), amax, limit, tl.load(whole))
    tl.store(codes + row * columns + column, CODE(value).to(tl.uint8), mask)
    place = PLACE(row, group % per_row, scale_row_stride, scale_column_stride)
    tl.store(scales + place, scale.to(scales.dtype.element_ty), group < groups)


@triton.jit(do_not_specialize=["rows", "columns", "row_stride", "block_rows", "block_columns", "grid_columns"])
def block_amax(
    x, found, rows, columns, row_stride, column_stride, block_rows, block_columns, grid_columns,
    NAN: tl.constexpr, BF16: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The largest magnitudes of blocks into ``found`` (int32 patterns, zeros before). ROWS divides a block's rows."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    mask = (row < rows) & (column < columns)
    pattern = load_float32_bits(x, row * row_stride + column * column_stride, mask, BF16)
    place = tl.program_id(0).to(tl.int64) * ROWS // block_rows * grid_columns + column // block_columns
    tl.atomic_max(found + place, amax_of(pattern, mask, 0, NAN)[None, :], column < columns)


@triton.jit(
    do_not_specialize=[
        "rows", "columns", "row_stride", "block_rows", "block_columns", "grid_rows", "grid_columns",
        "found_row_stride", "found_column_stride",
    ]
)  # fmt: skip
def quantize_blocks(
    x, codes, scales, found, whole, rows, columns, row_stride, column_stride, block_rows, block_columns,
    grid_rows, grid_columns, found_row_stride, found_column_stride, bound,
    RECIPE: tl.constexpr, CODE: tl.constexpr, BF16: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """ROWS by COLUMNS elements a program. ``found``: the largest magnitude of each block, or its scale that is given.

    The first element of a block stores its scale, if ``scales`` are wanted; it has one even where x has no elements.
    """
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    mask = (row < rows) & (column < columns)
    pattern = load_float32_bits(x, row * row_stride + column * column_stride, mask, BF16)
    down, across = row // block_rows, column // block_columns
    exists = (down < grid_rows) & (across < grid_columns)
    given = tl.load(found + down * found_row_stride + across * found_column_stride, exists, other=1.0)
    limit = tl.full((1, 1), bound, tl.float32)
    if whole is None:
        scale, value = RECIPE(real(pattern), given, limit)
    else:
        scale, value = RECIPE(real(pattern), given, limit, tl.load(whole))
    tl.store(codes + row * columns + column, CODE(value).to(tl.uint8), mask)
    if scales is not None:
        first = exists & (row % block_rows == 0) & (column % block_columns == 0)
        tl.store(scales + down * grid_columns + across, scale.to(scales.dtype.element_ty), first)


def elements_of(x):
    """x as the kernels load it, and whether its elements are bfloat16 patterns."""
    return (x.view(torch.int16), True) if x.dtype == torch.bfloat16 else (x, False)


def groups_of(groups, size):
    """How many groups a program has, and how many elements it keeps for each: powers of two."""
    width = max(16, triton.next_power_of_2(size))
    most = triton.next_power_of_2(groups) if INTERPRETED else GROUP_TILE
    return max(1, min(GROUP_TILE // width, most)), width


def part_of(rows, columns):
    """Rows and columns of a program that has a part of a matrix: powers of two."""
    sizes = zip((rows, columns), SMALLEST_PART, LARGEST_PART, strict=True)
    return tuple(min(most, max(least, triton.next_power_of_2(size))) for size, least, most in sizes)


def programs_of(rows, columns, part):
    """At least one, which stores the scale of a tensor without elements."""
    return tuple(max(1, triton.cdiv(size, each)) for size, each in zip((rows, columns), part, strict=True))


def by_groups(
    x, recipe, format, size=0, *, ragged=False, nan="drop", bound=None, code=None, stored=torch.float32, whole=None,
    scales=None, strides=None, place=by_strides,
):  # fmt: skip
    """``codes`` [rows, columns] uint8 and ``scale`` [rows, groups of ``size`` columns; 0 is the row] of a matrix.

    ``scales`` is where else they are stored, at the ``place`` that follows from two ``strides``.
    """
    rows, columns = x.shape
    per_row, size = _count(columns, size), size or max(1, columns)
    assert ragged or columns % size == 0, f"{columns} columns are no whole number of groups of {size}"
    codes = torch.empty((rows, columns), dtype=torch.uint8, device=x.device)
    if scales is None:
        scales = torch.empty((rows, per_row), dtype=stored, device=x.device)
    if scales.numel():
        tile, width = groups_of(rows * per_row, size)
        loaded, bf16 = elements_of(x)
        quantize_groups[(triton.cdiv(rows * per_row, tile),)](
            loaded, codes, scales, whole, rows * per_row, per_row, size, columns, *x.stride(),
            *(strides or (per_row, 1)), bound or BOUNDS[format],
            recipe, code or SOFT[format], place, nan, bf16, tile, width,
        )  # fmt: skip
    return codes, scales


def amax_by_blocks(x, block_rows, block_columns, nan="drop"):
    """The largest magnitude of each block, float32; 0 where there is no element. 0 rows or columns: all of them."""
    rows, columns = x.shape
    grid = _count(rows, block_rows), _count(columns, block_columns)
    block_rows, block_columns = block_rows or max(1, rows), block_columns or max(1, columns)
    found = torch.zeros(grid, dtype=torch.int32, device=x.device)
    if x.numel():
        loaded, bf16 = elements_of(x)
        part = part_of(rows, columns)
        block_amax[programs_of(rows, columns, part)](
            loaded, found, rows, columns, *x.stride(), block_rows, block_columns, grid[1],
            nan, bf16, *part,
        )  # fmt: skip
    return found.view(torch.float32)


def by_blocks(x, found, recipe, format, block_rows, block_columns, *, bound=None, code=None, stored=None, whole=None):
    """``codes``, and ``scale`` of each block if it is to be ``stored`` in some dtype.

    ``found`` (float32): one number for each block, or [1, 1] for all.
    """
    rows, columns = x.shape
    grid = _count(rows, block_rows), _count(columns, block_columns)
    block_rows, block_columns = block_rows or max(1, rows), block_columns or max(1, columns)
    codes = torch.empty((rows, columns), dtype=torch.uint8, device=x.device)
    scales = None if stored is None else torch.empty(grid, dtype=stored, device=x.device)
    strides = [0 if n == 1 else s for n, s in zip(found.shape, found.stride(), strict=True)]
    loaded, bf16 = elements_of(x)
    part = part_of(rows, columns)
    quantize_blocks[programs_of(rows, columns, part)](
        loaded, codes, scales, found, whole, rows, columns, *x.stride(), block_rows, block_columns, *grid, *strides,
        bound or BOUNDS[format], recipe, code or SOFT[format], bf16, *part,
    )  # fmt: skip
    return codes if scales is None else (codes, scales)


def by_tensor(x, recipe, format, *, nan="drop", **more):
    """Codes and scale [1, 1]."""
    return by_blocks(x, amax_by_blocks(x, 0, 0, nan), recipe, format, 0, 0, stored=torch.float32, **more)


def by_tiles(x, recipe, format):
    """Codes, and one scale for each 128 by 128 elements; the last ones may have fewer."""
    return by_blocks(x, amax_by_blocks(x, 128, 128, "keep"), recipe, format, 128, 128, stored=torch.float32)


def _count(size, each):
    return triton.cdiv(size, each) if each else 1
