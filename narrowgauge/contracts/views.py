"""How a matrix lies in memory when a kernel is given it: what strides it has, and what stands around it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

View = Literal["contiguous", "sliced", "transposed", "alternate_rows", "far"]
VIEWS: tuple[View, ...] = get_args(View)
#: elements before and after the columns of a sliced matrix. Engines ask for rows that begin at 16 bytes; 16 elements do
BEFORE, AFTER = 16, 32
#: elements from row to row of a far matrix: the third row begins beyond 2^31
FAR = (1 << 30) + 16


@dataclass(frozen=True)
class Place:
    """Where the elements of a matrix stand in memory, counted in elements."""

    size: int  #: of the whole memory
    offset: int  #: of the first element
    strides: tuple[int, ...]
    filled: bool = True  #: something is written around the matrix; otherwise zeros stand there, which cost no memory


def place(view: View, shape: tuple[int, ...]) -> Place:
    """The place of a tensor [rows, …]; what stands behind the first axis is one row.

    ``sliced``: columns cut out of a wider matrix. ``transposed``: the memory holds [columns, rows]. ``alternate_rows``:
    every second row of a longer matrix. ``far``: rows so far apart that their offsets pass 32 bits.
    """
    rows, columns = shape[0], math.prod(shape[1:])
    within = tuple(math.prod(shape[axis + 1 :]) for axis in range(1, len(shape)))
    match view:
        case "contiguous":
            return Place(rows * columns, 0, (columns, *within))
        case "sliced":
            wide = BEFORE + columns + AFTER
            return Place(rows * wide, BEFORE, (wide, *within))
        case "transposed":
            return Place(rows * columns, 0, (1, *(rows * stride for stride in within)))
        case "alternate_rows":
            return Place(2 * rows * columns, 0, (2 * columns, *within))
        case "far":
            return Place(max(rows - 1, 0) * FAR + columns, 0, (FAR, *within), filled=False)
