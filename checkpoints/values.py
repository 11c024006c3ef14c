"""What the bytes of a quantized weight stand for, in pieces: float64, exact but for one rounding of a division."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.checkpoints.blocks import BLOCKS
from narrowgauge.checkpoints.fitting import zeros_shape
from narrowgauge.checkpoints.matrices import Matrices, matrices
from narrowgauge.checkpoints.model import Stored
from narrowgauge.checkpoints.numbers import has_numbers, numbers, part_numbers
from narrowgauge.checkpoints.passports import Passport
from narrowgauge.checkpoints.reading import whole
from narrowgauge.checkpoints.source import Source
from narrowgauge.checkpoints.zero_points import packed_zeros
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.layouts import layout_named, unpack, zero_points_named

#: elements of a piece: some float64 arrays of that size are alive at once
PIECE = 1 << 20

Values = npt.NDArray[np.float64]
Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Rows:
    """Neighbouring rows of one matrix of a weight."""

    which: int  #: number of the matrix [N, K], of all before it
    first: int  #: row of the matrix
    values: Values  #: [rows, K]


@dataclass(frozen=True, eq=False)
class Raw:
    """The same before anything is multiplied: codes, and what belongs to each of their columns."""

    which: int
    first: int
    codes: Array  #: [rows, K] as unsigned integers
    decoded: Values  #: their values in the element's format
    scale: Values  #: [rows, K], or what broadcasts to it
    zeros: Values  #: the same; 0 without zero points
    second: float
    divides: bool
    order: npt.NDArray[np.int64] | None  #: the group of each column, where a tensor says it


def readable(passport: Passport) -> str:
    """Why the values of a weight cannot be read; "" where they can."""
    if passport.scheme.unread:
        return passport.scheme.unread
    if passport.scheme.block_size:
        size = passport.count // passport.scheme.block_size * passport.scheme.block_bytes
        whole_blocks = passport.shape[-1] % passport.scheme.block_size == 0 and size == passport.weight.size
        return "" if whole_blocks else f"its rows are no whole blocks of {passport.scheme.block_size}"
    missing = [part.role for part in passport.scheme.parts if part.needed and part.role not in passport.tensors]
    if missing:
        return f"no {missing[0]}"
    if passport.cutting is None:
        return "its scale does not divide it"
    for part in passport.scheme.parts:
        tensor = passport.tensors.get(part.role)
        if tensor is not None and tensor.dtype not in part.dtypes and part.role not in ("input", "second_input"):
            return f"its {part.role} is {tensor.dtype}"
    zeros = passport.tensors.get("zeros")
    if zeros is not None and passport.scheme.zeros:
        grid = passport.cutting.grid(*passport.shape[-2:])
        if zeros.shape != zeros_shape(grid, passport.scheme) or len(passport.shape) > 2:
            return f"its zero points have the shape {list(zeros.shape)}"
    lead = prod(passport.shape[:-2])
    second = passport.tensors.get("second")
    if second is not None and prod(second.shape) not in (1, lead):
        return f"a second scale of shape {list(second.shape)}"
    return ""


def rows(passport: Passport, size: int = PIECE) -> Iterator[Rows]:
    """The weight [.., N, K] row by row, ``size`` elements at a time.

    Raises ``BadInput`` for one of which ``readable`` gives a reason, and where the file does not give its bytes.
    """
    if passport.scheme.block_size and not readable(passport):
        yield from _of_blocks(passport, size)
        return
    for raw in raws(passport, size):
        yield Rows(raw.which, raw.first, combined(raw))


def combined(raw: Raw) -> Values:
    """(value - zero) scale second, or divided by the second."""
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        found = (raw.decoded - raw.zeros) * raw.scale
        return np.asarray(found / raw.second if raw.divides else found * raw.second)


def _steps(n: int, columns: int, size: int, each: int) -> Iterator[tuple[int, int]]:
    """First row and number of rows of each piece: a multiple of ``each``, but for the last."""
    band = max(1, size // max(1, columns) // each) * each
    for first in range(0, n, band):
        yield first, min(band, n - first)


def _of_blocks(passport: Passport, size: int) -> Iterator[Rows]:
    *lead, n, columns = passport.shape
    with Source(passport.weight.path) as source:
        for which in range(prod(lead)):
            for first, count in _steps(n, columns, size, 1):
                yield Rows(which, first, _from_blocks(passport, source, which, first, count))


def _from_blocks(passport: Passport, source: Source, which: int, first: int, count: int) -> Values:
    *lead, n, columns = passport.shape
    found = Matrices(passport.weight, source, prod(lead), n)
    bytes_ = found.band(which, first, count).reshape(-1, passport.scheme.block_bytes)
    with np.errstate(invalid="ignore", over="ignore"):
        return BLOCKS[passport.scheme.name](bytes_).reshape(count, columns)


def band(passport: Passport, which: int, first: int, count: int) -> Values:
    """float64 [count, K]: some rows of one matrix of a weight. Raises as ``rows`` does."""
    _refuse(passport)
    with ExitStack() as stack:
        if passport.scheme.block_size:
            source = stack.enter_context(Source(passport.weight.path))
            return _from_blocks(passport, source, which, first, count)
        codes = _Codes(passport, stack)
        start = first // codes.each * codes.each
        raw = _raw(passport, codes, _Beside(passport, stack), which, start, first + count - start)
        return combined(raw)[first - start :]


def _refuse(passport: Passport) -> None:
    if reason := readable(passport):
        raise BadInput(f"{passport.weight.path}: the values of {passport.weight.name!r} are not read: {reason}")


def raws(passport: Passport, size: int = PIECE, some: int = 0) -> Iterator[Raw]:
    """Codes and scales of a weight whose codes stand in a tensor of their own. Raises as ``rows`` does.

    ``some``: so many pieces at most, evenly spaced.
    """
    _refuse(passport)
    *lead, n, columns = passport.shape
    with ExitStack() as stack:
        beside = _Beside(passport, stack)
        codes = _Codes(passport, stack)
        every = [(which, *step) for which in range(prod(lead)) for step in _steps(n, columns, size, codes.each)]
        if some and len(every) > some:
            every = [every[number * len(every) // some] for number in range(some)]
        for which, first, count in every:
            yield _raw(passport, codes, beside, which, first, count)


def _raw(passport: Passport, codes: _Codes, beside: _Beside, which: int, first: int, count: int) -> Raw:
    found, element = codes.rows(which, first, count), FORMATS[passport.element]
    return Raw(
        which,
        first,
        found,
        decode_values(Coded(element.name, found.astype(element.storage, copy=False))),
        beside.spread("scale", which, first, count) / passport.scheme.divisor,
        beside.zeros(which, first, count),
        beside.second(which),
        beside.divides,
        beside.order,
    )


@dataclass
class _Codes:
    """The tensor of codes."""

    passport: Passport
    stack: ExitStack

    def __post_init__(self) -> None:
        scheme, tensor = self.passport.scheme, self.passport.weight
        lead = len(self.passport.shape) - 2
        self.layout = layout_named(scheme.packing) if scheme.packing else None
        self.count = self.layout.word_bytes * 8 // self.layout.bits if self.layout else 1
        source = self.stack.enter_context(Source(tensor.path))
        self.found = matrices(tensor, source, lead)
        #: rows of a piece that start on a whole word
        along = scheme.packed == "rows" if not scheme.transposed else scheme.packed == "columns"
        self.each = self.count if along else 1

    def rows(self, which: int, first: int, count: int) -> Array:
        """Codes [count, K] of rows of the weight."""
        scheme, columns = self.passport.scheme, self.passport.shape[-1]
        if scheme.transposed and self.layout is None:
            element = FORMATS[self.passport.element].storage
            return self.found.strip(which, first * element.itemsize, count * element.itemsize).view(element).T
        if scheme.transposed:
            width = self.found.width // self.passport.shape[-2] if scheme.packed == "rows" else 0
            start, size = (
                (first * width, count * width) if width else (first // self.each * 4, -(-count // self.each) * 4)
            )
            memory = self.found.strip(which, start, size)
            return self._unpacked(memory, columns, count).T
        if scheme.packed == "rows":
            memory = self.found.band(which, first // self.each, -(-count // self.each))
            return self._unpacked(np.ascontiguousarray(memory.T), columns, count).T
        return self._unpacked(self.found.band(which, first, count), count, columns)

    def _unpacked(self, memory: npt.NDArray[np.uint8], rows: int, columns: int) -> Array:
        if self.layout is None:
            return memory.view(FORMATS[self.passport.element].storage)
        if self.passport.scheme.packed == "rows" and not self.passport.scheme.transposed:
            columns = memory.shape[1] * self.count
        storage = memory.reshape(-1).view(self.layout.storage_dtype)
        return unpack(storage, self.layout, rows, columns).codes


@dataclass
class _Beside:
    """The tensors beside the codes."""

    passport: Passport
    stack: ExitStack
    kept: dict[tuple[str, int], Values] = field(default_factory=dict)

    def __post_init__(self) -> None:
        part = self.passport.scheme.part("second")
        self.divides = part.divides if part else False
        second = self.passport.tensors.get("second")
        self._second = numbers(second) if second is not None else np.ones(1)
        order = self.passport.tensors.get("order")
        self.order = self._order(order) if order is not None else None

    def _order(self, tensor: Stored) -> npt.NDArray[np.int64]:
        cutting = self.passport.cutting
        columns = self.passport.shape[-1]
        assert cutting is not None
        groups = cutting.grid(*self.passport.shape[-2:])[1]
        found = whole(tensor).view("<i4").astype(np.int64)
        if len(found) != columns or (len(found) and not 0 <= found.min() <= found.max() < groups):
            raise BadInput(
                f"{tensor.path}: tensor {tensor.name!r} does not number {groups} groups of {columns} columns"
            )
        return found

    def second(self, which: int) -> float:
        return float(self._second[which if len(self._second) > 1 else 0])

    def zeros(self, which: int, first: int, count: int) -> Values:
        convention = self.passport.scheme.zeros
        if "zeros" not in self.passport.tensors:
            constant = zero_points_named(convention).constant if convention else 0
            return np.full((1, 1), float(constant or 0))
        return self.spread("zeros", which, first, count)

    def spread(self, role: str, which: int, first: int, count: int) -> Values:
        """What belongs to rows of a weight, [count, K] or what broadcasts to it."""
        cutting, columns = self.passport.cutting, self.passport.shape[-1]
        assert cutting is not None
        if (role, which) not in self.kept:
            self.kept = {key: value for key, value in self.kept.items() if key[1] == which}
            self.kept[role, which] = self._grid(role, which)
        grid = self.kept[role, which]
        if cutting.rows and grid.shape[0] > 1:
            grid = grid[np.arange(first, first + count) // cutting.rows]
        if not cutting.columns or grid.shape[1] == 1:
            return grid
        return grid[:, self.order] if self.order is not None else grid.repeat(cutting.columns, axis=1)[:, :columns]

    def _grid(self, role: str, which: int) -> Values:
        """Scales, or zero points, of one matrix: [blocks down, blocks across]."""
        tensor, scheme, cutting = self.passport.tensors[role], self.passport.scheme, self.passport.cutting
        assert cutting is not None
        *lead, n, columns = self.passport.shape
        down, across = cutting.grid(n, columns)
        if role == "zeros" and scheme.zeros:
            return packed_zeros(tensor, scheme.zeros, scheme.transposed, down, across)
        part = scheme.part(role)
        coded = part_numbers(tensor, part.format if part else "", prod(lead), which, down * across)
        return coded.reshape(across, down).T if scheme.transposed else coded.reshape(down, across)


__all__ = ["PIECE", "Raw", "Rows", "Values", "band", "combined", "has_numbers", "numbers", "raws", "readable", "rows"]
