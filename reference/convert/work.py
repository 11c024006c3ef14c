"""What the steps of a conversion work on, and the shapes that its buffers have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded, given_with
from narrowgauge.contracts.conversion import FIRST, Conversion, Held
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.fast_codec import decode_values

if TYPE_CHECKING:
    from narrowgauge.reference.behaviour import Behaviour

#: the matrix of numbers between reading and quantizing, and the rows of each fused shard
VALUES, WIDTHS = "values", "widths"


@dataclass(frozen=True)
class Work:
    """Buffers by name after some of the steps, and as they were taken."""

    conversion: Conversion
    format: str  #: of the codes that are given in the end
    taken: Mapping[str, Coded]
    held: Mapping[str, Coded]
    quantizer: Behaviour | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the codes that were taken."""
        rows, columns = self.taken[FIRST].shape
        return rows, columns


def shape_of(held: Held, conversion: Conversion, shape: tuple[int, int], shards: int) -> tuple[int, int]:
    """The shape of one buffer for codes of that shape. Raises ``BadInput`` where blocks do not divide them."""
    rows, columns = shape
    if held.per == "block":
        return conversion.blocks.grid(rows, columns)
    if held.per == "new block":
        return conversion.new_blocks.grid(rows, columns)
    shapes = {
        "element": shape,
        "transposed": (columns, rows),
        "tensor": (1, 1),
        "shard": (shards, 1),
        "row": (rows, 1),
        "column": (1, columns),
    }
    return shapes[held.per]


def shards_of(x: Coded) -> int:
    """How many fused shards a call has."""
    widths = given_with(x).get(WIDTHS)
    return 1 if widths is None else widths.shape[0]


def widths_of(work: Work) -> npt.NDArray[np.int64]:
    """Rows of each fused shard."""
    return np.asarray(decode_values(work.taken[WIDTHS]), np.int64).ravel()


def check_taken(conversion: Conversion, source: str, x: Coded) -> None:
    """Raise ``BadInput`` for a call that is none: a buffer that is missing, of another format or shape, or shards that
    are not all rows."""
    if x.data.ndim != 2 or x.format != source:
        raise BadInput(f"{conversion.name}: codes are {x.format} {list(x.shape)}; expected {source} [rows, columns]")
    parts = max(
        (int(count) for name, *rest in conversion.steps if name == "part_rows" for count in rest[1:]), default=1
    )
    if x.shape[0] % parts:
        raise BadInput(
            f"{conversion.name}: codes have {x.shape[0]} rows; expected a multiple of {parts}, one of each part"
        )
    given = given_with(x)
    for held in conversion.takes[1:]:
        want = held.format or source
        shape = shape_of(held, conversion, (x.shape[0], x.shape[1]), shards_of(x))
        came = given.get(held.name)
        if came is None:
            raise BadInput(f"{conversion.name}: {held.name!r} comes beside the codes; nothing of that name came")
        if came.format != want or came.shape != shape:
            raise BadInput(
                f"{conversion.name}: {held.name} is {came.format} {list(came.shape)}; expected {want} {list(shape)}, "
                f"one for each {held.per}"
            )
        if not came.well_formed:
            raise BadInput(f"{conversion.name}: {held.name} holds numbers that are no codes of {format_named(want)}")
    if WIDTHS in given:
        widths = np.asarray(decode_values(given[WIDTHS]))
        if (widths < 0).any() or widths.sum() != x.shape[0]:
            raise BadInput(
                f"{conversion.name}: widths {widths.ravel().astype(int).tolist()}; expected {x.shape[0]} rows in all"
            )
