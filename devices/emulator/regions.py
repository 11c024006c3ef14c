"""Memory that a kernel may touch, and what is said of an access that goes wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
#: the lanes that take part; None stands for all
Active = npt.NDArray[np.bool_] | None
UNSIGNED: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.uint16),
    4: np.dtype(np.uint32),
    8: np.dtype(np.uint64),
}


class Fault(Exception):
    """What a kernel did that hardware would punish, or let pass in silence. Says what, and at which address."""


@dataclass(frozen=True)
class Region:
    """Bytes that a kernel may touch. ``data`` is one-dimensional uint8 and shares the tensor's memory."""

    name: str
    address: int
    data: npt.NDArray[np.uint8]
    #: which bytes anybody wrote [len(data)]; None where that is not known
    written: npt.NDArray[np.bool_] | None = None

    def words(self, width: int) -> Array:
        """The same memory as unsigned words."""
        return self.data[: len(self.data) // width * width].view(UNSIGNED[width])

    def place(self, index: int, width: int) -> str:
        """The place of a word, for a message."""
        return f"{self.address + int(index) * width:#x}, byte {int(index) * width} of {self.name}"

    def __str__(self) -> str:
        return f"{self.name} ({len(self.data)} bytes at {self.address:#x})"
