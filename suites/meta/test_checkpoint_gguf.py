"""GGUF files by a writer of our own, and what is wrong with others."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import pytest

from narrowgauge.checkpoints import gguf_values, of_gguf
from narrowgauge.checkpoints.dtypes import GGML
from narrowgauge.checkpoints.opening import open_checkpoint
from narrowgauge.checkpoints.reading import whole
from narrowgauge.contracts.errors import BadInput
from narrowgauge.suites.meta.checkpoint_bytes import VALUES, Block, array, entry, gguf, random_bytes, refusal, text

pytestmark = pytest.mark.meta

ENTRIES = [entry(f"general.{key}", kind, content) for key, kind, content, _ in VALUES]
BLOCKS = [
    Block("token_embd.weight", 8, (64, 3), random_bytes(2, 6 * 34)),
    Block("blk.0.attn_norm.weight", 0, (5,), random_bytes(3, 20)),
    Block("blk.0.ffn.weight", 39, (32, 2, 2), random_bytes(4, 4 * 17)),
]


@pytest.mark.parametrize("version", [2, 3])
def test_gguf_by_a_writer_of_our_own(version: int, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf(ENTRIES, BLOCKS, version=version))
    found = open_checkpoint(path)
    assert found.kind == "gguf"
    assert found.metadata == {f"general.{key}": stands for key, _, _, stands in VALUES}
    assert [type(v) for v in found.metadata.values()] == [type(stands) for _, _, _, stands in VALUES]
    assert [
        (t.name, GGML[b.kind] == t.dtype, t.shape) for t, b in zip(found.tensors.values(), BLOCKS, strict=True)
    ] == [(b.name, True, tuple(reversed(b.axes))) for b in BLOCKS]
    for one, block in zip(found.tensors.values(), BLOCKS, strict=True):
        assert whole(one).tobytes() == block.content
        assert one.start % 32 == 0
    assert [t.format for t in found.tensors.values()] == ["", "float32", ""]


def test_alignment_and_long_arrays(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    words = array(8, 3000, b"".join(text(f"w{n}") for n in range(3000)))
    numbers = array(6, 300_000, bytes(1_200_000))
    metadata = [
        entry("general.alignment", 4, struct.pack("<I", 64)),
        entry("tokenizer.ggml.tokens", 9, words),
        entry("scores", 9, numbers),
        entry("after", 0, b"\7"),
    ]
    path.write_bytes(gguf(metadata, BLOCKS, 64))
    found = open_checkpoint(path)
    assert found.metadata["tokenizer.ggml.tokens"] == gguf_values.Long("text", 3000)
    assert found.metadata["scores"] == gguf_values.Long("float32", 300_000)
    assert found.metadata["after"] == 7
    assert [whole(one).tobytes() for one in found.tensors.values()] == [block.content for block in BLOCKS]
    assert {one.start % 64 for one in found.tensors.values()} == {0}


def named(name: str, **fields: Any) -> bytes:
    """A file of one tensor with other fields."""
    f: dict[str, Any] = {"axes": [32], "kind": 8, "offset": 0, "count": 1, "values": 0} | fields
    header = b"GGUF" + struct.pack("<IQQ", 3, f["count"], f["values"]) + text(name)
    header += struct.pack(f"<I{len(f['axes'])}Q", len(f["axes"]), *f["axes"]) + struct.pack(
        "<IQ", f["kind"], f["offset"]
    )
    return header + bytes(-len(header) % 32) + bytes(34)


def valued(kind: int, content: bytes) -> bytes:
    return gguf([entry("k", kind, content)], [])


def aligned(kind: int, content: bytes) -> bytes:
    return gguf([entry("general.alignment", kind, content)], [])


WRONG_GGUF: list[tuple[bytes, str]] = [
    (b"GGUX" + bytes(20), "byte 0: not a GGUF file"),
    (gguf([], [], version=1), "byte 4: GGUF version 1; this reads 2 and 3"),
    (gguf([], [], version=3, order=">"), "byte 4: a big-endian GGUF file"),
    (named("t", count=1 << 63), "byte 8: 9,223,372,036,854,775,808 tensors do not fit"),
    (named("t", values=1 << 63), "byte 16: 9,223,372,036,854,775,808 entries do not fit"),
    (named("t", kind=99), "unknown type 99; known: 0 F32"),
    (named("t", kind=31), "unknown type 31, Q4_0_4_4, which ggml does not read any more"),
    (named("t", axes=[31]), r"of Q8_0 has the impossible shape \[31\]"),
    (named("t", axes=[16, 2]), r"impossible shape \[2, 16\]"),
    (named("t", axes=[]), r"impossible shape \[\]"),
    (named("t", axes=[1 << 32, 1 << 32]), "impossible shape"),
    (named("t", axes=[32] * 5), "byte 24: tensor 't' has 5 axes; ggml has at most 4"),
    (named("t", offset=32), "byte 24: tensor 't' is said to begin 32 bytes into the data; expected 0"),
    (named("t", offset=(1 << 64) - 1), "is said to begin 18,446,744,073,709,551,615 bytes"),
    (named("t", axes=[1 << 20]), "expected 1,114,112 bytes of tensor 't'; the file ends at"),
    (gguf([], [BLOCKS[1], BLOCKS[1]]), "the name of tensor 'blk.0.attn_norm.weight' stands twice"),
    (gguf([ENTRIES[0], ENTRIES[0]], []), "byte 47: the key 'general.u8' stands twice"),
    (gguf([entry(b"\xff", 0, b"\0")], []), "byte 32: a key of the metadata is not in UTF-8"),
    (gguf([struct.pack("<Q", 1 << 63) + bytes(20)], []), "bytes; none is so long"),
    (gguf([struct.pack("<Q", 60_000) + bytes(20)], []), "expected 60,000 bytes of a key"),
    (valued(13, b"\0"), "byte 33: the unknown type 13 of a value"),
    (valued(7, b"\2"), "byte 37: a bool of 2; expected 0 or 1"),
    (valued(8, struct.pack("<Q", 1 << 63)), "expected 9,223,372,036,854,775,808 bytes of a text"),
    (valued(9, array(13, 1, b"\0")), "byte 37: the unknown type 13 of an array"),
    (valued(9, array(0, 1 << 63, b"\0")), "expected 9,223,372,036,854,775,808 bytes of an array of 9,223"),
    (valued(9, array(8, 1 << 63, b"\0")), "bytes of an array of 9,223,372,036,854,775,808 elements"),
    (valued(9, array(9, 1, b"") * 6), "arrays more than 4 deep"),
    (aligned(4, struct.pack("<I", 3)), "general.alignment is 3; expected a power of two"),
    (aligned(4, struct.pack("<I", 0)), "general.alignment is 0; expected a power of two"),
    (aligned(7, b"\1"), "general.alignment is True"),
    (gguf([entry("split.count", 2, struct.pack("<H", 3))], BLOCKS), "split.count says 3 files"),
    (gguf([entry("split.tensors.count", 5, struct.pack("<i", 9))], BLOCKS), "says 9 tensors, and its files hold 3"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "reason"), WRONG_GGUF, ids=[reason for _, reason in WRONG_GGUF])
def test_gguf_that_is_wrong(content: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=reason) as raised:
        open_checkpoint(path)
    assert str(path) in str(raised.value)


def test_a_header_longer_than_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("narrowgauge.checkpoints.cursor.LONGEST_HEADER", 200)
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf(ENTRIES, BLOCKS))
    with pytest.raises(BadInput, match="none is so long"):
        of_gguf.tensors_of(path)


def test_a_file_cut_at_any_byte_is_refused(tmp_path: Path) -> None:
    """But for the padding behind the last tensor, which some writers leave out."""
    content = gguf(ENTRIES, BLOCKS)
    content = content[: len(content) - (-len(BLOCKS[-1].content) % 32)]
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    assert len(open_checkpoint(path).tensors) == 3
    for end in reversed(range(len(content))):
        os.truncate(path, end)
        assert refusal(path).startswith(f"{path}, byte ")
