"""The census of whole numbers of 16 to 64 bits: indices, packed codes, counters. Counts alone, no destinations."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.checkpoints import counted
from narrowgauge.checkpoints.counted import FIRST, Census, Seen


class IntegerTally:
    """Counts what it is shown of a tensor. Pieces come in order."""

    def __init__(self, name: str, dtype: np.dtype[Any]) -> None:
        self.name = name
        self.dtype = dtype
        self.elements = self.zeros = self.negative = self.amax = 0
        self.least: float = np.inf
        self.seen: dict[str, Seen] = {}

    def add(self, piece: npt.NDArray[np.uint8], first: int) -> None:
        """One piece: its bytes, and the place of its first element among all of the tensor."""
        numbers = piece.view(self.dtype)
        low, high = int(numbers.min()), int(numbers.max())
        self.elements += numbers.size
        self.zeros += numbers.size - counted.number(numbers)
        self.amax = max(self.amax, high, -low)
        if low < 0:
            self._below_zero(numbers, first)
        self.least = min(self.least, _least(numbers, low, high))

    def _below_zero(self, numbers: npt.NDArray[Any], first: int) -> None:
        mask = numbers < 0
        self.negative += counted.number(mask)
        found = np.flatnonzero(mask)[: FIRST - len(self.seen.get(counted.NEGATIVE, ()))]
        places = tuple(zip((found + first).tolist(), numbers[found].tolist(), strict=True))
        self.seen = counted.merged(self.seen, {counted.NEGATIVE: places})

    def result(self, shape: tuple[int, ...]) -> Census:
        """What has been counted."""
        return Census(
            self.name, shape, elements=self.elements, zeros=self.zeros, negative=self.negative, amax=self.amax,
            least=self.least, seen=self.seen,
        )  # fmt: skip


def _least(numbers: npt.NDArray[Any], low: int, high: int) -> float:
    """The smallest magnitude that is not zero; infinity without one."""
    if low > 0 or high < 0:
        return low if low > 0 else -high
    # the magnitude of two's complement's lowest number is right when read as unsigned; zero becomes the largest
    unsigned = np.dtype(f"<u{numbers.dtype.itemsize}")
    above = int((np.abs(numbers).view(unsigned) - unsigned.type(1)).min()) + 1
    return above if above <= max(high, -low) else np.inf
