"""Open a model's directory, or one file of it: headers and configuration, no tensor."""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from narrowgauge.checkpoints import of_gguf, of_safetensors, of_torch
from narrowgauge.checkpoints.configs import configs_of
from narrowgauge.checkpoints.index import Index, index_findings, index_of, read_index
from narrowgauge.checkpoints.listing import INDEX, SUFFIXES, Kind, Listing, chosen, kind_by_name, listing_of, parts_of
from narrowgauge.checkpoints.model import Checkpoint, Stored
from narrowgauge.checkpoints.source import Source, refused, short, unusable
from narrowgauge.contracts.errors import BadInput

Tensors = dict[str, Stored]
Reader = Callable[[Path], tuple[Tensors, Mapping[str, Any]]]
#: how a file of a kind is read, where it is read in this process
READERS: Mapping[Kind, Reader] = {"safetensors": of_safetensors.tensors_of, "gguf": of_gguf.tensors_of}


def open_checkpoint(path: Path, torch_weights: bool = False) -> Checkpoint:
    """What a model's folder, its index or one of its files holds; no tensor is read.

    ``torch_weights``: files of torch's are loaded too, by its weights-only loader in a process of its own.
    Raises ``BadInput`` with file and byte for what cannot be used, and ``Infrastructure`` where torch is needed and
    not installed.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise unusable(path, error) from error
    if stat.S_ISDIR(mode):
        return _folder(listing_of(path), torch_weights)
    if path.name.endswith(INDEX):
        return _indexed(path, torch_weights)
    kind = _kind_of(path)
    files = parts_of(path) if kind == "gguf" else [path]
    return _opened(path, kind, files, [], None, torch_weights)


def _folder(listing: Listing, torch_weights: bool) -> Checkpoint:
    kind = listing.kind
    if kind is None:
        below = f"; there are weights in {', '.join(listing.below)}: give one of these" if listing.below else ""
        other = f"; it has {', '.join(listing.unknown)}, which is not read here" if listing.unknown else ""
        looked = ", ".join(suffix for suffixes in SUFFIXES.values() for suffix in suffixes)
        raise BadInput(f"{listing.folder} holds no weights: no file that ends in {looked}{other}{below}")
    return _of_listing(listing, kind, index_of(listing, kind), torch_weights)


def _indexed(path: Path, torch_weights: bool) -> Checkpoint:
    kind = kind_by_name(path.name.removesuffix(INDEX))
    if kind is None:
        raise BadInput(f"{path} is the index of no kind of file that is read here")
    return _of_listing(listing_of(path.parent), kind, read_index(path), torch_weights)


def _of_listing(listing: Listing, kind: Kind, index: Index | None, torch_weights: bool) -> Checkpoint:
    files = chosen(listing, kind, index.files.values() if index else None)
    return _opened(listing.folder, kind, files.files, files.unread, index, torch_weights)


def _kind_of(path: Path) -> Kind:
    """The kind of a file, by how it begins, and else by its name."""
    with Source(path) as source:
        start = bytes(source.read(0, min(9, source.size), "a file"))
    if start[:4] == of_gguf.MAGIC:
        return "gguf"
    if of_torch.begins_so(start[:4]):
        return "torch"
    named = kind_by_name(path.name)
    if named is None and start[8:] != b"{":
        raise refused(
            path, 0, "neither name nor beginning is that of safetensors, GGUF or torch; give a model's folder or file"
        )
    return named or "safetensors"


def _opened(
    path: Path, kind: Kind, files: list[Path], unread: list[str], index: Index | None, torch_weights: bool
) -> Checkpoint:
    whole = path.is_dir()
    config, others, findings = configs_of(path if whole else path.parent, whole)
    tensors: Tensors = {}
    metadata: dict[str, Any] = {}
    temporary = None
    if kind == "torch":
        _refuse_unasked(path, files, torch_weights)
        loaded = of_torch.load(files, strict=index is not None or not whole)
        tensors, temporary, unread = loaded.tensors, loaded.temporary, [*unread, *loaded.unread]
    for file in files if kind != "torch" else ():
        found, said = READERS[kind](file)
        _refuse_twice(tensors, found)
        tensors |= found
        metadata = {**said, **metadata}
    if kind == "gguf":
        of_gguf.refuse_incomplete(path, metadata, tensors, len(files))
    if index:
        findings += index_findings(index, tensors)
    return Checkpoint(path, kind, tensors, config, others, metadata, tuple(unread), tuple(findings), temporary)


def _refuse_unasked(path: Path, files: list[Path], torch_weights: bool) -> None:
    if not torch_weights:
        raise BadInput(
            f"{path}: {files[0].name} holds a pickle, which can run code when it is loaded; with --torch-weights it is "
            "read by torch's weights-only loader, in a process of its own"
        )


def _refuse_twice(tensors: Tensors, more: Tensors) -> None:
    for name in more.keys() & tensors.keys():
        raise refused(
            more[name].path,
            more[name].start,
            f"tensor {short(name)} is in {tensors[name].path.name} too; give one file",
        )
