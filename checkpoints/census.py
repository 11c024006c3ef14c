"""The numbers in one tensor, in one pass over its bytes, exact."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from narrowgauge.checkpoints.counted import Census
from narrowgauge.checkpoints.landing import DESTINATIONS
from narrowgauge.checkpoints.model import Stored
from narrowgauge.checkpoints.reading import pieces
from narrowgauge.checkpoints.tally_codes import CodeTally
from narrowgauge.checkpoints.tally_floats import FloatTally
from narrowgauge.checkpoints.tally_integers import IntegerTally
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import FORMATS

#: bytes that are looked at together: with what is computed of them they stay in a core's cache
PIECE = 3 << 17
#: of codes of at most 8 bits, where each piece costs a look at what is watched
CODES_PIECE = 1 << 20
#: bytes of a tensor of 16 bits or more up to which signs are counted, which costs a fourth of the time: scales,
#: variances and norms are smaller, and of large weights half are negative
SIGNED = 1 << 24
#: integer types without a name in ``FORMATS``, in the words of the kinds of files
INTEGERS: Mapping[str, str] = {
    "BOOL": "uint8", "bool": "uint8", "I16": "int16", "int16": "int16", "U16": "uint16", "uint16": "uint16",
    "U32": "uint32", "uint32": "uint32", "I64": "int64", "int64": "int64", "U64": "uint64", "uint64": "uint64",
}  # fmt: skip

Tally = FloatTally | CodeTally | IntegerTally


def countable(tensor: Stored) -> bool:
    """Whether a census can be taken: GGUF's blocks, complex numbers and 6-bit codes are not looked into."""
    return bool(tensor.format) or tensor.dtype in INTEGERS


def take_census(tensor: Stored, into: Iterable[str] = DESTINATIONS, exactness: bool = False) -> Census:
    """Count what a tensor holds, and what becomes of it in some destinations.

    ``exactness``: count, too, how many numbers of 16 bits or more become others in a destination, which costs about as
    much again; without it that count is None, unless the largest and least magnitude say that it is 0. So is that of
    negative numbers in tensors of more than ``SIGNED`` bytes.

    Raises ``BadInput`` for types that are not ``countable``, for a destination that is none, and as ``pieces`` does.
    """
    return census_of_run(tensor, 0, tensor.size, into, exactness)


def census_of_run(
    tensor: Stored, skip: int, size: int, into: Iterable[str] = DESTINATIONS, exactness: bool = False
) -> Census:
    """The same of ``size`` bytes after the first ``skip``, whole elements: censuses of runs in order add up.

    Places are those in the whole tensor.
    """
    tally = _tally(tensor, into, exactness, size)
    width = FORMATS[tensor.format].bits if tensor.format else 8 * np.dtype(INTEGERS[tensor.dtype]).itemsize
    first = skip * 8 // width
    length = CODES_PIECE if isinstance(tally, CodeTally) else PIECE
    for piece in pieces(replace(tensor, start=tensor.start + skip, size=size), length):
        tally.add(piece, first)
        first += piece.size * 8 // width
    return tally.result(tensor.shape)


def _tally(tensor: Stored, into: Iterable[str], exactness: bool, size: int) -> Tally:
    if not countable(tensor):
        raise BadInput(f"{tensor.path}: tensor {tensor.name!r} is {tensor.dtype}, whose numbers are not looked into")
    if not tensor.format:
        name = INTEGERS[tensor.dtype]
        return IntegerTally(name, np.dtype(name).newbyteorder("<"))
    fmt = FORMATS[tensor.format]
    if fmt.bits <= 8:
        return CodeTally(fmt, into)
    if fmt.family == "integer":
        return IntegerTally(fmt.name, np.dtype(fmt.name).newbyteorder("<"))
    longest = min(PIECE, size) // fmt.storage.itemsize
    return FloatTally(fmt, into, longest, exactness or tensor.size <= SIGNED, exactness)
