"""The header of a safetensors file, held to the rules of the format (its README, "Format")."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from narrowgauge.checkpoints.dtypes import SAFETENSORS
from narrowgauge.checkpoints.model import Stored
from narrowgauge.checkpoints.objects import parsed
from narrowgauge.checkpoints.roles import role_of
from narrowgauge.checkpoints.source import Source, refused, short
from narrowgauge.contracts.errors import BadInput

#: bytes of a header, as the library limits it (MAX_HEADER_SIZE of its tensor.rs)
LONGEST_HEADER = 100_000_000
_METADATA = "__metadata__"
#: what other files begin with
BEGINNINGS: Mapping[bytes, str] = {
    b"version https://git-lfs": "a Git LFS pointer: fetch the file itself with git lfs pull",
    b"GGUF": "a GGUF file",
    b"PK\x03\x04": "a zip file, as torch writes them",
    b"\x80\x02": "a pickle, as torch wrote them before 1.6",
    b"<": "a page of the web",
}


def tensors_of(path: Path) -> tuple[dict[str, Stored], dict[str, str]]:
    """The tensors of a file in the order of their bytes, and its metadata. Only the header is read.

    Raises ``BadInput`` with file and byte for whatever breaks the rules of the format.
    """
    with Source(path) as source:
        content = _header(source)
        size = source.size
    header = _Header(path, content, size)
    found = {name: header.tensor(name, said) for name, said in header.said.items() if name != _METADATA}
    ordered = dict(sorted(found.items(), key=lambda item: (item[1].start, item[1].size)))
    header.refuse_overlaps_and_holes(list(ordered.values()))
    return ordered, header.metadata()


def _header(source: Source) -> bytes:
    try:
        (length,) = struct.unpack("<Q", source.read(0, 8, "the length of a safetensors header"))
        if length > LONGEST_HEADER:
            raise refused(source.path, 0, f"a header of {length:,} bytes; safetensors has at most {LONGEST_HEADER:,}")
        return source.read(8, length, "a safetensors header")
    except BadInput as error:
        start = source.read(0, min(source.size, 32), "the file")
        known = next((what for beginning, what in BEGINNINGS.items() if start.startswith(beginning)), "")
        raise BadInput(f"{error}{f'; it is {known}' if known else ''}") from None


class _Header:
    """A header, and where in the file its parts stand."""

    def __init__(self, path: Path, content: bytes, size: int) -> None:
        self.path, self.content, self.size = path, content, size
        self.start = 8 + len(content)  #: of the data
        self.said = parsed(content, path, 8)
        if not isinstance(self.said, dict):
            raise refused(path, 8, "the header is no JSON object")

    def at(self, name: str) -> int:
        """The byte where a name stands in the header."""
        spelled = (json.dumps(name, ensure_ascii=ascii_).encode() for ascii_ in (False, True))
        return 8 + max(0, *(self.content.find(text) for text in spelled))

    def wrong(self, name: str, reason: str) -> BadInput:
        return refused(self.path, self.at(name), f"tensor {short(name)} {reason}")

    def metadata(self) -> dict[str, str]:
        found = self.said.get(_METADATA, {})
        if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
            raise refused(self.path, self.at(_METADATA), f"{_METADATA} must hold texts by name")
        return found

    def tensor(self, name: str, said: Any) -> Stored:
        said = said if isinstance(said, dict) else {}
        dtype, shape, offsets = said.get("dtype"), said.get("shape"), said.get("data_offsets")
        if not isinstance(dtype, str) or not _counts(shape) or not _counts(offsets) or len(offsets) != 2:
            raise self.wrong(name, "needs a dtype, a shape and two data_offsets, of whole numbers from 0 on")
        unit = SAFETENSORS.get(dtype)
        if unit is None:
            raise self.wrong(name, f"has the unknown dtype {short(dtype)}; known: {', '.join(SAFETENSORS)}")
        expected = unit.size(shape)
        if expected is None:
            raise self.wrong(name, f"has the impossible shape {short(str(shape))} for {dtype}")
        first, last = offsets
        if last - first != expected:
            raise self.wrong(
                name, f"is {dtype} {shape}, {expected:,} bytes; its data_offsets are {first:,} to {last:,}"
            )
        if self.start + last > self.size:
            raise self.wrong(
                name, f"ends at byte {self.start + last:,}; the file ends at {self.size:,}, and may be cut off"
            )
        return Stored(
            name, dtype, tuple(shape), self.path, self.start + first, expected, unit.format, role_of(name)
        )  # fmt: skip

    def refuse_overlaps_and_holes(self, tensors: list[Stored]) -> None:
        """Tensors in the order of their bytes must fill the rest of the file, each byte once."""
        end, before = self.start, ""
        for one in tensors:
            if one.start < end:
                raise self.wrong(one.name, f"overlaps {short(before)}: it begins at byte {one.start:,}, before {end:,}")
            if one.start > end:
                raise self.wrong(one.name, f"begins at byte {one.start:,}; nothing names the bytes from {end:,} on")
            end, before = one.start + one.size, one.name
        if end < self.size:
            raise refused(self.path, end, f"nothing names the last {self.size - end:,} bytes of the file")


def _counts(found: Any) -> bool:
    """Whether it is a list of whole numbers that can count something; True is no number here."""
    return isinstance(found, list) and all(type(n) is int and 0 <= n < 1 << 63 for n in found)
