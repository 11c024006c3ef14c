"""Memory does not grow with the file: sparse files of many GiB, read in a process whose memory is limited."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from narrowgauge.devices.device import ROOT
from narrowgauge.suites.meta.checkpoint_bytes import Block, entry, gguf

pytestmark = pytest.mark.meta

#: holes in files of memory cost nothing to read; elsewhere they fill the page cache, and a shorter file must do
HOLES = Path("/dev/shm")
SIZE = (16 << 30) + 4096 if os.access(HOLES, os.W_OK) else 1 << 29
#: how much more memory the large file may take than one of 1 MiB: a piece, and what Python needs
ROOM = 24 << 20
#: run with a small and a large file: the most memory that it ever had, after each. Addresses are limited, so that a
#: reader that takes the file whole fails, and does not take the machine with it
_READ = """
import re, resource, sys
sys.path.append(sys.argv[1])
from pathlib import Path
from narrowgauge.checkpoints.opening import open_checkpoint
from narrowgauge.checkpoints.reading import pieces
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
for path in sys.argv[2:]:
    total = 0
    for tensor in open_checkpoint(Path(path)).tensors.values():
        for piece in pieces(tensor):
            total += piece.size
    print(total, 1024 * int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]))
"""


def sparse(path: Path, size: int) -> None:
    """A file of two tensors, zeros but for the first byte, most of it a hole."""
    half = size // 2
    tensors = {n: {"dtype": "F8_E4M3", "shape": [half], "data_offsets": [n * half, (n + 1) * half]} for n in (0, 1)}
    header = json.dumps({f"t{n}": one for n, one in tensors.items()}).encode()
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header + b"\1")
        file.truncate(8 + len(header) + size)


def sparse_gguf(path: Path, size: int) -> None:
    content = gguf([entry("k", 0, b"\1")], [Block("t", 24, (size,), b"")])
    with open(path, "wb") as file:
        file.write(content)
        file.truncate(len(content) + size)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where holes cost nothing, if there is such a place."""
    if SIZE < 1 << 30:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=HOLES) as made:
        yield Path(made)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc, which is Linux's")
@pytest.mark.parametrize("write", [sparse, sparse_gguf])
def test_memory_does_not_grow(write: Callable[[Path, int], None], folder: Path) -> None:
    sizes = (1 << 20, SIZE)
    paths = [folder / f"{size}.{'gguf' if write is sparse_gguf else 'safetensors'}" for size in sizes]
    for path, size in zip(paths, sizes, strict=True):
        write(path, size)
    done = subprocess.run(
        [sys.executable, "-c", _READ, ROOT, *map(str, paths)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    small, large = (tuple(map(int, line.split())) for line in done.stdout.splitlines())
    assert (small[0], large[0]) == sizes
    assert large[1] - small[1] < ROOM
