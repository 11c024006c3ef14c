"""Writers of small checkpoint files, from the formats' documents alone: nothing that reads is in them."""

from __future__ import annotations

import io
import json
import random
import struct
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from narrowgauge.checkpoints.opening import open_checkpoint
from narrowgauge.contracts.errors import BadInput

#: a tensor of a safetensors file: dtype, shape, bytes
Plain = tuple[str, Sequence[int], bytes]


def random_bytes(seed: int, count: int) -> bytes:
    """Always the same of a seed."""
    return random.Random(seed).randbytes(count)


def safetensors(tensors: Mapping[str, Plain], metadata: Mapping[str, str] | None = None) -> bytes:
    """A file of tensors in their order."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata is not None else {}
    end, body = 0, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + len(content)]}
        end, body = end + len(content), body + content
    return with_header(json.dumps(header).encode(), body)


def with_header(header: bytes, body: bytes = b"") -> bytes:
    """A file with that text for its header."""
    return len(header).to_bytes(8, "little") + header + body


@dataclass(frozen=True)
class Block:
    """A tensor of a GGUF file: the type by number, axes from the innermost on, bytes."""

    name: str
    kind: int
    axes: Sequence[int]
    content: bytes


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def array(kind: int, count: int, content: bytes) -> bytes:
    """An array as a value: the type of its elements, how many, and they."""
    return struct.pack("<IQ", kind, count) + content


#: a value of each type that metadata can have, with what it stands for
VALUES: tuple[tuple[str, int, bytes, Any], ...] = (
    ("u8", 0, b"\xff", 255),
    ("i8", 1, b"\xff", -1),
    ("u16", 2, struct.pack("<H", 65535), 65535),
    ("i16", 3, struct.pack("<h", -2), -2),
    ("u32", 4, struct.pack("<I", 1 << 31), 1 << 31),
    ("i32", 5, struct.pack("<i", -3), -3),
    ("f32", 6, struct.pack("<f", 0.5), 0.5),
    ("yes", 7, b"\1", True),
    ("text", 8, text("größer"), "größer"),
    ("numbers", 9, array(5, 3, struct.pack("<3i", 1, -2, 3)), (1, -2, 3)),
    ("words", 9, array(8, 2, text("a") + text("")), ("a", "")),
    ("nested", 9, array(9, 2, array(0, 2, b"\1\2") + array(7, 1, b"\0")), ((1, 2), (False,))),
    ("u64", 10, struct.pack("<Q", 1 << 63), 1 << 63),
    ("i64", 11, struct.pack("<q", -(1 << 63)), -(1 << 63)),
    ("f64", 12, struct.pack("<d", -0.25), -0.25),
)


def entry(key: str | bytes, kind: int, content: bytes) -> bytes:
    """An entry of metadata."""
    return text(key) + struct.pack("<I", kind) + content


def gguf(
    metadata: Iterable[bytes], tensors: Sequence[Block], alignment: int = 32, version: int = 3, order: str = "<"
) -> bytes:
    """A file, each tensor behind the one before it."""
    entries = list(metadata)
    header = b"GGUF" + struct.pack(f"{order}IQQ", version, len(tensors), len(entries)) + b"".join(entries)
    body = b""
    for one in tensors:
        header += text(one.name) + struct.pack(f"<I{len(one.axes)}Q", len(one.axes), *one.axes)
        header += struct.pack("<IQ", one.kind, len(body))
        body += one.content + bytes(-len(one.content) % alignment)
    return header + bytes(-len(header) % alignment) + body


def zipped(records: Mapping[str, bytes], compress: bool = False) -> bytes:
    """A zip file of records, as torch has them: stored, one after the other."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED) as file:
        for name, content in records.items():
            file.writestr(name, content)
    return out.getvalue()


def refusal(path: Path) -> str:
    """Why a checkpoint is not opened; "" where it is."""
    try:
        open_checkpoint(path)
    except BadInput as error:
        return str(error)
    return ""
