"""Which block an element or a scale belongs to, taken wrongly: the functions that faults of granularity and tails use.

Matrices are [rows, columns]; grids have one value of each block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.recipe import Blocks, Recipe
from narrowgauge.reference.behaviour import Buffers
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.quantize import Statistics
from narrowgauge.reference.staged import Look
from narrowgauge.reference.steps import F32

Array = npt.NDArray[Any]
#: kernels look at so many columns, or rows, at once: what is left over is a tail
VECTOR = 32
#: what a recipe returns one of for each block
OF_BLOCKS = ("scale", "zero_point")


def block_of(count: int, each: int, wider: int) -> npt.NDArray[np.intp]:
    """For each of ``count`` blocks along an axis: the wider block in which it begins. 0 is the whole axis."""
    return np.arange(count) * each // wider if wider else np.zeros(count, np.intp)


def of_wider_blocks(wider: Callable[[Blocks], Blocks]) -> Callable[[Look], Look]:
    """Each block is told what is true of the wider block that it lies in."""

    def around(look: Look) -> Look:
        def looked(matrix: F32, r: Recipe) -> Statistics:
            grid, other = r.blocks.grid(*matrix.shape), wider(r.blocks)
            found = look(matrix, replace(r, blocks=other)).found
            at = np.ix_(
                block_of(grid[0], r.blocks.rows, other.rows), block_of(grid[1], r.blocks.columns, other.columns)
            )
            return Statistics(
                grid, {n: v if n == "tensor_amax" else np.ascontiguousarray(v[at]) for n, v in found.items()}
            )

        return looked

    return around


def of_elements(kept: Callable[[F32, Recipe], F32]) -> Callable[[Look], Look]:
    """Blocks are looked at in another matrix, of a grid of the same shape."""
    return lambda look: lambda matrix, r: look(kept(matrix, r), r)


def first_half_of_blocks(matrix: F32, r: Recipe) -> F32:
    """Zeros for what lies in the second half of a block's columns."""
    each = r.blocks.columns or matrix.shape[1]
    seen = np.arange(matrix.shape[1]) % max(each, 1) < (each + 1) // 2
    return np.where(seen, matrix, np.float32(0))


def last_half_of_rows(matrix: F32, r: Recipe) -> F32:
    """Zeros for the upper half of the matrix."""
    seen = np.arange(matrix.shape[0]) >= matrix.shape[0] // 2
    return np.where(seen[:, None], matrix, np.float32(0))


def whole_vectors(matrix: F32, r: Recipe) -> F32:
    """Zeros for the columns beyond a whole number of vectors."""
    return np.where(np.arange(matrix.shape[1]) < in_vectors(matrix.shape[1]), matrix, np.float32(0))


def in_vectors(size: int) -> int:
    """How much of an axis whole vectors cover; all of it where there is less than one."""
    return size - size % VECTOR if size >= VECTOR else size


def padded(columns: int, r: Recipe) -> int:
    """So many columns does a kernel look at that masks nothing: whole blocks, or the next power of two."""
    each = r.blocks.columns
    return -(-columns // each) * each if each else 1 << max(columns - 1, 0).bit_length()


def read_beyond(matrix: F32, r: Recipe) -> F32:
    """Each row with what stands behind it in memory, up to the columns that a kernel looks at. 0 after the last."""
    rows, columns = matrix.shape
    width = padded(columns, r)
    memory = np.concatenate([matrix.ravel(), np.zeros(width, np.float32)])
    return np.ascontiguousarray(memory[np.arange(rows)[:, None] * columns + np.arange(width)])


def each(names: tuple[str, ...], change: Callable[[Array], Array]) -> Callable[[Buffers], Buffers]:
    """The same change of the codes of these outputs, as far as they are there."""

    def changed(made: Buffers) -> Buffers:
        return made | {n: Coded(made[n].format, np.ascontiguousarray(change(made[n].data))) for n in names if n in made}

    return changed


def largest(scale: Coded) -> Coded:
    """The largest scale in the place of each."""
    if scale.data.size == 0:
        return scale
    values = np.nan_to_num(decode_values(scale), nan=-1.0, posinf=np.inf)
    return Coded(scale.format, np.full_like(scale.data, scale.data.flat[int(np.argmax(values))]))


def by_columns(grid: Array) -> Array:
    """Written column by column into a buffer that is read row by row."""
    return grid.T.reshape(grid.shape)


def without_last(grid: Array) -> Array:
    """Nothing is written for the last block of each row, or, where a row has one, for the last row."""
    out = grid.copy()
    if grid.shape[1] > 1:
        out[:, -1] = 0
    else:
        out[-1:] = 0
    return out


def tail_columns_zero(codes: Array) -> Array:
    out = codes.copy()
    out[:, in_vectors(codes.shape[1]) :] = 0
    return out


def tail_rows_zero(grid: Array) -> Array:
    out = grid.copy()
    out[in_vectors(grid.shape[0]) :] = 0
    return out


def spilt(codes: Array) -> Array:
    """Zeros of what lies beyond a row's end, up to the next power of two, stand at the beginning of the next row."""
    out = codes.copy()
    columns = codes.shape[1]
    over = min((1 << max(columns - 1, 0).bit_length()) - columns, columns)
    if over:
        out[1:, :over] = 0
    return out
