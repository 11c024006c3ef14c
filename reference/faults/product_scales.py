"""Faults of a product's scales: which scale a stretch of K gets, in what precision, and when. ``product.*``"""

from __future__ import annotations

import numpy as np

from narrowgauge.reference.faults import product_call_edits as calls
from narrowgauge.reference.faults import product_scale_edits as s
from narrowgauge.reference.faults import product_sum_edits as sums
from narrowgauge.reference.faults.fault import ProductFault
from narrowgauge.reference.faults.product_ways import Grid, both


def _first(grid: Grid) -> Grid:
    return np.broadcast_to(grid[:, :1], grid.shape)


def _last(grid: Grid) -> Grid:
    return np.broadcast_to(grid[:, -1:], grid.shape)


def _of_two(grid: Grid) -> Grid:
    return grid[:, np.arange(grid.shape[1]) // 2 * 2]


def _of_half_blocks(grid: Grid) -> Grid:
    """Of each block, that of a block of half its width which begins where it does."""
    return grid[:, np.minimum(np.arange(grid.shape[1]) * 2, grid.shape[1] - 1)]


def _one_late(grid: Grid) -> Grid:
    return grid[:, np.maximum(np.arange(grid.shape[1]) - 1, 0)]


def _before_the_tail(grid: Grid) -> Grid:
    return grid[:, np.minimum(np.arange(grid.shape[1]), max(grid.shape[1] - 2, 0))]


def _stored_by_columns(grid: Grid) -> Grid:
    """Of a square grid the transpose."""
    return grid.T.reshape(grid.shape)


def _read_by_columns(grid: Grid) -> Grid:
    return grid.reshape(grid.shape[::-1]).T


FAULTS = (
    ProductFault(
        "product.first_scales_for_all",
        "GRANULARITY",
        s.blocks(_first),
        "right where K is one block; beyond it each block is off by the ratio of its scale to the first",
        "the pointer to scales is not moved along K, or a sum over all of K is scaled once, by the first",
        (),
    ),
    ProductFault(
        "product.last_scales_for_all",
        "GRANULARITY",
        s.blocks(_last),
        "right where K is one block; beyond it each block is off by the ratio of its scale to the last",
        "the sum over all of K is scaled once, after the loop, by the scales that were loaded last",
        (),
    ),
    ProductFault(
        "product.one_scale_for_two_blocks",
        "GRANULARITY",
        s.blocks(_of_two),
        "every second block of K is off by the ratio of its scale to that before: 64 where 288 is right",
        "the kernel's tile along K is twice as wide as the block, and loads one scale",
        ("sglang#39626",),
    ),
    ProductFault(
        "product.scales_of_half_blocks",
        "GRANULARITY",
        both(s.blocks(_of_half_blocks), calls.groups(lambda index, each: np.arange(index.size) // (each // 2))),
        "the first block of K is right, and later ones are scaled by those of blocks that lie further on",
        "the kernel moves one scale on with each tile, and its tile along K is half as wide as the block",
        (),
    ),
    ProductFault(
        "product.scales_of_the_next_block",
        "GRANULARITY",
        s.blocks(lambda grid: np.roll(grid, -1, axis=1)),
        "every block of K has its neighbour's scale: fluent nonsense, and nothing to see under uniform scales",
        "the pointer to scales is moved on before the first tile",
        (),
    ),
    ProductFault(
        "product.scales_one_block_late",
        "GRANULARITY",
        s.blocks(_one_late),
        "the first block of K is right, and each later one has the scale of the one before",
        "the pointer to scales is moved on one tile late",
        (),
    ),
    ProductFault(
        "product.scales_of_the_next_row",
        "GRANULARITY",
        s.rows(lambda grid: np.roll(grid, -1, axis=0)),
        "every row, or every column, has its neighbour's magnitude; nothing to see under uniform scales",
        "the index of the row is one too high, or an offset is not advanced with the strides",
        (),
    ),
    ProductFault(
        "product.scales_of_the_first_tile",
        "GRANULARITY",
        s.rows_of_the_first_tile,
        "rows, or columns, beyond the first tile are off by the ratio of two scales",
        "scales are loaded by the place in the tile, and not by the row of the matrix",
        (),
    ),
    ProductFault(
        "product.largest_scale_for_all",
        "GRANULARITY",
        s.of_values(lambda values: np.full_like(values, np.max(values, initial=0))),
        "what had a smaller scale is inflated, by 1.25 in one report",
        "parts or experts that were quantized by scales of their own are multiplied under the largest of them",
        (),
    ),
    ProductFault(
        "product.tail_by_the_scale_before",
        "GRANULARITY",
        s.blocks(_before_the_tail),
        "the last block of K is off by the ratio of two scales",
        "blocks of scales are counted as K // 128, without the one that is begun",
        (),
    ),
    ProductFault(
        "product.weight_scales_transposed",
        "LAYOUT",
        both(s.blocks(_stored_by_columns, operands=("b",)), s.blocks(_read_by_columns, operands=("b",))),
        "blocks of the weight are scaled by each other's scales; right for one row or one column of blocks",
        "the grid of the weight's scales is stored for the transposed weight, and was not turned with it",
        (),
    ),
    ProductFault(
        "product.scales_of_axes_exchanged",
        "GRANULARITY",
        s.axes_exchanged,
        "rows are off by the scales of columns, and columns by those of rows; right under uniform scales",
        "scales of tokens are loaded by the column of the result, and those of channels by its row",
        (),
    ),
    ProductFault(
        "product.tensor_scale_taken_for_rows",
        "GRANULARITY",
        s.tensor_scale_taken_for_rows,
        "the first row or column is right, and the others are scaled by what stands behind the scale in memory",
        "the kernel for scales of rows is given the one scale of a tensor",
        ("pytorch#159940",),
    ),
    ProductFault(
        "product.scales_in_bfloat16",
        "ROUND",
        s.scales_rounded("bfloat16"),
        "rows, columns or blocks are off by up to one part in 512",
        "scales are cast to bfloat16 with the activations",
        (),
    ),
    ProductFault(
        "product.scales_in_float16",
        "ROUND",
        s.scales_rounded("float16"),
        "a little off; scales below 2^-24 are zeros, and their rows with them",
        "scales are cast to float16 with the activations",
        (),
    ),
    ProductFault(
        "product.scales_raised_to_powers_of_two",
        "EXPONENT",
        s.scales_to_powers_of_two(np.ceil),
        "finite nonsense: blocks are inflated by factors between 1 and 2",
        "a unit that takes exponents alone is given scales that were rounded up to a power of two, codes as they were",
        ("transformers#47030", "sglang#28662"),
    ),
    ProductFault(
        "product.scales_cut_to_powers_of_two",
        "EXPONENT",
        s.scales_to_powers_of_two(np.floor),
        "finite nonsense: blocks are deflated by factors between 1 and 2",
        "the exponent field of a float32 scale is taken for the scale",
        (),
    ),
    ProductFault(
        "product.exponents_as_numbers",
        "EXPONENT",
        s.exponents_as_numbers,
        "results are larger by about 100 for each operand, and blocks differ little",
        "the byte of an E8M0 scale is converted to float as the number that it is",
        (),
    ),
    ProductFault(
        "product.global_scale_of_the_other",
        "GLOBAL",
        s.global_of_the_other,
        "everything is off by the ratio of the two tensors' scales",
        "of the global scales of both operands one is used for both",
        ("vllm#54974",),
    ),
    ProductFault(
        "product.scale_after_narrowing",
        "ROUND",
        sums.scaled_after_narrowing,
        "one place off now and then; in float16 infinite where the sum before the scale has no place",
        "the sum is rounded to the type of the result, and scaled, and rounded once more",
        (),
    ),
)
