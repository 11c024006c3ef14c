"""Pack codes into memory and read them back, by a layout's declaration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.layout import Layout
from narrowgauge.reference.layouts.mapping import (
    Array,
    grid,
    in_matrix_order,
    in_memory_order,
    runs,
    storage_shape,
)


@dataclass(frozen=True)
class PaddingCodes:
    """What memory holds beyond the matrix, one entry for each code of padding."""

    rows: Array  #: row number in the padded grid
    columns: Array  #: column number in the padded grid
    elements: Array  #: index into the flattened storage array of the element with the code's first bit
    codes: Array
    required: int | None  #: what they must be; None where the engine leaves them unwritten

    @property
    def wrong(self) -> Array:
        """A mask: which of them are not what they must be."""
        return np.zeros(len(self.codes), bool) if self.required is None else self.codes != self.required


@dataclass(frozen=True)
class Unpacked:
    """A matrix read from memory, and what stands in the padding."""

    codes: Array  #: [rows, columns], uint8, or uint32 for codes of 32 bits
    padding: PaddingCodes


def _code_dtype(layout: Layout) -> np.dtype[np.unsignedinteger]:
    return np.dtype(np.uint8 if layout.bits <= 8 else np.uint32)


def _checked_codes(codes: Array, layout: Layout) -> Array:
    where, dtype = f"pack, layout {layout.name!r}", _code_dtype(layout)
    if not isinstance(codes, np.ndarray) or codes.dtype != dtype:
        given = codes.dtype if isinstance(codes, np.ndarray) else type(codes).__name__
        raise BadInput(f"{where}: codes must be a NumPy array of {dtype}, not {given}; convert their bit patterns")
    if codes.ndim != 2:
        raise BadInput(f"{where}: codes must be [rows, columns], not of shape {codes.shape}; pack one matrix at a time")
    beyond = np.argwhere(codes >> (layout.bits - 1) > 1)
    if len(beyond):
        row, column = (int(i) for i in beyond[0])
        raise BadInput(
            f"{where}: code {int(codes[row, column])} at row {row}, column {column} has more than {layout.bits} bits; "
            f"give one code in each element, from 0 to {(1 << layout.bits) - 1}"
        )
    return codes


def pack_grid(codes: Array, layout: Layout) -> Array:
    """The words of a whole padded grid as bytes in address order. Nothing is checked."""
    slots = in_memory_order(codes, layout)
    words = np.zeros((len(slots), layout.word_bytes), np.uint8)
    for slot, places in enumerate(layout.word):
        for run in runs(places):
            part = (slots[:, slot] >> run.low).astype(np.uint8) & np.uint8((1 << run.width) - 1)
            words[:, run.byte] |= part << np.uint8(run.bit)
    return words.reshape(-1)


def unpack_grid(memory: Array, layout: Layout, shape: tuple[int, int]) -> Array:
    """The codes of a whole padded grid of ``shape``, from bytes in address order. Nothing is checked."""
    words = memory.reshape(-1, layout.word_bytes)
    slots = np.zeros((len(words), len(layout.word)), _code_dtype(layout))
    for slot, places in enumerate(layout.word):
        for run in runs(places):
            part = (words[:, run.byte] >> np.uint8(run.bit)) & np.uint8((1 << run.width) - 1)
            slots[:, slot] |= part.astype(slots.dtype) << run.low
    return in_matrix_order(slots, layout, shape)


def pack(codes: Array, layout: Layout) -> Array:
    """The memory image of ``codes`` [rows, columns], of shape ``storage_shape``, padding 0.

    Codes are bit patterns, one an element: uint8, or uint32 for layouts of 32-bit scales. Raises ``BadInput`` for
    another dtype or shape, for a code of too many bits, and for sizes that a layout without padding cannot hold.
    """
    rows, columns = _checked_codes(codes, layout).shape
    padded = np.zeros(grid(layout, rows, columns), codes.dtype)
    padded[:rows, :columns] = codes
    memory = pack_grid(padded, layout).view(np.dtype(layout.storage_dtype).newbyteorder("<"))
    return memory.astype(layout.storage_dtype, copy=False).reshape(storage_shape(layout, rows, columns))


def memory_of(storage: Array, layout: Layout, rows: int, columns: int) -> Array:
    """The bytes of a storage array in address order, after the checks that ``unpack`` promises."""
    where, shape = f"unpack, layout {layout.name!r}", storage_shape(layout, rows, columns)
    whole = isinstance(storage, np.ndarray) and storage.dtype.kind in "iu"
    if not whole or storage.dtype.itemsize != layout.element_bytes:
        given = storage.dtype if isinstance(storage, np.ndarray) else type(storage).__name__
        raise BadInput(f"{where}: storage must be a NumPy array of {layout.storage_dtype}, not {given}; view its bits")
    if storage.shape not in (shape, (int(np.prod(shape)),)):
        raise BadInput(
            f"{where}: a matrix of {rows} rows and {columns} columns is stored as {shape}, not {storage.shape}; "
            "give the memory in address order, in that shape or flat (for a strided tensor, the memory beneath it)"
        )
    return np.ascontiguousarray(storage).astype(storage.dtype.newbyteorder("<"), copy=False).reshape(-1).view(np.uint8)


def unpack(storage: Array, layout: Layout, rows: int, columns: int) -> Unpacked:
    """The matrix [rows, columns] in ``storage``, and its padding.

    ``storage`` is the memory image, of shape ``storage_shape`` or flat (engines view the same bytes in several shapes);
    the sign of its dtype does not matter, its width does. Raises ``BadInput`` for another dtype or shape.
    """
    memory = memory_of(storage, layout, rows, columns)
    shape = grid(layout, rows, columns)
    codes = unpack_grid(memory, layout, shape)
    outside = np.ones(shape, bool)
    outside[:rows, :columns] = False
    at_rows, at_columns = np.nonzero(outside)
    elements = element_indices(layout, rows, columns)[outside] if len(at_rows) else np.zeros(0, np.int64)
    required = 0 if layout.padding == "zero" else None
    padding = PaddingCodes(at_rows, at_columns, elements, codes[outside], required)
    return Unpacked(np.ascontiguousarray(codes[:rows, :columns]), padding)


def element_indices(layout: Layout, rows: int, columns: int) -> Array:
    """For each code of the padded grid, the index into the flattened storage array of the element with its bit 0."""
    shape = grid(layout, rows, columns)
    first = np.array([places[0] // 8 for places in layout.word])
    words = np.arange(shape[0] * shape[1] // len(layout.word), dtype=np.int64)[:, None]
    return in_matrix_order((words * layout.word_bytes + first) // layout.element_bytes, layout, shape)
