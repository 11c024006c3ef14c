"""The header of a GGUF file, versions 2 and 3 (ggml's docs/gguf.md, and gguf.cpp for what it refuses)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from narrowgauge.checkpoints.cursor import Cursor
from narrowgauge.checkpoints.dtypes import GGML, GGML_REMOVED, UNITS
from narrowgauge.checkpoints.gguf_values import value
from narrowgauge.checkpoints.model import Stored
from narrowgauge.checkpoints.roles import role_of
from narrowgauge.checkpoints.source import Source, refused, short
from narrowgauge.contracts.errors import BadInput

MAGIC = b"GGUF"
VERSIONS = (2, 3)
#: bytes of the shortest entry of metadata (empty key, type, one byte) and of a tensor (empty name, no axes)
SHORTEST_VALUE, SHORTEST_TENSOR = 8 + 4 + 1, 8 + 4 + 4 + 8
#: axes of a tensor (GGML_MAX_DIMS), and bytes that tensors are aligned to
AXES, ALIGNMENT = 4, 32


def tensors_of(path: Path) -> tuple[dict[str, Stored], dict[str, Any]]:
    """The tensors of a file in their order, and its metadata by key. Only the header is read.

    Raises ``BadInput`` with file and byte for whatever breaks the rules of the format.
    """
    with Source(path) as source:
        cursor = Cursor(source)
        counts = _beginning(cursor)
        metadata = _metadata(cursor, counts[1])
        found = _Tensors(cursor, metadata)
        for _ in range(counts[0]):
            found.read_one()
        return found.placed(), metadata


def refuse_incomplete(path: Path, metadata: dict[str, Any], tensors: dict[str, Stored], files: int) -> None:
    """Raise ``BadInput`` where a model is split into more files than there are, or they have not all its tensors."""
    parts, expected = metadata.get("split.count", 1), metadata.get("split.tensors.count", len(tensors))
    if parts not in (0, 1, files):
        raise BadInput(f"{path}: split.count says {parts} files of this model, and there are {files}")
    if expected != len(tensors):
        raise BadInput(f"{path}: split.tensors.count says {expected} tensors, and its files hold {len(tensors):,}")


def _beginning(cursor: Cursor) -> tuple[int, int]:
    """How many tensors there are, and how many entries of metadata."""
    path = cursor.source.path
    if (magic := cursor.take(4, "GGUF's magic number")) != MAGIC:
        raise refused(path, 0, f"not a GGUF file: it begins with {magic!r}")
    version = cursor.number("I", "GGUF's version")
    if version & 0xFFFF == 0 and version:
        raise refused(
            path, 4, "a big-endian GGUF file; gguf-py's gguf_convert_endian turns it into one that is read here"
        )
    if version not in VERSIONS:
        raise refused(path, 4, f"GGUF version {version}; this reads {' and '.join(map(str, VERSIONS))}")
    tensors, values = cursor.number("Q", "the number of tensors"), cursor.number("Q", "the number of metadata entries")
    for at, count, shortest, what in (
        (8, tensors, SHORTEST_TENSOR, "tensors"),
        (16, values, SHORTEST_VALUE, "entries"),
    ):
        if count > (cursor.source.size - cursor.at) // shortest:
            raise refused(path, at, f"{count:,} {what} do not fit into a file of {cursor.source.size:,} bytes")
    return tensors, values


def _metadata(cursor: Cursor, count: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(count):
        at = cursor.at
        key = cursor.name("a key of the metadata")
        if key in found:
            raise refused(cursor.source.path, at, f"the key {short(key)} stands twice in the metadata")
        found[key] = value(cursor)
    return found


class _Tensors:
    """The entries of tensors, and then their places: data begin behind the last entry."""

    def __init__(self, cursor: Cursor, metadata: dict[str, Any]) -> None:
        self.cursor, self.path = cursor, cursor.source.path
        self.alignment = metadata.get("general.alignment", ALIGNMENT)
        if type(self.alignment) is not int or self.alignment < 1 or self.alignment & (self.alignment - 1):
            raise refused(self.path, cursor.at, f"general.alignment is {self.alignment!r}; expected a power of two")
        #: name: type, shape, bytes, offset, and where the entry stands
        self.entries: dict[str, tuple[str, tuple[int, ...], int, int, int]] = {}

    def read_one(self) -> None:
        cursor, at = self.cursor, self.cursor.at
        name = cursor.name("the name of a tensor")
        if name in self.entries:
            raise refused(self.path, at, f"the name of tensor {short(name)} stands twice")
        axes = cursor.number("I", f"the axes of tensor {short(name)}")
        if axes > AXES:
            raise refused(self.path, at, f"tensor {short(name)} has {axes:,} axes; ggml has at most {AXES}")
        sizes = tuple(cursor.number("Q", f"the shape of tensor {short(name)}") for _ in range(axes))
        number = cursor.number("I", f"the type of tensor {short(name)}")
        offset = cursor.number("Q", f"the place of tensor {short(name)}")
        if number not in GGML:
            said = f", {GGML_REMOVED[number]}, which ggml does not read any more" if number in GGML_REMOVED else ""
            raise refused(self.path, at, f"tensor {short(name)} has the unknown type {number}{said}; known: {_known()}")
        kind = GGML[number]
        unit = UNITS[kind]
        size = unit.size(sizes)
        # ggml counts axes from the innermost on, and blocks lie along that one
        if size is None or (sizes[0] if sizes else 1) % unit.elements:
            raise refused(self.path, at, f"tensor {short(name)} of {kind} has the impossible shape {list(sizes[::-1])}")
        self.entries[name] = (kind, sizes[::-1], size, offset, at)

    def placed(self) -> dict[str, Stored]:
        """Each tensor behind the one before it, as ggml insists on, and within the file."""
        start = -(-self.cursor.at // self.alignment) * self.alignment
        expected, found = 0, {}
        for name, (kind, shape, size, offset, at) in self.entries.items():
            if offset != expected:
                raise refused(
                    self.path,
                    at,
                    f"tensor {short(name)} is said to begin {offset:,} bytes into the data; expected {expected:,}",
                )
            self.cursor.source.within(start + offset, size, f"tensor {short(name)}")
            found[name] = Stored(
                name, kind, shape, self.path, start + offset, size, UNITS[kind].format, role_of(name)
            )  # fmt: skip
            expected += -(-size // self.alignment) * self.alignment
        return found


def _known() -> str:
    return ", ".join(f"{number} {name}" for number, name in GGML.items())
