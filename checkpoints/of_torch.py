"""Files of torch's: loaded in a child, by the weights-only loader alone; here only places of bytes are held."""

from __future__ import annotations

import importlib.util
import math
import shutil
import sys
import tempfile
import weakref
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from narrowgauge.checkpoints.dtypes import TORCH
from narrowgauge.checkpoints.model import Stored
from narrowgauge.checkpoints.roles import role_of
from narrowgauge.checkpoints.source import Source, refused, short
from narrowgauge.checkpoints.zip_records import Record, records_of
from narrowgauge.contracts.errors import BadInput, Infrastructure
from narrowgauge.devices.following import follow

ZIP, PICKLES = b"PK\x03\x04", tuple(bytes((0x80, protocol)) for protocol in range(2, 6))


class Scratch:
    """A folder that goes with this object, or at the end of the process."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="narrowgauge-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass
class Loaded:
    """What files hold."""

    tensors: dict[str, Stored] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    temporary: Scratch | None = None  #: the folder of what was copied


def begins_so(start: bytes) -> bool:
    """Whether a file that begins with these four bytes can be one of torch's."""
    return start.startswith((ZIP, *PICKLES))


def load(paths: Sequence[Path], strict: bool = True) -> Loaded:
    """The tensors of files, by one child. Without ``strict``, what does not begin as torch's files do is passed over.

    Raises ``BadInput`` where torch's weights-only loader refuses a file, and ``Infrastructure`` where torch is not
    installed.
    """
    passed = [] if strict else [path for path in paths if not begins_so(_start(path))]
    paths = [path for path in paths if path not in passed] or paths
    records = [_records(path) for path in paths]
    if importlib.util.find_spec("torch") is None:
        raise Infrastructure("torch is not installed; its files are read by its own weights-only loader alone")
    temporary = Scratch()
    out = temporary.path / "copied"
    reports: list[dict[str, Any]] = []
    given = [
        f"{'map' if mappable(one) else 'copy'}:{path.absolute()}" for path, one in zip(paths, records, strict=True)
    ]
    follow("torch_files", [str(out), *given], f"the process that loaded {paths[0]}", reports.append)
    found = Loaded(unread=[f"{path.name}: no file of torch's" for path in passed], temporary=temporary)
    for report in reports:
        placed(report, found, paths, records, out)
    if not found.tensors:
        raise BadInput(f"{paths[0]} holds no tensor")
    return found


def _start(path: Path) -> bytes:
    with Source(path) as source:
        return source.read(0, min(4, source.size), "a file of torch's")


def _records(path: Path) -> list[Record] | None:
    """Those of a zip file; None for a file from before torch 1.6, which is none."""
    with Source(path) as source:
        start = source.read(0, min(4, source.size), "a file of torch's")
        if start.startswith(ZIP):
            return records_of(source)
        if start.startswith(PICKLES):
            return None
        raise refused(path, 0, f"no file of torch's: it begins with {start!r}")


def mappable(records: list[Record] | None) -> bool:
    """Whether the bytes of tensors stand in the file as this machine reads them: uncompressed, in its byte order."""
    if records is None or not all(record.stored for record in records):
        return False
    return not any(record.name.endswith("/byteorder") and record.size != len(sys.byteorder) for record in records)


def placed(
    report: Mapping[str, Any], found: Loaded, paths: Sequence[Path], records: Sequence[list[Record] | None], out: Path
) -> None:
    """Take down a tensor of which the child tells, where its bytes are those of one record of the file.

    Raises ``BadInput`` for a name that two have, or a place that is none.
    """
    if "unread" in report:
        found.unread.append(f"{report['unread']}: {report['why']}")
        return
    name, dtype, shape, number = report["name"], report["dtype"], tuple(report["shape"]), report["file"]
    start, size = report["start"], report["size"]
    path = paths[number] if number >= 0 else out
    if dtype not in TORCH:
        found.unread.append(f"{name}: of {dtype}, which is not known")
        return
    unit = TORCH[dtype]
    if unit.elements > 1 and shape:
        # torch counts the bytes along the last axis, and each holds so many elements
        shape = (*shape[:-1], shape[-1] * unit.elements)
    if name in found.tensors:
        raise refused(path, start, f"two tensors have the name {short(name)}")
    if math.prod(shape) * unit.bytes != size * unit.elements:
        raise refused(path, start, f"tensor {short(name)} is {dtype} {list(shape)} in {size:,} bytes")
    if number >= 0 and not _in_one(records[number] or [], start, size):
        raise refused(path, start, f"tensor {short(name)} of {size:,} bytes lies in no record of the zip file")
    found.tensors[name] = Stored(name, dtype, shape, path, start, size, unit.format, role_of(name))


def _in_one(records: list[Record], start: int, size: int) -> bool:
    place = bisect_right(records, start, key=lambda record: record.start) - 1
    return place >= 0 and start + size <= records[place].start + records[place].size
