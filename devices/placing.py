"""Put a tensor where a kernel is to find it: alone, or as a strided view of memory that it must not look at.

Around a view stand NaN and large numbers by turns: whichever of the two a kernel's amax drops, the other shows. Runs in
the child.
"""

from __future__ import annotations

import mmap
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import Format, format_named
from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.contracts.views import Place, View, place

#: Linux has had it long before Python named it
_NORESERVE = 0x4000 if sys.platform == "linux" else 0


@dataclass(frozen=True)
class Placed:
    """Codes in memory that a kernel may write to. ``at`` is None where the memory is the tensor itself."""

    x: Coded  #: what was put there
    memory: npt.NDArray[Any]
    at: Place | None = None

    @property
    def watched(self) -> bool:
        """Whether there is something left to compare the memory with."""
        return self.memory is not self.x.data

    def array(self, memory: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The tensor in its memory, looked at as any type of the same width."""
        if self.at is None:
            return memory
        strides = tuple(s * memory.itemsize for s in self.at.strides)
        return np.lib.stride_tricks.as_strided(memory[self.at.offset :], self.x.shape, strides)

    def tensor(self, memory: Any) -> Any:
        """The same of a torch tensor."""
        if self.at is None:
            return memory
        return memory.as_strided(self.x.shape, self.at.strides, self.at.offset)

    def changes(self, name: str, found: npt.NDArray[Any]) -> list[str]:
        """What a kernel did to the tensor that it was given, in words; ``found`` are its codes afterwards."""
        changed = found != self.x.data
        if not changed.any():
            return []
        first = [int(i) for i in np.argwhere(changed)[0]]
        return [f"input modified: {np.count_nonzero(changed)} of {changed.size} elements of {name}, first at {first}"]


def placed(x: Coded, view: View = "contiguous") -> Placed:
    """A copy of x in memory of its own. Raises ``NotExecuted`` where there is not as much memory as the view takes."""
    if view == "contiguous":
        return Placed(x, x.data.copy())
    at = place(view, x.shape)
    if at.filled:
        memory = np.resize(np.array(around(format_named(x.format)), x.data.dtype), at.size)
    else:
        memory = _untouched(at.size, x.data.dtype)
    result = Placed(x, memory, at)
    result.array(memory)[...] = x.data
    return result


def _untouched(size: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Zeros that take no memory where nobody touches them. Raises ``NotExecuted`` where there is no room for them."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", _NORESERVE)
    try:
        return np.frombuffer(mmap.mmap(-1, max(size, 1) * dtype.itemsize, flags=flags), dtype)[:size]
    except OSError as error:
        raise NotExecuted(f"no address space for {size} elements: {error}") from error


def around(fmt: Format) -> tuple[int, int]:
    """Codes of NaN and of the largest number, in a format that has infinities; in others, two codes far apart."""
    infinity = ((1 << fmt.exponent) - 1) << fmt.mantissa
    return (infinity - 1, fmt.code_count - 1) if fmt.family == "ieee" else ((fmt.code_count >> 1) - 1, 0)
