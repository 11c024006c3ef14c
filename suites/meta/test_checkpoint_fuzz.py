"""5,000 damaged files of every kind: each is refused with file and byte, or holds only tensors that lie in it.

No read leaves a file: a recording file object stands below everything that reads.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from narrowgauge.checkpoints import of_torch, source
from narrowgauge.checkpoints.opening import open_checkpoint
from narrowgauge.checkpoints.reading import elements, pieces
from narrowgauge.contracts.errors import BadInput
from narrowgauge.suites.meta.checkpoint_bytes import VALUES, Block, entry, gguf, random_bytes, safetensors, zipped
from narrowgauge.suites.meta.checkpoint_mutations import (
    BINARY,
    Mutation,
    mutated,
    recounted,
    report_mutated,
    retold,
    with_other_header,
)

pytestmark = pytest.mark.meta

#: how many damaged files of each kind
COUNT = 1000


class Recorded(io.FileIO):
    """A file that ends the test where somebody reads outside it."""

    reads = 0

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "rb")
        self.size = os.fstat(descriptor).st_size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        assert whence == io.SEEK_SET
        assert 0 <= offset <= self.size
        return super().seek(offset)

    def readinto(self, buffer: Any) -> int:
        assert self.tell() + memoryview(buffer).nbytes <= self.size
        Recorded.reads += 1
        return super().readinto(buffer) or 0


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(source, "raw", Recorded)
    Recorded.reads = 0
    yield
    assert Recorded.reads > COUNT


def tried(given: Path, files: set[Path]) -> str:
    """Open it and read every byte and code; "" where that goes, else why it is refused."""
    try:
        found = open_checkpoint(given, torch_weights=True)
    except BadInput as error:
        return str(error)
    for tensor in found.tensors.values():
        assert tensor.path in files or found.temporary
        assert 0 <= tensor.start <= tensor.start + tensor.size <= tensor.path.stat().st_size
        assert sum(piece.size for piece in pieces(tensor, 7)) == tensor.size
        if tensor.format:
            assert sum(piece.data.size for piece in elements(tensor)) >= tensor.size // 8
    return ""


def reasons(said: Counter[str]) -> set[str]:
    """Kinds of refusals: numbers and names do not count."""
    return {re.sub(r"'[^']*'|\"[^\"]*\"|[\d,]+", "#", text) for text in said}


def shaken(path: Path, content: bytes, mutations: tuple[Mutation, ...], given: Path | None = None) -> Counter[str]:
    """How often a damaged file is refused for which reason."""
    said: Counter[str] = Counter()
    every = {path, *path.parent.iterdir()}
    for seed in range(COUNT):
        path.write_bytes(mutated(seed, content, mutations))
        found = tried(given or path, every)
        assert not found or any(str(one) in found for one in every)
        said[found.replace(str(path), "FILE")] += 1
    return said


def test_safetensors(tmp_path: Path) -> None:
    tensors = {
        "model.embed_tokens.weight": ("F8_E4M3", [4, 3], random_bytes(1, 12)), "a.scale": ("F32", [], bytes(4)),
        "packed": ("F4", [2, 4], random_bytes(2, 4)), "none": ("BF16", [0, 7], b""), "b": ("I64", [2], bytes(16)),
    }  # fmt: skip
    content = safetensors(tensors, {"format": "pt"})
    said = shaken(tmp_path / "x.safetensors", content, (*BINARY, *[with_other_header] * 6))
    assert len(reasons(said)) > 24
    assert said[""] > 20
    assert all(re.match(r"FILE, byte [\d,]+: ", text) for text in said if text)


def test_gguf(tmp_path: Path) -> None:
    blocks = [
        Block("token_embd.weight", 8, (32, 2), random_bytes(1, 68)), Block("n", 0, (3,), random_bytes(2, 12)),
        Block("e", 40, (64, 1, 1), random_bytes(3, 36)),
    ]  # fmt: skip
    content = gguf([entry(key, kind, value) for key, kind, value, _ in VALUES], blocks)
    said = shaken(tmp_path / "x.gguf", content, BINARY)
    assert len(reasons(said)) > 30
    assert said[""] > 50
    assert all(re.match(r"FILE, byte [\d,]+: |FILE: split", text) for text in said if text)


def test_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This side of the child: the directory of the zip file, and what a child might say of it."""
    content = zipped(
        {"a/data.pkl": b"\x80\x02}.", "a/byteorder": b"little", "a/data/0": bytes(64), "a/data/1": bytes(9)}
    )
    path = tmp_path / "x.pt"
    path.write_bytes(content)
    rng = random.Random(0)
    start = content.index(bytes(64))
    report = {"name": "t", "dtype": "float32", "shape": [4, 4], "file": 0, "start": start, "size": 64}
    other = {"name": "u", "dtype": "uint8", "shape": [9], "file": 0, "start": content.index(b"a/data/1") + 8, "size": 9}

    def child(module: str, arguments: list[str], what: str, told: Callable[[dict[str, Any]], None]) -> None:
        Path(arguments[0]).write_bytes(b"")
        for one in (report, other):
            told(report_mutated(rng, one) if rng.random() < 0.3 else dict(one))

    monkeypatch.setattr(of_torch, "follow", child)
    assert tried(path, {path}) == ""
    said = shaken(path, content, BINARY)
    assert len(reasons(said)) > 15
    assert said[""] > 50


def test_indexes_and_configurations(tmp_path: Path) -> None:
    """JSON beside a good file: refused with file and byte, and never another error."""
    for name, tensor in (("a.safetensors", "one"), ("b.safetensors", "two")):
        (tmp_path / name).write_bytes(safetensors({tensor: ("U8", [1], b"\1")}))
    index = {"metadata": {"total_size": 2}, "weight_map": {"one": "a.safetensors", "two": "b.safetensors"}}
    config = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128], "ü": None, "x": -1.5e3}}
    for name, said in (("model.safetensors.index.json", index), ("config.json", config)):
        text = json.dumps(said).encode()
        path = tmp_path / name
        path.write_bytes(text)
        assert tried(tmp_path, set(tmp_path.iterdir())) == ""
        found = shaken(path, text, (flip_text, retold, recounted, recounted), tmp_path)
        assert len(reasons(found)) > 12
        assert found[""] > 50
        assert all(re.match(r"FILE, byte [\d,]+: ", text) for text in found if text)
        path.write_bytes(text)


def flip_text(rng: random.Random, content: bytes) -> bytes:
    return mutated(rng.randrange(1 << 30), content)
