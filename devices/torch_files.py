"""The child that loads files of torch's with its weights-only loader, and says where their tensors stand.

A zip file is mapped: of a tensor that lies in it as it is only the place is told. Others are copied into a file.
"""

from __future__ import annotations

import argparse
import json
import os
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from narrowgauge.contracts.errors import BadInput

#: levels of dicts and lists, things in them, and bytes that are copied at once
DEEPEST, MOST, PIECE = 32, 1 << 22, 1 << 24
#: how the line begins in which torch says what it does not load
_SAYS = ("WeightsUnpickler error:", "Unsupported", "Cannot use")


def load(path: Path, mapped: bool) -> Any:
    """What a file holds. Raises ``BadInput`` with torch's reason where its weights-only loader refuses it."""
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:  # a file of somebody else's: whatever the loader raises is why it is not read
        lines = [line.strip() for line in f"{error}".splitlines() if line.strip()]
        said = [line[line.index(word) :] for line in lines for word in _SAYS if word in line] or lines
        reason = said[0].removeprefix(_SAYS[0]).strip() if said else type(error).__name__
        reason = reason.partition(" Please use")[0]
        raise BadInput(
            f"{path}: torch's weights-only loader refuses it, and it is never loaded without: {reason[:300]}"
        ) from None


def named(found: Any) -> Iterator[tuple[str, Any]]:
    """The tensors in dicts and lists, with dotted names. Raises ``BadInput`` for what has no end."""
    import torch

    left, seen = [("", found, 0)], 0
    while left:
        name, one, depth = left.pop()
        seen += 1
        if depth > DEEPEST or seen > MOST:
            raise BadInput(f"{name[:100]!r} is more than {DEEPEST} levels deep, or one of more than {MOST:,} things")
        if isinstance(one, torch.Tensor):
            yield name or "tensor", one
        elif isinstance(one, dict | list | tuple):
            inner = list(one.items()) if isinstance(one, dict) else list(enumerate(one))
            left += [(f"{name}.{key}" if name else str(key), value, depth + 1) for key, value in reversed(inner)]


class Places:
    """Where in a mapped file an address of this process stands (Linux: /proc/self/maps)."""

    def __init__(self, path: Path) -> None:
        self.spans: list[tuple[int, int, int]] = []  #: first address, last, place in the file
        found, maps = path.stat(), Path("/proc/self/maps")
        for line in maps.read_text(errors="replace").splitlines() if maps.exists() else ():
            addresses, _, offset, device, inode = line.split(maxsplit=5)[:5]
            major, minor = (int(part, 16) for part in device.split(":"))
            if int(inode) == found.st_ino and os.makedev(major, minor) == found.st_dev:
                first, last = (int(part, 16) for part in addresses.split("-"))
                self.spans.append((first, last, int(offset, 16)))

    def of(self, address: int, size: int) -> int | None:
        """The byte of the file; None where it is not mapped there."""
        for first, last, offset in self.spans:
            if first <= address <= address + size <= last:
                return address - first + offset
        return None


def plain_dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def refusal(tensor: Any) -> str:
    """Why the bytes of a tensor cannot be told; "" where they can."""
    import torch

    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        return f"a {type(tensor).__name__}"
    if tensor.layout is not torch.strided:
        return f"{str(tensor.layout).removeprefix('torch.')}, and not dense"
    if tensor.device.type != "cpu":
        return f"without values, on the {tensor.device.type} device"
    if tensor.numel() * tensor.element_size() > max(PIECE, tensor.untyped_storage().nbytes()):
        return "a few values, repeated"
    return ""


class Writer:
    """The file of what is copied."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.at = file, 0

    def write(self, tensor: Any) -> int:
        """Append the elements of a tensor in the order of its shape, in pieces; where they begin."""
        start = self.at
        for piece in _pieces(tensor):
            self.at += self.file.write(piece)
        return start


def _pieces(tensor: Any) -> Iterator[bytes]:
    import torch

    if tensor.numel() * tensor.element_size() > PIECE and tensor.dim() and len(tensor) > 1:
        for part in tensor.tensor_split(2):
            yield from _pieces(part)
    elif tensor.numel():
        plain = tensor.int_repr() if tensor.is_quantized else tensor
        flat = plain.resolve_conj().resolve_neg().contiguous().reshape(-1)
        yield flat.view(torch.uint8).numpy().tobytes()


def tell(path: Path, number: int, mapped: bool, writer: Writer, report: Callable[..., None]) -> None:
    """Load a file and report each of its tensors: its place in the file, which is ``number``, or in the copy, -1."""
    found = load(path, mapped)
    places = Places(path) if mapped else None
    for name, tensor in named(found):
        if why := refusal(tensor):
            report(unread=name, why=why)
            continue
        tensor = tensor.detach()
        size, start = tensor.numel() * tensor.element_size(), None
        if places and size and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
            start = places.of(tensor.data_ptr(), size)
        file = number if start is not None else -1
        start = writer.write(tensor) if start is None else start
        report(name=name, dtype=plain_dtype(tensor), shape=list(tensor.shape), file=file, start=start, size=size)


def main() -> None:
    """Tell of each file and end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("pipe", type=int)
    parser.add_argument("out", type=Path)
    parser.add_argument("files", nargs="*", help="map:PATH or copy:PATH")
    arguments = parser.parse_args()
    with os.fdopen(arguments.pipe, "w", buffering=1) as pipe, open(arguments.out, "wb") as file:

        def report(**said: Any) -> None:
            pipe.write(json.dumps(said) + "\n")

        try:
            writer = Writer(file)
            for number, given in enumerate(arguments.files):
                how, _, path = given.partition(":")
                tell(Path(path), number, how == "map", writer, report)
            file.flush()
            report(done=True)
        except BadInput as error:
            report(refused=str(error))
        except BaseException as error:  # a file of somebody else's: whatever comes of it, the parent must hear of it
            traceback.print_exception(error)
            report(refused=f"{arguments.files}: {type(error).__name__}: {str(error)[:200]}")
