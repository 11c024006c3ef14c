"""The bytes of a file, never outside it. Everything that an audit reads of a checkpoint goes through here."""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path
from types import TracebackType

from narrowgauge.contracts.errors import BadInput

#: letters of a name in an error
LONGEST = 120


def refused(path: Path, offset: int, reason: str) -> BadInput:
    """The error of a file that cannot be used: which, at which byte, why."""
    return BadInput(f"{path}, byte {offset:,}: {reason}")


def unusable(path: Path, error: Exception) -> BadInput:
    """The error of a file that the system does not give."""
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return BadInput(f"cannot read {path}: {said}")


def short(name: str) -> str:
    """A name of somebody else's as an error shows it."""
    return repr(name) if len(name) <= LONGEST else f"{name[:LONGEST]!r}… ({len(name):,} letters)"


def raw(descriptor: int) -> io.FileIO:
    """The file itself, unbuffered."""
    return io.FileIO(descriptor, "rb")


class Source:
    """A regular file, open for reading.

    Raises ``BadInput`` that names the file for one that is none or cannot be read, and byte and file for a read that
    would leave it. ``size`` is that of the time of opening; where the file has shrunk since, a read says so.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # a pipe that nobody writes to is opened too, and waits for nobody
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            raise unusable(path, error) from error
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            os.close(descriptor)
            raise BadInput(f"{path} is no regular file")
        self.file, self.size = raw(descriptor), found.st_size

    def __enter__(self) -> Source:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.close()

    def within(self, offset: int, count: int, what: str) -> None:
        """Raise ``BadInput`` where ``count`` bytes from ``offset`` on are not all in the file."""
        if not 0 <= offset <= offset + count <= self.size:
            raise refused(
                self.path, offset, f"expected {count:,} bytes of {what}; the file ends at {self.size:,}, maybe cut off"
            )

    def into(self, offset: int, view: memoryview, what: str) -> None:
        """Fill a buffer with the bytes from ``offset`` on; ``what`` they are is for the error."""
        self.within(offset, len(view), what)
        try:
            self.file.seek(offset)
            done = 0
            while done < len(view) and (count := self.file.readinto(view[done:])):
                done += count
        except OSError as error:
            raise unusable(self.path, error) from error
        if done < len(view):
            raise refused(self.path, offset + done, f"{what} goes on, and the file has shrunk since it was opened")

    def read(self, offset: int, count: int, what: str) -> bytes:
        """So many bytes from ``offset`` on."""
        self.within(offset, count, what)
        buffer = bytearray(count)
        self.into(offset, memoryview(buffer), what)
        return bytes(buffer)
