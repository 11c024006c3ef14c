"""From a layout's declaration: the grid with its padding, and the order in which codes stand in memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.layout import Digit, Layout

Array = npt.NDArray[Any]


def _padded(size: int, of: tuple[Digit, ...], align: int, what: str, layout: Layout) -> int:
    multiple = math.lcm(align, math.prod(digit.size or 1 for digit in of))
    if size < 0:
        raise BadInput(f"layout {layout.name!r}: {what} must be 0 or more, not {size}")
    if size % multiple and layout.padding == "refused":
        raise BadInput(
            f"layout {layout.name!r} has no padding: {what} must be a multiple of {multiple}, not {size}; "
            f"pad to {-(-size // multiple) * multiple} first"
        )
    return -(-size // multiple) * multiple


def grid(layout: Layout, rows: int, columns: int) -> tuple[int, int]:
    """Rows and columns with padding. Raises ``BadInput`` where the layout has none and the sizes do not divide."""
    return (
        _padded(rows, layout.row_digits, layout.align[0], "rows", layout),
        _padded(columns, layout.column_digits, layout.align[1], "columns", layout),
    )


def _sizes(layout: Layout, shape: tuple[int, int]) -> dict[str, int]:
    """The size of each digit, rows first, for a padded grid."""
    found = {}
    for of, size in zip((layout.row_digits, layout.column_digits), shape, strict=True):
        fixed = math.prod(digit.size or 1 for digit in of)
        found.update({d.name: size // fixed if d.size is None else d.size for d in of})
    return found


def storage_shape(layout: Layout, rows: int, columns: int) -> tuple[int, ...]:
    """Shape of the memory image of a [rows, columns] matrix, in elements of the layout's storage dtype, C order."""
    sizes = _sizes(layout, grid(layout, rows, columns))
    axes = [math.prod(sizes[name] for name in axis.split()) for axis in layout.storage]
    return (*axes[:-1], axes[-1] * (layout.word_bytes // layout.element_bytes))


def _order(layout: Layout, names: list[str]) -> list[int]:
    stored = [name for axis in (*layout.storage, layout.slots) for name in axis.split()]
    return [names.index(name) for name in stored]


def in_memory_order(matrix: Array, layout: Layout) -> Array:
    """A padded grid [rows, columns] as [words, slots]: what each slot of each word holds."""
    sizes = _sizes(layout, (matrix.shape[0], matrix.shape[1]))
    moved = matrix.reshape(tuple(sizes.values())).transpose(_order(layout, list(sizes)))
    return np.ascontiguousarray(moved).reshape(matrix.size // len(layout.word), len(layout.word))


def in_matrix_order(slots: Array, layout: Layout, shape: tuple[int, int]) -> Array:
    """The inverse of ``in_memory_order``: [words, slots] as the padded grid of ``shape``."""
    sizes = _sizes(layout, shape)
    order = _order(layout, list(sizes))
    moved = slots.reshape([list(sizes.values())[place] for place in order])
    return np.ascontiguousarray(moved.transpose(np.argsort(order))).reshape(shape)


@dataclass(frozen=True)
class Run:
    """Neighbouring bits of a code that are neighbours in one byte of its word too."""

    byte: int
    bit: int  #: of the byte
    low: int  #: of the code
    width: int


def runs(places: tuple[int, ...]) -> Iterator[Run]:
    """A slot's bits as the fewest runs. ``places[i]`` is the bit of the word that holds bit i of the code."""
    start = 0
    for i in range(1, len(places) + 1):
        if i == len(places) or places[i] != places[i - 1] + 1 or places[i] % 8 == 0:
            yield Run(places[start] // 8, places[start] % 8, start, i - start)
            start = i
