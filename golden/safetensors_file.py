"""safetensors files as codes. The library checks and splits the file; reading its fp8 types is ours, since its numpy
loader refuses them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.files import write_whole
from narrowgauge.contracts.formats import FORMATS, Format, format_named

#: what a header calls an array of plain integers
INTEGERS = {
    "U8": "<u1",
    "U16": "<u2",
    "U32": "<u4",
    "U64": "<u8",
    "I8": "<i1",
    "I16": "<i2",
    "I32": "<i4",
    "I64": "<i8",
}
_FORMAT_OF = {f.safetensors: f.name for f in FORMATS.values() if f.safetensors and f.safetensors not in INTEGERS}
#: two or more codes of these share a byte in a file
_PACKED = {name for name, format_name in _FORMAT_OF.items() if format_named(format_name).bits < 8}
_UNSIGNED = {1: "U8", 2: "U16", 4: "U32", 8: "U64"}
_NOT_READ = "packed sub-byte tensors are not read yet; give codes as U8, one per byte"


@dataclass(frozen=True, eq=False)
class Stored:
    """A tensor of a file: its bits as integers, and the format that its dtype names ("" for plain integers)."""

    format: str
    data: npt.NDArray[Any]

    def as_format(self, name: str) -> Coded:
        """As codes of a format: a typed tensor keeps its own, integers are taken for what is expected.

        The numbers of I8 are the values of ``int8``, and so its codes by their bits.
        """
        fmt = format_named(self.format or name)
        own = f"I{8 * self.data.itemsize}" if self.data.dtype.kind == "i" else ""
        return Coded(fmt.name, self.data.view(fmt.storage) if own and own == fmt.safetensors else self.data)


@dataclass(frozen=True, eq=False)
class TensorFile:
    """What a file holds."""

    tensors: dict[str, Stored]
    metadata: dict[str, str]


def read(path: Path) -> TensorFile:
    """The tensors and metadata of a file. Raises ``BadInput`` that names the file for whatever is wrong with it."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from error
    return parsed(raw, path)


def parsed(raw: bytes, path: Path) -> TensorFile:
    """The same of a file's bytes; ``path`` is for errors alone."""
    try:
        entries = safetensors.deserialize(raw)  # type: ignore[no-untyped-call]
    except safetensors.SafetensorError as error:
        raise BadInput(f"{path} is not a whole safetensors file ({len(raw)} bytes): {error}") from error
    header = json.loads(raw[8 : 8 + struct.unpack("<Q", raw[:8])[0]])
    tensors = {name: _stored(path, name, entry) for name, entry in entries}
    return TensorFile(tensors, dict(header.get("__metadata__") or {}))


def _stored(path: Path, name: str, entry: Mapping[str, Any]) -> Stored:
    kind = entry["dtype"]
    if kind in INTEGERS:
        return Stored("", np.frombuffer(entry["data"], INTEGERS[kind]).reshape(entry["shape"]))
    if kind in _PACKED:
        raise BadInput(f"{path}: tensor {name!r} has dtype {kind}; {_NOT_READ}")
    if kind not in _FORMAT_OF:
        known = ", ".join([*INTEGERS, *(known for known in _FORMAT_OF if known not in _PACKED)])
        raise BadInput(f"{path}: tensor {name!r} has dtype {kind}; this version reads {known}")
    fmt = format_named(_FORMAT_OF[kind])
    return Stored(fmt.name, np.frombuffer(entry["data"], fmt.storage).reshape(entry["shape"]))


def write(path: Path, tensors: Mapping[str, Coded], metadata: Mapping[str, Any], *, typed: bool) -> None:
    """Write a file, whole or not at all. ``typed`` gives tensors their format's dtype, else they are plain integers.

    Raises ``BadInput`` for a typed tensor of a format that has no dtype of one code to an element (``has_dtype``).
    """
    write_whole(path, content_of(path, tensors, metadata, typed=typed))


def content_of(path: Path, tensors: Mapping[str, Coded], metadata: Mapping[str, Any], *, typed: bool) -> bytes:
    """The bytes of such a file; ``path`` is for errors alone.

    They follow from the content alone, which is why this does not use the library's writer: golden files must stay
    the same under another version of it. The library's reader checks the result in the tests.
    """
    header: dict[str, Any] = {"__metadata__": {"narrowgauge": json.dumps(metadata, sort_keys=True)}}
    body = bytearray()
    # Wide elements first, so that every tensor is aligned to its element size without padding.
    for name in sorted(tensors, key=lambda n: (-tensors[n].data.dtype.itemsize, n)):
        fmt, data = format_named(tensors[name].format), tensors[name].codes
        kind = _typed(path, name, fmt) if typed else _UNSIGNED[data.dtype.itemsize]
        header[name] = {"dtype": kind, "shape": list(data.shape), "data_offsets": [len(body), len(body) + data.nbytes]}
        body += data.tobytes(order="C")
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def has_dtype(format_name: str) -> bool:
    """Whether a file can hold typed codes of a format, one to an element."""
    kind = format_named(format_name).safetensors
    return bool(kind) and kind not in _PACKED


def _typed(path: Path, name: str, fmt: Format) -> str:
    """The dtype of a format's tensors. Raises ``BadInput`` where there is none, or it is not one code to an element."""
    if not fmt.safetensors:
        raise BadInput(f"cannot write {path}: tensor {name!r} is {fmt.name}, which has no safetensors dtype")
    if fmt.safetensors in _PACKED:
        raise BadInput(f"cannot write {path}: tensor {name!r} is {fmt.name} ({fmt.safetensors}); {_NOT_READ}")
    return fmt.safetensors


def metadata_of(file: TensorFile, path: Path) -> dict[str, Any]:
    """The metadata that ``write`` stored. Raises ``BadInput`` for a file of somebody else."""
    try:
        found = json.loads(file.metadata["narrowgauge"])
    except (KeyError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise BadInput(f"{path} was not written by narrowgauge: its metadata has no readable 'narrowgauge' entry")
    return found
