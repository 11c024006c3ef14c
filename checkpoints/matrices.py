"""Rows and columns of the matrices within a tensor [.., rows, columns], read from the file as they are needed."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from narrowgauge.checkpoints.model import Stored
from narrowgauge.checkpoints.source import Source

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Matrices:
    """A tensor as ``count`` matrices of ``rows`` rows of ``width`` bytes, in an open file."""

    tensor: Stored
    source: Source
    count: int
    rows: int

    @property
    def width(self) -> int:
        return self.tensor.size // max(1, self.count * self.rows)

    def band(self, which: int, first: int, count: int) -> Bytes:
        """[count, bytes]: neighbouring rows of a matrix."""
        found = np.empty((count, self.width), np.uint8)
        start = self.tensor.start + (which * self.rows + first) * self.width
        if found.size:
            self.source.into(start, found.reshape(-1).data, f"tensor {self.tensor.name!r}")
        return found

    def strip(self, which: int, first: int, count: int) -> Bytes:
        """[rows, count]: neighbouring bytes of every row of a matrix. One read for each row."""
        if count == self.width:
            return self.band(which, 0, self.rows)
        found = np.empty((self.rows, count), np.uint8)
        start = self.tensor.start + which * self.rows * self.width + first
        what = f"tensor {self.tensor.name!r}"
        for row in range(self.rows):
            self.source.into(start + row * self.width, found[row].data, what)
        return found


def matrices(tensor: Stored, source: Source, lead: int) -> Matrices:
    """The tensor as matrices: its first ``lead`` axes number them, the next one is that of rows. A vector is a row."""
    rows = tensor.shape[lead] if len(tensor.shape) > lead + 1 else 1
    return Matrices(tensor, source, prod(tensor.shape[:lead]), rows)
