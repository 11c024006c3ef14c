"""Between the matrices of a cache, [slots, columns], and the buffers in which engines keep them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.cache import Buffer, Cache, Field
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.layout import Layout, dense, digits
from narrowgauge.reference.layouts import pack, storage_shape, unpack

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Shared:
    """How the numbers of two matrices share one: the second one in the lowest bits of the first."""

    bits: int

    def kept(self, first: Coded) -> Coded:
        """What is left of the first: its other bits."""
        return Coded(first.format, first.data & ~first.data.dtype.type((1 << self.bits) - 1))

    def joined(self, first: Coded, second: Coded) -> Coded:
        """One number of both. Raises ``BadInput`` where they do not fit."""
        beyond = second.data >> second.data.dtype.type(self.bits)
        if beyond.any() or (first.data != self.kept(first).data).any():
            raise BadInput(
                f"a {second.format} shares the lowest {self.bits} bits of a {first.format}; expected it below "
                f"{1 << self.bits}, and these bits free"
            )
        return Coded(first.format, first.data | second.data.astype(first.data.dtype))

    def fitting(self, second: Coded) -> Coded:
        """What of the second has room."""
        return Coded(second.format, second.data & second.data.dtype.type((1 << self.bits) - 1))

    def parted(self, both: Coded, second: str) -> tuple[Coded, Coded]:
        """The inverse: the first, and the second in its own format."""
        low = self.fitting(both).data
        return self.kept(both), Coded(second, low.astype(format_named(second).storage))


#: vLLM's zero point in the scale of a head, int4_per_token_head.py:141-146
SHARED: dict[str, Shared] = {"low_mantissa": Shared(4)}


def storable(cache: Cache, name: str, value: Coded) -> Coded:
    """What a cache keeps of a matrix of that name: all, but of numbers that share their bits."""
    for field in (f for buffer in cache.buffers for f in buffer.fields if f.shares):
        if name == field.of:
            return SHARED[field.encode].kept(value)
        if name == field.shares:
            return SHARED[field.encode].fitting(value)
    return value


@dataclass(frozen=True)
class Sizes:
    """How a call's tokens and pages are cut."""

    heads: int  #: of keys and values
    block: int  #: slots of a page


@dataclass(frozen=True)
class Matrix:
    """What a field holds: its format, and how many rows, columns and heads it has."""

    format: str
    rows: int
    columns: int
    heads: int

    @property
    def like(self) -> Coded:
        """Zeros of that form."""
        return Coded(self.format, np.zeros((self.rows, self.columns), format_named(self.format).storage))


