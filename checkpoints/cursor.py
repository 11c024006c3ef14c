"""Reading a header from its beginning on, through a window of the file."""

from __future__ import annotations

import struct
from typing import Any

from narrowgauge.checkpoints.source import Source, refused

#: bytes that are read at once, of a header that is no mistake, and of a name
WINDOW, LONGEST_HEADER, LONGEST_NAME = 1 << 18, 1 << 29, 1 << 16


class Cursor:
    """A place in a file, and what stands there. Raises ``BadInput`` with file and byte for what would leave it."""

    def __init__(self, source: Source) -> None:
        self.source, self.at = source, 0
        self.window, self.first = b"", 0

    def skip(self, count: int, what: str) -> None:
        """Pass so many bytes."""
        self.source.within(self.at, count, what)
        if self.at + count > LONGEST_HEADER:
            raise refused(self.source.path, self.at, f"a header with {count:,} more bytes of {what}; none is so long")
        self.at += count

    def take(self, count: int, what: str) -> bytes:
        """So many bytes."""
        at, start = self.at, self.at - self.first
        self.skip(count, what)
        if not 0 <= start <= start + count <= len(self.window):
            self.window = self.source.read(at, min(max(count, WINDOW), self.source.size - at), what)
            self.first, start = at, 0
        return self.window[start : start + count]

    def number(self, kind: str, what: str) -> Any:
        """A number of a type of ``struct``."""
        return struct.unpack(f"<{kind}", self.take(struct.calcsize(f"<{kind}"), what))[0]

    def text(self, what: str) -> bytes:
        """A text behind its length."""
        return self.take(self.number("Q", f"the length of {what}"), what)

    def name(self, what: str) -> str:
        """A text that is a name."""
        at = self.at
        length = self.number("Q", f"the length of {what}")
        if length > LONGEST_NAME:
            raise refused(self.source.path, at, f"{what} of {length:,} bytes; none is so long")
        try:
            return self.take(length, what).decode()
        except UnicodeDecodeError as error:
            raise refused(self.source.path, at + 8 + error.start, f"{what} is not in UTF-8") from None

    def skip_texts(self, count: int, what: str) -> None:
        """Pass so many texts: a vocabulary has a quarter of a million."""
        for _ in range(count):
            self.skip(self.number("Q", f"the length of {what}"), what)
