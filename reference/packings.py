"""How one buffer stands in memory: a layout, perhaps of the transposed matrix, perhaps by a convention for zeros."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.layout import Layout, ZeroPoints
from narrowgauge.reference.layouts import (
    layout_named,
    pack,
    storage_shape,
    stored_zeros,
    unpack,
    zero_points_named,
    zeros_of,
)

#: written behind a layout: the matrix is packed as its transpose; a convention for zero points
TRANSPOSED, CONVENTION = "^T", "~"


@dataclass(frozen=True)
class Packing:
    """How one buffer stands in memory: ``LAYOUT``, ``LAYOUT^T``, ``LAYOUT~ZERO_POINTS`` or ``LAYOUT^T~ZERO_POINTS``."""

    layout: Layout
    transposed: bool
    zeros: ZeroPoints | None

    def pack(self, value: Coded) -> Coded:
        """The memory image, in the format of its elements. Raises ``BadInput`` for what has no place in the layout."""
        matrix = self._turned(value.data)
        if self.zeros is not None:
            codes = stored_zeros(matrix.view(np.int32), self.zeros)
        else:
            codes = matrix.astype(np.uint8 if self.layout.bits <= 8 else np.uint32)
        memory = pack(np.ascontiguousarray(codes), self.layout)
        return Coded(self.element, memory.view(format_named(self.element).storage))

    def unpack(self, memory: Coded, like: Coded) -> tuple[Coded, list[str]]:
        """The matrix of the shape and format of ``like``, and what is wrong with the padding.

        Raises ``BadInput`` for a buffer of another size or width.
        """
        rows, columns = self._turned(like.data).shape
        found = unpack(memory.data, self.layout, rows, columns)
        codes: npt.NDArray[np.generic] = found.codes
        if self.zeros is not None:
            codes = zeros_of(found.codes, self.zeros).astype(np.int32).view(np.uint32)
        wrong = [int(i) for i in found.padding.elements[found.padding.wrong][:1]]
        said = [
            f"padding: {np.count_nonzero(found.padding.wrong)} of {found.padding.wrong.size} codes of padding are not "
            f"{found.padding.required}, first in element {place} of the memory of layout {self.layout.name}"
            for place in wrong
        ]
        storage = format_named(like.format).storage
        return Coded(like.format, np.ascontiguousarray(self._turned(codes).astype(storage))), said

    def check(self, whose: str, name: str, format_name: str) -> None:
        """Raise ``BadInput`` where this is no packing of a buffer of that name and format."""
        if (name == "zero_point") != (self.zeros is not None):
            raise BadInput(
                f"{whose}: layout {self.layout.name!r} of {name}: zero points, and they alone, are stored by a "
                "convention, as in gptq_zeros_4bit~gptq_v1_4bit"
            )
        bits = self.zeros.bits if self.zeros else format_named(format_name).bits
        if self.layout.bits != bits:
            raise BadInput(
                f"{whose}: layout {self.layout.name!r} holds codes of {self.layout.bits} bits; {name} is "
                f"{format_name}, of {bits}"
            )

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Raise ``BadInput`` for a matrix that has no place in the layout."""
        storage_shape(self.layout, *(shape[::-1] if self.transposed else shape))

    @property
    def element(self) -> str:
        """The format whose storage one element of the image is."""
        return "uint8" if self.layout.element_bytes == 1 else "int32"

    def _turned(self, matrix: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        return matrix.T if self.transposed else matrix


def packing_named(text: str) -> Packing:
    """The packing that is written so. Raises ``BadInput`` with near names."""
    name, _, convention = text.partition(CONVENTION)
    turned = name.endswith(TRANSPOSED)
    layout = layout_named(name.removesuffix(TRANSPOSED))
    zeros = zero_points_named(convention) if convention else None
    return Packing(layout, turned, zeros)