def layout_of(field: Field, matrix: Matrix, block: int) -> Layout:
    """Where the codes of a matrix stand, as a layout for these sizes. Raises ``BadInput`` where they do not divide."""
    fmt = format_named(matrix.format)
    width = matrix.columns // max(matrix.heads, 1)
    sizes = {"block": block, "width": width, "vector": max(1, 128 // fmt.bits)}
    rows, columns = (_sized(field, spelled, sizes) for spelled in (field.rows, field.columns))
    inside = math.prod(d.size or 0 for d in (*digits(rows), *digits(columns)) if d.name in field.slots.split())
    return Layout(
        name=field.of, holds="codes", bits=fmt.bits, rows=rows, columns=columns, storage=field.storage,
        word=dense(fmt.bits, inside if field.slots else 1), padding="refused", users=(), source="", slots=field.slots,
    )  # fmt: skip


def _sized(field: Field, spelled: str, sizes: Mapping[str, int]) -> str:
    """Digits with numbers for the names of sizes: ``c:width/vector`` becomes ``c:8``."""
    done = []
    for part in spelled.split():
        name, colon, size = part.partition(":")
        top, slash, bottom = size.partition("/")
        if not colon:
            done.append(name)
            continue
        upper = sizes.get(top, 0) or int(top)
        lower = (sizes.get(bottom, 0) or int(bottom)) if slash else 1
        if upper % lower or upper < lower:
            raise BadInput(f"{field.of}: {part} with {top} = {upper}; expected a multiple of {lower}")
        done.append(f"{name}:{upper // lower}")
    return " ".join(done)


def shape_of(buffer: Buffer, matrices: Mapping[str, Matrix], block: int) -> tuple[int, ...]:
    """The shape of a buffer, in elements of ``element_of``."""
    first = matrices[buffer.fields[0].of]
    each = format_named(element_of(buffer, matrices)).storage.itemsize
    if len(buffer.fields) > 1:
        pages = first.rows // block
        total = sum(_bytes(field, matrices[field.of]) for field in buffer.fields) // each
        if buffer.per == "page":
            return (pages, block * total)
        return (pages, block, total) if "o:block" in buffer.fields[0].rows else (first.rows, total)
    shape = storage_shape(layout_of(buffer.fields[0], first, block), first.rows, first.columns)
    return (*shape[:-1], shape[-1] // each)


def _bytes(field: Field, matrix: Matrix) -> int:
    """Of one row."""
    return matrix.columns * format_named(matrix.format).bits // 8


def element_of(buffer: Buffer, matrices: Mapping[str, Matrix]) -> str:
    """The format of one element of a buffer: that of its codes, or bytes where it is packed or holds several."""
    formats = {matrices[field.of].format for field in buffer.fields}
    if buffer.element:
        return buffer.element
    return "uint8" if len(formats) > 1 or any(field.slots for field in buffer.fields) else formats.pop()


def image(buffer: Buffer, held: Mapping[str, Coded], matrices: Mapping[str, Matrix], block: int) -> Coded:
    """The buffer that holds these matrices."""
    columns = []
    for field in buffer.fields:
        matrix, value = matrices[field.of], held[field.of]
        if field.shares:
            value = SHARED[field.encode].joined(value, held[field.shares])
        codes = value.data.astype(np.uint8 if format_named(matrix.format).bits <= 8 else np.uint32)
        columns.append(_units(pack(codes, layout_of(field, matrix, block)), buffer, matrix, block))
    whole = columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)
    element = element_of(buffer, matrices)
    flat = np.ascontiguousarray(whole).reshape(-1).view(format_named(element).storage)
    return Coded(element, flat.reshape(shape_of(buffer, matrices, block)))


def _units(memory: npt.NDArray[np.generic], buffer: Buffer, matrix: Matrix, block: int) -> Bytes:
    """A field's bytes, one row for each token or page."""
    units = matrix.rows if buffer.per == "token" else matrix.rows // block
    return np.ascontiguousarray(memory).view(np.uint8).reshape(units, memory.size // max(units, 1))


def matrices_in(buffer: Buffer, found: Coded, matrices: Mapping[str, Matrix], block: int) -> dict[str, Coded]:
    """The inverse of ``image``. Raises ``BadInput`` for a buffer of another format, shape or storage."""
    shape, element = shape_of(buffer, matrices, block), element_of(buffer, matrices)
    storage = format_named(element).storage
    if found.format != element:
        raise BadInput(f"it is {found.format}; expected {element}")
    if found.shape != shape or found.data.dtype != storage:
        raise BadInput(f"{found.data.dtype} {list(found.shape)}; expected {storage} {list(shape)}")
    first = matrices[buffer.fields[0].of]
    units = first.rows if buffer.per == "token" else first.rows // block
    rest = np.ascontiguousarray(found.data).reshape(-1).view(np.uint8).reshape(units, -1)
    result, start = {}, 0
    for field in buffer.fields:
        matrix = matrices[field.of]
        count = _bytes(field, matrix) * (1 if buffer.per == "token" else block)
        layout = layout_of(field, matrix, block)
        memory = np.ascontiguousarray(rest[:, start : start + count]).reshape(-1)
        codes = unpack(memory, layout, matrix.rows, matrix.columns).codes
        value = Coded(matrix.format, codes.astype(format_named(matrix.format).storage))
        if field.shares:
            value, result[field.shares] = SHARED[field.encode].parted(value, matrices[field.shares].format)
        result[field.of] = value
        start += count
    return result
