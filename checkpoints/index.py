"""The index of a sharded checkpoint: which file each tensor is in, and whether that is so."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from narrowgauge.checkpoints.findings import Finding
from narrowgauge.checkpoints.listing import INDEX, Kind, Listing
from narrowgauge.checkpoints.model import Stored
from narrowgauge.checkpoints.objects import object_in, text_of
from narrowgauge.checkpoints.source import refused, short
from narrowgauge.contracts.errors import BadInput

#: names of tensors that a finding spells out
SHOWN = 3


@dataclass(frozen=True)
class Index:
    """What an index says."""

    path: Path
    files: Mapping[str, str]  #: by tensor
    total: int | None  #: bytes of all tensors; None where it does not say


def index_of(listing: Listing, kind: Kind) -> Index | None:
    """The index of a folder's files of a kind; None without one. Raises ``BadInput`` where several could be meant."""
    names = listing.indexes[kind]
    if not names:
        return None
    usual = [name for name in names if name.removesuffix(INDEX) in ("model.safetensors", "pytorch_model.bin")]
    if len(usual or names) > 1:
        raise BadInput(f"{listing.folder} has several indexes: {', '.join(names)}; give one of them")
    return read_index(listing.folder / (usual or names)[0])


def read_index(path: Path) -> Index:
    """An index, whose files are all there. Raises ``BadInput`` with its byte for what it names and is not."""
    content = text_of(path)
    said = object_in(content, path)
    files, metadata = said.get("weight_map"), said.get("metadata")
    if not isinstance(files, dict) or not files:
        raise refused(path, 0, "an index needs a weight_map: the file of each tensor by name")
    named = {file for file in files.values() if isinstance(file, str)}  # of a hundred thousand tensors, a few files
    beside = {file for file in named if _beside(file)}
    for tensor, file in files.items():
        if not isinstance(file, str) or file not in beside:
            raise refused(
                path, _at(content, tensor), f"tensor {short(tensor)} needs the name of a file beside the index"
            )
    missing = sorted(file for file in named if not os.path.isfile(path.parent / file))
    if missing:
        more = f", and {len(missing) - 1} more of {len(named)}" if len(missing) > 1 else ""
        raise refused(path, _at(content, missing[0]), f"the file {short(missing[0])} that it names is missing{more}")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    return Index(path, files, int(total) if isinstance(total, int | float) and abs(total) < 1 << 63 else None)


def index_findings(index: Index, tensors: Mapping[str, Stored]) -> list[Finding]:
    """Where an index and its files differ."""
    lost = [name for name in index.files if name not in tensors]
    elsewhere = [n for n, file in index.files.items() if n in tensors and tensors[n].path.name != file]
    unnamed = [name for name in tensors if name not in index.files]
    found = [
        Finding(kind, f"{index.path.name}: {len(names):,} tensors, {_shown(names)}", names[0])
        for kind, names in (
            ("index names absent tensors", lost),
            ("index names another file", elsewhere),
            ("index lacks tensors", unnamed),
        )
        if names
    ]
    having = sum(one.size for one in tensors.values())
    if index.total is not None and index.total != having:
        found.append(
            Finding("index size", f"{index.path.name} says {index.total:,} bytes; the tensors have {having:,}")
        )
    return found


def _beside(name: str) -> bool:
    """Whether a name is that of a file in the same folder."""
    return bool(name) and Path(name).name == name and "\0" not in name


def _at(content: bytes, name: str) -> int:
    return max(0, content.find(json.dumps(name).encode()))


def _shown(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (" …" if len(names) > SHOWN else "")
