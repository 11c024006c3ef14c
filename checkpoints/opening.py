"""Open a model's directory, or one file of it: headers and configuration, no tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from narrowgauge.checkpoints.model import Checkpoint, Stored
from narrowgauge.checkpoints.objects import object_at
from narrowgauge.checkpoints.of_safetensors import tensors_of
from narrowgauge.contracts.errors import BadInput


def open_checkpoint(path: Path, torch_weights: bool = False) -> Checkpoint:
    """What a folder or file holds. Raises ``BadInput`` with file and byte for what cannot be used."""
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files:
        raise BadInput(f"{path} holds no safetensors file")
    tensors: dict[str, Stored] = {}
    metadata: dict[str, Any] = {}
    for file in files:
        found, said = tensors_of(file)
        for name in found.keys() & tensors.keys():
            raise BadInput(f"tensor {name!r} is in {tensors[name].path} and in {file}")
        tensors |= found
        metadata |= said
    folder = path if path.is_dir() else path.parent
    return Checkpoint(path, "safetensors", tensors, object_at(folder / "config.json"), {}, metadata)
