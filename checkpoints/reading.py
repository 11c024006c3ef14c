"""The bytes of tensors, in pieces of one reused buffer: memory does not grow with the file, as that of a map does."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from narrowgauge.checkpoints.dtypes import UNITS
from narrowgauge.checkpoints.model import Stored
from narrowgauge.checkpoints.source import Source, short
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import FORMATS

#: bytes that are read at once; they stay in a core's cache until they are looked at
PIECE = 1 << 22

Bytes = npt.NDArray[np.uint8]


def pieces(tensor: Stored, size: int = 0) -> Iterator[Bytes]:
    """The bytes of a tensor, at most ``size`` (or ``PIECE``) at a time, in whole elements (of GGUF, whole blocks).

    What is given is one buffer, which the next step fills anew. Raises ``BadInput`` where the file does not give them.
    """
    unit = UNITS[tensor.dtype].bytes
    yield from _from(tensor, 0, tensor.size, max(1, (size or PIECE) // unit) * unit)


def whole(tensor: Stored) -> Bytes:
    """All bytes of a small tensor, in an array of its own. Raises as ``pieces`` does."""
    buffer = np.empty(tensor.size, np.uint8)
    with Source(tensor.path) as source:
        source.into(tensor.start, buffer.data, f"tensor {short(tensor.name)}")
    return buffer


def elements(tensor: Stored, size: int = 0) -> Iterator[Coded]:
    """The codes of a tensor of a known format, flat, in pieces; valid until the next step.

    Raises ``BadInput`` where the format is not known, and as ``pieces`` does.
    """
    _refuse_unknown(tensor)
    for piece in pieces(tensor, size):
        yield _coded(tensor, piece)


def all_elements(tensor: Stored) -> Coded:
    """The codes of a small tensor of a known format, flat. Raises as ``elements`` does."""
    _refuse_unknown(tensor)
    return _coded(tensor, whole(tensor))


def rows(tensor: Stored, first: int = 0, count: int | None = None, size: int = 0) -> Iterator[Coded]:
    """Codes [rows, columns] of a tensor, from row ``first`` on, so many in all, in pieces; the later axes are columns.

    Each is valid until the next step. Raises ``BadInput`` for rows that it has not, and as ``elements`` does.
    """
    _refuse_unknown(tensor)
    having = tensor.shape[0] if tensor.shape else 1
    count = having - first if count is None else count
    if not 0 <= first <= first + count <= having:
        raise BadInput(
            f"{tensor.path}: tensor {short(tensor.name)} has {having:,} rows; asked for {count} from {first} on"
        )
    columns, unit = math.prod(tensor.shape[1:]), UNITS[tensor.dtype]
    if columns % unit.elements:
        raise BadInput(f"{tensor.path}: rows of tensor {short(tensor.name)} {list(tensor.shape)} end within a byte")
    each = columns // unit.elements * unit.bytes
    if not each:
        yield Coded(tensor.format, np.empty((count, 0), FORMATS[tensor.format].storage))
        return
    for piece in _from(tensor, first * each, count * each, max(1, (size or PIECE) // each) * each):
        yield Coded(tensor.format, _coded(tensor, piece).data.reshape(-1, columns))


def _from(tensor: Stored, skip: int, count: int, each: int) -> Iterator[Bytes]:
    """So many bytes of a tensor after the first ``skip``, ``each`` at a time."""
    buffer = np.empty(min(each, count), np.uint8)
    what = f"tensor {short(tensor.name)}"
    with Source(tensor.path) as source:
        for done in range(0, count, each):
            piece = buffer[: min(each, count - done)]
            source.into(tensor.start + skip + done, piece.data, what)
            yield piece


def _coded(tensor: Stored, piece: Bytes) -> Coded:
    fmt = FORMATS[tensor.format]
    if UNITS[tensor.dtype].elements == 1:
        return Coded(fmt.name, piece.view(fmt.storage))
    codes = np.empty(2 * piece.size, np.uint8)
    codes[0::2], codes[1::2] = piece & 15, piece >> 4
    return Coded(fmt.name, codes)


def _refuse_unknown(tensor: Stored) -> None:
    if not tensor.format:
        raise BadInput(
            f"{tensor.path}: tensor {short(tensor.name)} is {tensor.dtype}, whose elements have no known format"
        )
