"""The records of a zip file of torch's, and where the bytes of each stand. Nothing is unpacked."""

from __future__ import annotations

import io
import struct
import zipfile
from dataclasses import dataclass

from narrowgauge.checkpoints.source import Source, refused, short
from narrowgauge.contracts.errors import BadInput

#: bytes of the fixed part of a record's own header, and where the lengths of name and extra field stand in it
HEADER, LENGTHS = 30, 26


@dataclass(frozen=True)
class Record:
    """A file in the zip file."""

    name: str
    start: int  #: of its bytes in the zip file
    size: int
    stored: bool  #: as it is; else it is compressed


class _Clamped(io.RawIOBase):
    """A source as a file that ``zipfile`` can read; what it asks for beyond the end is not there."""

    def __init__(self, source: Source) -> None:
        self.source, self.at = source, 0

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.at = offset + (0, self.at, self.source.size)[whence]
        if self.at < 0:
            raise OSError("before the beginning")
        return self.at

    def read(self, size: int = -1) -> bytes:
        left = max(0, self.source.size - self.at)
        count = left if size < 0 else min(size, left)
        found = self.source.read(self.at, count, "a zip file's directory") if count else b""
        self.at += count
        return found


def records_of(source: Source) -> list[Record]:
    """The records in the order of their bytes. Raises ``BadInput`` for a directory that does not fit the file."""
    try:
        with zipfile.ZipFile(_Clamped(source)) as found:
            entries = found.infolist()
        return sorted((_record(source, entry) for entry in entries), key=lambda record: record.start)
    except BadInput:
        raise
    except Exception as error:  # zipfile meets damage with whatever Python says where it is met
        raise refused(source.path, source.size, f"a zip file whose directory cannot be read: {error}") from None


def _record(source: Source, entry: zipfile.ZipInfo) -> Record:
    header = source.read(entry.header_offset, HEADER, f"record {short(entry.filename)}")
    if header[:4] != b"PK\x03\x04":
        raise refused(source.path, entry.header_offset, f"expected the record {short(entry.filename)} of the zip file")
    start = entry.header_offset + HEADER + sum(struct.unpack_from("<2H", header, LENGTHS))
    source.within(start, entry.compress_size, f"record {short(entry.filename)}")
    stored = entry.compress_type == zipfile.ZIP_STORED and entry.file_size == entry.compress_size
    return Record(entry.filename, start, entry.compress_size, stored)
