"""Which files of a folder are the model's, and why the others are passed over."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

from narrowgauge.checkpoints.source import unusable
from narrowgauge.contracts.errors import BadInput

Kind = Literal["safetensors", "gguf", "torch"]

#: how names of files with weights end, by kind; the first kind that a folder has is read
SUFFIXES: Mapping[Kind, tuple[str, ...]] = {
    "safetensors": (".safetensors",),
    "gguf": (".gguf",),
    "torch": (".bin", ".pt", ".pth", ".pth.tar", ".ckpt"),
}
#: weights of kinds that are not read here
UNKNOWN = (".onnx", ".h5", ".msgpack", ".npz", ".tflite", ".pdparams", ".pkl", ".ot", ".mlmodel", ".ggml", ".nemo")
INDEX = ".index.json"
#: what lies beside a model and is none of its weights, by pattern
ASIDE: Mapping[str, str] = {
    "training_args.bin": "arguments of a training run",
    "scheduler.pt": "the state of a learning rate's schedule",
    "scaler.pt": "the state of a loss scaler",
    "rng_state*.pth": "states of random numbers",
    "mmproj*.gguf": "the projector of another modality; give the file itself to read it",
    "consolidated*.safetensors": "the model again in its first names; give the file itself to read it",
}
_NUMBERED = re.compile(r"(.*)-(\d+)-of-(\d+)(\.\w+)")


@dataclass
class Listing:
    """Names in a folder that say weights."""

    folder: Path
    files: dict[Kind, list[str]] = field(default_factory=lambda: {kind: [] for kind in SUFFIXES})
    indexes: dict[Kind, list[str]] = field(default_factory=lambda: {kind: [] for kind in SUFFIXES})
    unknown: list[str] = field(default_factory=list)
    below: list[str] = field(default_factory=list)  #: folders in it that have weights

    @property
    def kind(self) -> Kind | None:
        return next((kind for kind in SUFFIXES if self.files[kind] or self.indexes[kind]), None)


@dataclass
class Chosen:
    """Files that are read, and what is passed over, each with the reason."""

    files: list[Path]
    unread: list[str]


def listing_of(folder: Path) -> Listing:
    """What a folder holds. Raises ``BadInput`` where it cannot be read."""
    found = Listing(folder)
    for name in names_in(folder):
        index = name.endswith(INDEX)
        kind = kind_by_name(name.removesuffix(INDEX))
        if kind:
            (found.indexes if index else found.files)[kind].append(name)
        elif name.endswith(UNKNOWN):
            found.unknown.append(name)
        elif os.path.isdir(folder / name) and any(map(kind_by_name, names_in(folder / name, strict=False))):
            found.below.append(name)
    return found


def kind_by_name(name: str) -> Kind | None:
    """The kind of weights that a name says."""
    return next((kind for kind, suffixes in SUFFIXES.items() if name.endswith(suffixes)), None)


def chosen(listing: Listing, kind: Kind, named: Iterable[str] | None) -> Chosen:
    """The files of a kind that are the model's: those that an index names, or all but those that lie beside it.

    Raises ``BadInput`` for parts that are missing, and where several models lie in one folder.
    """
    every = listing.files[kind]
    unread = dict.fromkeys(listing.unknown, "a kind of weights that is not read here")
    unread |= {f"{name}/": "a folder of weights of its own; give it to read it" for name in listing.below}
    for other in SUFFIXES:
        if other != kind:
            unread |= dict.fromkeys(listing.files[other], f"the {kind} files are read in its place")
    if named is not None:
        names = sorted(set(named))
        unread |= {name: "the index does not name it" for name in every if name not in names}
    else:
        aside = {name: why for name in every for pattern, why in ASIDE.items() if fnmatch(name, pattern)}
        names = [name for name in every if name not in aside] or every
        unread |= {name: why for name, why in aside.items() if name not in names}
        _refuse_missing(listing.folder, names)
        if kind == "gguf" and len(models := _models(names)) > 1:
            raise BadInput(f"{listing.folder} holds several models: {', '.join(models)}; give one file")
    return Chosen([listing.folder / name for name in names], [f"{name}: {why}" for name, why in sorted(unread.items())])


def parts_of(path: Path) -> list[Path]:
    """All parts of a file whose name numbers it among several. Raises ``BadInput`` where one is missing."""
    if not _NUMBERED.fullmatch(path.name):
        return [path]
    names = [name for name in names_in(path.parent) if _model(name) == _model(path.name)]
    _refuse_missing(path.parent, names)
    return [path.parent / name for name in names]


def _model(name: str) -> tuple[str, ...]:
    """What parts of one model have in common: all but their number."""
    match = _NUMBERED.fullmatch(name)
    return (match[1], match[3], match[4]) if match else (name,)


def _models(names: Iterable[str]) -> list[str]:
    return sorted({_model(name): name for name in reversed(list(names))}.values())


def _refuse_missing(folder: Path, names: Iterable[str]) -> None:
    parts: dict[tuple[str, ...], set[int]] = {}
    for name in names:
        if match := _NUMBERED.fullmatch(name):
            parts.setdefault(_model(name), set()).add(int(match[2]))
    for (stem, total, suffix), found in ((key, found) for key, found in parts.items() if len(key) == 3):
        count = int(total) if len(total) < 7 else 0
        if len(found) < count or max(found) > count:
            first = next((n for n in range(1, count + 1) if n not in found), max(found))
            raise BadInput(
                f"{folder} has {len(found)} of {total} parts of {stem}{suffix}: part {first:0{len(total)}} is missing"
            )


def names_in(folder: Path, strict: bool = True) -> list[str]:
    """What lies in a folder. Raises ``BadInput`` where it cannot be read; without ``strict`` it is then empty."""
    try:
        return sorted(os.listdir(folder))
    except OSError as error:
        if strict:
            raise unusable(folder, error) from error
        return []
