"""Linear layers of a capture file, and what recipes cost each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.golden.safetensors_file import Stored, TensorFile, metadata_of, read
from narrowgauge.reference.layers import OfLayer, Pair, measure_layer
from narrowgauge.reference.recipe_data import SOURCES

INPUT, WEIGHT = ".input", ".weight"


@dataclass(frozen=True)
class Capture:
    """What a file holds: each layer's input and weight."""

    layers: dict[str, tuple[Coded, Coded]]
    about: dict[str, Any]  #: what the capture wrote of itself; empty for a file of somebody else


def read_capture(path: Path) -> Capture:
    """Layers of a file: each tensor ``NAME.input`` [.., features] with its ``NAME.weight`` [outputs, features].

    Raises ``BadInput`` that names the tensor that is missing, of another shape or of another format.
    """
    file = read(path)
    names = sorted({n.removesuffix(end) for n in file.tensors for end in (INPUT, WEIGHT) if n.endswith(end)})
    if not names:
        raise BadInput(f"{path} holds no layer: expected tensors NAME{INPUT} and NAME{WEIGHT}")
    return Capture({name: _layer(path, file, name) for name in names}, _about(file, path))


def _about(file: TensorFile, path: Path) -> dict[str, Any]:
    return metadata_of(file, path) if "narrowgauge" in file.metadata else {}


def _layer(path: Path, file: TensorFile, name: str) -> tuple[Coded, Coded]:
    for end in (INPUT, WEIGHT):
        if name + end not in file.tensors:
            raise BadInput(f"{path}: layer {name!r} has no tensor {name + end!r}")
    x, weight = (_coded(path, name + end, file.tensors[name + end]) for end in (INPUT, WEIGHT))
    if x.data.ndim < 1 or weight.data.ndim != 2 or x.shape[-1] != weight.shape[1]:
        shapes = f"input {list(x.shape)}, weight {list(weight.shape)}"
        raise BadInput(f"{path}: layer {name!r} has {shapes}; expected [.., features] and [outputs, features]")
    if not x.data.size or not weight.data.size:
        raise BadInput(f"{path}: layer {name!r} is empty: input {list(x.shape)}, weight {list(weight.shape)}")
    return Coded(x.format, x.data.reshape(-1, x.shape[-1])), weight


def _coded(path: Path, name: str, tensor: Stored) -> Coded:
    if tensor.format not in SOURCES:
        raise BadInput(
            f"{path}: tensor {name!r} is {tensor.format or tensor.data.dtype}; expected {', '.join(SOURCES)}"
        )
    return tensor.as_format(tensor.format)


def measure_layers(capture: Capture, pairs: Sequence[Pair]) -> Iterator[tuple[OfLayer, ...]]:
    """Every layer under every pair, in the order of the file."""
    for name, (x, weight) in capture.layers.items():
        yield tuple(measure_layer(name, x, weight, pair) for pair in pairs)


def worst_first(found: Sequence[tuple[OfLayer, ...]]) -> list[tuple[OfLayer, ...]]:
    """Layers by the first pair: those that lose elements, then by decibels of the output; refused ones last."""
    return sorted(found, key=lambda each: each[0].worst_first)
