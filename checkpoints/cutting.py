"""Which elements of a weight [.., N, K] share a scale, by the shapes of both."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from narrowgauge.checkpoints.schemes.scheme import Cut

#: sizes that are tried where nothing else says the size of a block
_USUAL = (128, 32, 16, 64, 256, 512)


@dataclass(frozen=True)
class Cutting:
    """Blocks of a matrix. 0 stands for all rows, or all columns."""

    rows: int
    columns: int

    @property
    def cut(self) -> Cut:
        if (self.rows, self.columns) == (0, 0):
            return "tensor"
        if self.rows == 1:
            return "group" if self.columns else "row"
        return "block"

    @property
    def says(self) -> str:
        said = {"tensor": "one a tensor", "row": "one a row", "group": f"groups of {self.columns} columns"}
        rows, columns = (str(size) if size else "all" for size in (self.rows, self.columns))
        return said.get(self.cut, f"blocks of {rows} x {columns}")

    def grid(self, rows: int, columns: int) -> tuple[int, int]:
        """How many blocks there are each way."""
        return (ceil(rows / self.rows) if self.rows else 1, ceil(columns / self.columns) if self.columns else 1)


def cutting(
    shape: tuple[int, ...], scale: tuple[int, ...], transposed: bool = False, hint: tuple[int, int] = (0, 0)
) -> Cutting | None:
    """How a scale of that shape cuts a weight [.., N, K]; None where it does not divide it.

    ``hint``: the block that the configuration names. A block of size B covers N where ceil(N / B) scales are there.
    """
    lead, (rows, columns) = shape[:-2], shape[-2:]
    rest = scale[len(lead) :] if scale[: len(lead)] == lead else scale
    if prod(rest) == 1:
        grid = (ceil(rows / hint[0]) if hint[0] else 1, ceil(columns / hint[1]) if hint[1] else 1)
        whole = all(hint) and grid == (1, 1) and hint[0] > 1
        return Cutting(*hint) if whole else Cutting(1, 0) if rows == 1 and rest else Cutting(0, 0)
    if len(rest) == 4 and rest[1] == rest[3] == 1:  # ModelOpt keeps the axes of its blocks
        rest = (rest[0], rest[2])
    if len(rest) == 1:
        rest = (rest[0], 1)
    if len(rest) != 2:
        return None
    down, across = rest[::-1] if transposed and 1 not in scale[len(lead) + 1 :] else rest
    if transposed and rest[0] == 1:
        down, across = rest[1], 1
    each_row = 1 if down == rows else 0 if down == 1 and not hint[0] else _size(rows, down, hint[0])
    each_column = 0 if across == 1 and not hint[1] else _size(columns, across, hint[1])
    if each_row is None or each_column is None:
        return None
    return Cutting(each_row, each_column)


def _size(of: int, count: int, hint: int) -> int | None:
    """Elements of a block, of which ``count`` cover ``of``."""
    if count == 1 and hint and ceil(of / hint) != 1:
        return 0
    for size in (hint, *_USUAL):
        if size and ceil(of / size) == count:
            return size
    return of // count if count and of % count == 0 else None
