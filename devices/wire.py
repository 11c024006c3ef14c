"""Messages between a device and its child: JSON on a pipe, small buffers behind it, large ones in shared memory.

Requests and answers strictly alternate, so each direction has one arena that is written anew for every message.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import tempfile
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded

#: a buffer of more bytes than this travels in shared memory
INLINE = 32768
_LENGTH = struct.Struct("<Q")
_ALIGN = 64


class Arena:
    """Memory that two processes share through an inherited file descriptor; it grows and never has a name."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._map: mmap.mmap | None = None

    @classmethod
    def create(cls) -> Arena:
        """A new arena. It is gone when the last process that holds it is gone, however that ends."""
        with tempfile.TemporaryFile(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as file:
            return cls(os.dup(file.fileno()))

    def view(self, size: int) -> memoryview:
        """The first ``size`` bytes, after growing to hold them."""
        if os.fstat(self.descriptor).st_size < size:
            os.ftruncate(self.descriptor, size)
        if self._map is None or len(self._map) < size:
            self._map = mmap.mmap(self.descriptor, os.fstat(self.descriptor).st_size)
        return memoryview(self._map)[:size]

    def close(self) -> None:
        self._map = None
        os.close(self.descriptor)


def send(pipe: BinaryIO, arena: Arena, message: Mapping[str, Any], buffers: Mapping[str, Coded]) -> None:
    """Write one message and its buffers."""
    heads: list[dict[str, Any]] = []
    inline: list[bytes] = []
    shared: list[tuple[int, npt.NDArray[Any]]] = []
    place = 0
    for name, buffer in buffers.items():
        data = np.ascontiguousarray(buffer.data)
        head: dict[str, Any] = {"name": name, "format": buffer.format}
        head |= {"dtype": data.dtype.str, "shape": list(buffer.shape)}
        if data.nbytes > INLINE:
            head["offset"] = place
            shared.append((place, data))
            place += -(-data.nbytes // _ALIGN) * _ALIGN
        else:
            inline.append(data.tobytes())
        heads.append(head)
    if shared:
        view = arena.view(place)
        for offset, data in shared:
            view[offset : offset + data.nbytes] = data.reshape(-1).view(np.uint8).data
    text = json.dumps({**message, "buffers": heads}).encode()
    pipe.write(_LENGTH.pack(len(text)) + text + b"".join(inline))
    pipe.flush()


def receive(pipe: BinaryIO, arena: Arena) -> tuple[dict[str, Any], dict[str, Coded]]:
    """Read one message. Buffers are copies: the sender may write over the arena. Raises ``EOFError`` at the end."""
    message = json.loads(_exactly(pipe, _LENGTH.unpack(_exactly(pipe, _LENGTH.size))[0]))
    buffers = {}
    for head in message.pop("buffers"):
        dtype, shape = np.dtype(head["dtype"]), tuple(head["shape"])
        size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        offset = head.get("offset")
        raw = _exactly(pipe, size) if offset is None else arena.view(offset + size)[offset:]
        data: npt.NDArray[Any] = np.frombuffer(raw, dtype).reshape(shape).copy()
        buffers[head["name"]] = Coded(head["format"], data)
    return message, buffers


def _exactly(pipe: BinaryIO, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = pipe.read(size - len(parts))
        if not part:
            raise EOFError("the other side closed the pipe")
        parts += part
    return bytes(parts)
