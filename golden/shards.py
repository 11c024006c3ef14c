"""The safetensors files of a model's folder, of which only headers are read, and of tensors only what is asked for."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import FORMATS

#: bytes of rows that are read at once, and of a header that is no mistake
PIECE, LONGEST_HEADER = 1 << 24, 1 << 28
_FORMAT_OF = {f.safetensors: f.name for f in FORMATS.values() if f.safetensors and f.bits in (8, 16, 32, 64)}


@dataclass(frozen=True)
class Place:
    """Where a tensor stands."""

    path: Path
    dtype: str  #: as the header has it
    shape: tuple[int, ...]
    start: int  #: in the file
    size: int  #: in bytes


class Shards:
    """Tensors of all safetensors files of a folder, or of one file, by name.

    Raises ``BadInput`` that names the file for one that is none, or a name that two files have.
    """

    def __init__(self, path: Path) -> None:
        files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
        if not files:
            raise BadInput(f"{path} holds no safetensors file")
        self.path = path
        self.places: dict[str, Place] = {}
        for file in files:
            for name, place in _header(file).items():
                if name in self.places:
                    raise BadInput(f"tensor {name!r} is in {self.places[name].path} and in {file}")
                self.places[name] = place

    def rows(self, name: str, first: int = 0, count: int | None = None) -> Iterator[Coded]:
        """Pieces [rows, columns] of a tensor of two axes or more (the later ones are columns), from row ``first`` on.

        Raises ``BadInput`` where it is missing, or its numbers are of no format that is known.
        """
        place = self._place(name)
        fmt = FORMATS[_FORMAT_OF[place.dtype]]
        columns = prod(place.shape[1:])
        count = place.shape[0] - first if count is None else count
        each = max(1, PIECE // max(1, columns * fmt.storage.itemsize))
        with open(place.path, "rb") as file:
            for row in range(first, first + count, each):
                size = min(each, first + count - row) * columns * fmt.storage.itemsize
                file.seek(place.start + row * columns * fmt.storage.itemsize)
                data = file.read(size)
                if len(data) != size:
                    raise BadInput(f"{place.path} ends within tensor {name!r}")
                yield Coded(fmt.name, np.frombuffer(data, fmt.storage).reshape(-1, columns))

    def whole(self, name: str) -> Coded:
        """A small tensor, flat. Raises as ``rows`` does."""
        place = self._place(name)
        fmt = FORMATS[_FORMAT_OF[place.dtype]]
        with open(place.path, "rb") as file:
            file.seek(place.start)
            data = file.read(place.size)
        if len(data) != place.size:
            raise BadInput(f"{place.path} ends within tensor {name!r}")
        return Coded(fmt.name, np.frombuffer(data, fmt.storage))

    def _place(self, name: str) -> Place:
        if name not in self.places:
            raise BadInput(f"{self.path} has no tensor {name!r}")
        place = self.places[name]
        if place.dtype not in _FORMAT_OF:
            raise BadInput(f"{place.path}: tensor {name!r} is {place.dtype}; expected {', '.join(_FORMAT_OF)}")
        return place


def _header(path: Path) -> dict[str, Place]:
    """The tensors of a file, by its header alone."""
    try:
        with open(path, "rb") as file:
            total = file.seek(0, 2)
            file.seek(0)
            (length,) = struct.unpack("<Q", file.read(8).ljust(8, b"\xff"))
            if length > min(LONGEST_HEADER, total - 8):
                raise BadInput(f"{path} is not a safetensors file: its header would have {length:,} bytes of {total:,}")
            found = json.loads(file.read(length))
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{path} is not a safetensors file: its header is no JSON") from error
    if not isinstance(found, dict):
        raise BadInput(f"{path} is not a safetensors file: its header is no JSON object")
    return {name: _read(path, name, said, 8 + length, total) for name, said in found.items() if name != "__metadata__"}


def _read(path: Path, name: str, said: Any, start: int, total: int) -> Place:
    try:
        dtype, shape, (first, last) = str(said["dtype"]), tuple(map(int, said["shape"])), map(int, said["data_offsets"])
    except (KeyError, TypeError, ValueError):
        raise BadInput(f"{path}: the header of tensor {name!r} has no dtype, shape and data_offsets") from None
    if min((*shape, 0)) < 0 or not 0 <= first <= last or start + last > total:
        raise BadInput(f"{path}: tensor {name!r} does not lie within the file, which may be cut off")
    if dtype in _FORMAT_OF and prod(shape) * FORMATS[_FORMAT_OF[dtype]].storage.itemsize != last - first:
        raise BadInput(f"{path}: tensor {name!r} is {dtype} {list(shape)} in {last - first:,} bytes")
    return Place(path, dtype, shape, start + first, last - first)


def object_of(path: Path) -> dict[str, Any]:
    """A JSON object in a file; empty where there is no such file. Raises ``BadInput`` for anything else."""
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"cannot read {path} as JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadInput(f"{path} holds no JSON object")
    return found
