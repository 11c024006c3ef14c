"""Bytes and codes of tensors, in pieces."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from narrowgauge.checkpoints import source
from narrowgauge.checkpoints.dtypes import UNITS
from narrowgauge.checkpoints.model import Stored
from narrowgauge.checkpoints.reading import all_elements, elements, pieces, rows, whole
from narrowgauge.contracts.errors import BadInput
from narrowgauge.suites.meta.checkpoint_bytes import random_bytes

pytestmark = pytest.mark.meta


def stored(path: Path, dtype: str, shape: tuple[int, ...], content: bytes, before: int = 3) -> Stored:
    """A tensor somewhere in a file."""
    path.write_bytes(bytes(before) + content + b"\xee")
    return Stored("t", dtype, shape, path, before, len(content), UNITS[dtype].format)


def test_pieces_hold_whole_elements(tmp_path: Path) -> None:
    content = random_bytes(1, 34 * 7)
    one = stored(tmp_path / "x", "Q8_0", (7, 32), content)
    assert [len(p) for p in pieces(one, 100)] == [68, 68, 68, 34]
    assert [len(p) for p in pieces(one, 1)] == [34] * 7
    assert b"".join(p.tobytes() for p in pieces(one, 100)) == content == whole(one).tobytes()
    given = list(pieces(one, 34))
    assert all(np.shares_memory(given[0], other) for other in given)


def test_elements_and_rows(tmp_path: Path) -> None:
    numbers = np.arange(60, dtype="<u2")
    one = stored(tmp_path / "x", "BF16", (5, 3, 4), numbers.tobytes())
    assert np.concatenate([c.data.copy() for c in elements(one, 14)]).tolist() == list(range(60))
    assert {c.format for c in elements(one)} == {"bfloat16"}
    table = numbers.reshape(5, 12)
    for first, count in ((0, 5), (1, 3), (4, 1), (2, 0), (5, 0)):
        found = [c.data.copy() for c in rows(one, first, count, 50)]
        assert np.concatenate([*found, np.zeros((0, 12), "<u2")]).tolist() == table[first : first + count].tolist()
        assert all(c.shape[1] == 12 and c.shape[0] <= 2 for c in found)
    assert np.concatenate([c.data.copy() for c in rows(one, 2)]).tolist() == table[2:].tolist()
    for first, count in ((0, 6), (-1, 2), (6, 0), (3, -1)):
        with pytest.raises(BadInput, match="has 5 rows"):
            list(rows(one, first, count))


def test_two_codes_in_a_byte(tmp_path: Path) -> None:
    """The first in the low nibble, as in torch.float4_e2m1fn_x2."""
    one = stored(tmp_path / "x", "F4", (2, 4), bytes([0x21, 0x43, 0x65, 0x87]))
    assert all_elements(one).data.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [c.data.tolist() for c in rows(one, 1, 1)] == [[[5, 6, 7, 8]]]
    odd = stored(tmp_path / "y", "F4", (2, 3), bytes([0x21, 0x43, 0x65]))
    assert [c.data.tolist() for c in elements(odd, 1)] == [[1, 2], [3, 4], [5, 6]]
    with pytest.raises(BadInput, match="end within a byte"):
        list(rows(odd))


def test_shapes_without_elements(tmp_path: Path) -> None:
    none = stored(tmp_path / "x", "F32", (1 << 50, 0), b"")
    assert [c.shape for c in rows(none)] == [(1 << 50, 0)]
    assert list(elements(none)) == list(pieces(none)) == []
    assert all_elements(none).shape == (0,)
    scalar = stored(tmp_path / "y", "F32", (), b"\0\0\x80\x3f")
    assert [c.data.tolist() for c in rows(scalar)] == [[[0x3F800000]]]


def test_bytes_without_a_format(tmp_path: Path) -> None:
    for dtype in ("Q8_0", "C64", "F6_E2M3", "BOOL", "I64"):
        one = stored(tmp_path / "x", dtype, (UNITS[dtype].elements,), bytes(UNITS[dtype].bytes))
        for read in (elements, rows):
            with pytest.raises(BadInput, match=f"'t' is {dtype}, whose elements have no known format"):
                next(iter(read(one)))


class Slow(io.FileIO):
    """A file that gives at most five bytes at once, as systems may."""

    def readinto(self, buffer: Any) -> int:
        return super().readinto(memoryview(buffer)[:5]) or 0


def test_a_read_that_comes_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = random_bytes(5, 64)
    one = stored(tmp_path / "x", "F64", (8,), content)
    monkeypatch.setattr(source, "raw", lambda descriptor: Slow(descriptor, "rb"))
    assert whole(one).tobytes() == content == b"".join(piece.tobytes() for piece in pieces(one, 24))


def test_a_file_that_shrinks_or_goes(tmp_path: Path) -> None:
    path = tmp_path / "x"
    one = stored(path, "F32", (8,), bytes(32))
    steps = pieces(one, 16)
    next(steps)
    os.truncate(path, 20)
    with pytest.raises(BadInput, match=r"byte 20: tensor 't' goes on, and the file has shrunk"):
        next(steps)
    with pytest.raises(BadInput, match=r"byte 3: expected 32 bytes of tensor 't'; the file ends at 20"):
        whole(one)
    path.unlink()
    with pytest.raises(BadInput, match=r"cannot read .*: No such file"):
        next(pieces(one))
