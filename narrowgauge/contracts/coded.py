"""The only thing that crosses a process, a device or a file: codes with the name of their format."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.formats import Codes, format_named


@dataclass(frozen=True, eq=False)
class Coded:
    """A tensor as codes: ``data`` is an array of any shape in ``format``'s unsigned storage type.

    A buffer that a kernel returned may break that promise (a wider type, numbers that are no codes); it is then
    held as it came, and the judge says so. ``well_formed`` tells the two apart.
    """

    format: str
    data: npt.NDArray[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    @property
    def well_formed(self) -> bool:
        """Whether every element is a code of the format, in its storage type."""
        fmt = format_named(self.format)
        if self.data.dtype != fmt.storage:
            return False
        return fmt.bits == 8 * fmt.storage.itemsize or not bool((self.data >= fmt.code_count).any())

    @property
    def codes(self) -> Codes:
        """The data, for a caller that knows it is well formed."""
        assert self.data.dtype == format_named(self.format).storage
        return self.data

    def take(self, rows: npt.NDArray[np.intp]) -> Coded:
        """The same tensor cut to those rows (of its first axis)."""
        return Coded(self.format, self.data[rows])

    def digest(self) -> str:
        """sha256 over format, shape and bytes: two buffers with one digest are the same codes."""
        return digest({"": self})


@dataclass(frozen=True, eq=False)
class Input(Coded):
    """What a kernel is called with: its tensor, and what it is given beside it (a static scale, a zero point)."""

    given: Mapping[str, Coded] = field(default_factory=dict)

    def take(self, rows: npt.NDArray[np.intp]) -> Input:
        """Cut to those rows, and with them what is given for each row."""
        count = self.shape[0]
        kept = {n: v.take(rows) if count > 1 and v.shape[:1] == (count,) else v for n, v in self.given.items()}
        return Input(self.format, self.data[rows], kept)

    def digest(self) -> str:
        return digest({"": Coded(self.format, self.data), **self.given})


def given_with(x: Coded) -> Mapping[str, Coded]:
    """What comes beside a tensor, by name; nothing beside a plain one."""
    return x.given if isinstance(x, Input) else {}


def digest(buffers: Mapping[str, Coded]) -> str:
    """sha256 over names, formats, shapes and bytes of several buffers, independent of their order."""
    total = hashlib.sha256()
    for name in sorted(buffers):
        buffer = buffers[name]
        head = f"{name}\0{buffer.format}\0{buffer.data.dtype.str}\0{buffer.shape}\0"
        total.update(head.encode())
        total.update(np.ascontiguousarray(buffer.data).tobytes())
    return total.hexdigest()
