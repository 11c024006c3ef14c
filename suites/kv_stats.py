"""Read, merge and write the file of a key-value capture (docs/kv.md), whoever wrote it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts import kv_file
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.files import write_whole
from narrowgauge.contracts.kv_file import AMAX, CODES, COUNTS, PARTS, tensor_name
from narrowgauge.golden.safetensors_file import TensorFile, metadata_of, read
from narrowgauge.reference.kv.histogram import Histogram, checked, merged

#: layer -> part -> what it held
Layers = dict[str, dict[str, Histogram]]


@dataclass(frozen=True, eq=False)
class Stats:
    """What a file holds."""

    layers: Layers
    model: str
    tokens: int
    made_by: dict[str, str]  #: program -> version

    def about(self) -> dict[str, Any]:
        """Everything but the numbers."""
        return {"model": self.model, "tokens": self.tokens, "made_by": self.made_by, "layers": len(self.layers)}


def number_of(layer: str) -> int | None:
    """The number of a layer in its model: the first whole number in its name; None where there is none."""
    found = re.search(r"(?:^|[._/ ])(\d+)(?:$|[._/ ])", layer)
    return int(found[1]) if found else None


def in_order(layers: Layers) -> Layers:
    """By number, then by name; layers without a number last."""

    def place(name: str) -> tuple[bool, int, str]:
        number = number_of(name)
        return number is None, number or 0, name

    return {name: layers[name] for name in sorted(layers, key=place)}


def read_stats(path: Path) -> Stats:
    """A file as somebody wrote it. Raises ``BadInput`` that names file, layer and part for what is wrong with it."""
    file = read(path)
    about = metadata_of(file, path)
    if about.get("kind") != kv_file.KIND:
        raise BadInput(f"{path} is a file of kind {about.get('kind')!r}; expected {kv_file.KIND!r} (docs/kv.md)")
    if about.get("version") != kv_file.VERSION:
        raise BadInput(f"{path} has version {about.get('version')!r}; this program reads version {kv_file.VERSION}")
    layers = about.get("layers")
    if not isinstance(layers, dict) or not layers:
        raise BadInput(f"{path}: 'layers' in its metadata names no layer")
    model, tokens, made_by = about.get("model", ""), about.get("tokens", 0), about.get("made_by", {})
    if not isinstance(model, str) or not _is_count(tokens) or not _is_words(made_by):
        raise BadInput(f"{path}: metadata need 'model' (a text), 'tokens' (a number), 'made_by' (names to texts)")
    found: Layers = {}
    for layer, parts in layers.items():
        if not isinstance(parts, dict) or not parts or not set(parts) <= PARTS.keys():
            raise BadInput(f"{path}: layer {layer!r}: expected an object with parts of {', '.join(PARTS)}")
        found[layer] = {part: _histogram(path, file, layer, part, said) for part, said in parts.items()}
    stray = file.tensors.keys() - {tensor_name(n, p, w) for n in found for p in found[n] for w in (CODES, COUNTS, AMAX)}
    if stray:
        raise BadInput(f"{path}: tensor {min(stray)!r} belongs to no layer and part of the metadata")
    return Stats(in_order(found), model, tokens, dict(made_by))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_words(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(v, str) for v in value.values())


def _histogram(path: Path, file: TensorFile, layer: str, part: str, said: Any) -> Histogram:
    where = f"{path}: layer {layer!r}, {part}"
    if not isinstance(said, dict) or not isinstance(said.get("format"), str):
        raise BadInput(f"{where}: expected an object with 'format'")
    numbers = {name: said.get(name, 0) for name in ("nan", "inf")}
    words = {name: said.get(name, default) for name, default in (("place", "cache"), ("rope", "none"))}
    if not all(_is_count(n) for n in numbers.values()) or not all(isinstance(w, str) for w in words.values()):
        raise BadInput(f"{where}: 'nan' and 'inf' are numbers of elements, 'place' and 'rope' are words")
    codes, counts = (_integers(where, file, tensor_name(layer, part, which)) for which in (CODES, COUNTS))
    amax = _tensor(where, file, tensor_name(layer, part, AMAX))
    if amax.format != "float32":
        raise BadInput(f"{where}: amax is {amax.format or amax.data.dtype}; expected float32, one number a head")
    found = Histogram(said["format"], codes, counts, **numbers, amax=amax.data.view(np.float32), **words)
    return checked(found, where)


def _tensor(where: str, file: TensorFile, name: str) -> Any:
    if name not in file.tensors:
        raise BadInput(f"{where}: no tensor {name!r}")
    return file.tensors[name]


def _integers(where: str, file: TensorFile, name: str) -> npt.NDArray[np.int64]:
    tensor = _tensor(where, file, name)
    if tensor.format:
        raise BadInput(f"{where}: tensor {name!r} is {tensor.format}; expected integers")
    if tensor.data.size and tensor.data.max() > np.iinfo(np.int64).max:
        raise BadInput(f"{where}: tensor {name!r} holds numbers of 2^63 and more")
    numbers: npt.NDArray[np.int64] = tensor.data.astype(np.int64)
    return numbers


def merge_stats(every: Sequence[tuple[Path, Stats]]) -> Stats:
    """One of what several files say of one model: all have the same layers and parts. Raises ``BadInput``."""
    first_path, first = every[0]
    shape = {layer: set(parts) for layer, parts in first.layers.items()}
    for path, other in every[1:]:
        if {layer: set(parts) for layer, parts in other.layers.items()} != shape:
            raise BadInput(f"{first_path} and {path} do not have the same layers and parts: they are not of one model")
        if other.model != first.model:
            raise BadInput(f"{first_path} is of model {first.model!r} and {path} of {other.model!r}")
    names = ", ".join(str(path) for path, _ in every)
    layers = {
        layer: {p: merged([s.layers[layer][p] for _, s in every], f"{names}: layer {layer!r}, {p}") for p in parts}
        for layer, parts in first.layers.items()
    }
    made_by = {k: v for _, s in every for k, v in s.made_by.items()}
    return Stats(layers, first.model, sum(s.tokens for _, s in every), made_by)


def write_stats(path: Path, stats: Stats) -> None:
    """Write a file, whole or not at all."""
    from safetensors.numpy import save

    tensors: kv_file.Tensors = {}
    for layer, parts in stats.layers.items():
        for part, h in parts.items():
            tensors[tensor_name(layer, part, CODES)] = h.codes.astype(np.int16)
            tensors[tensor_name(layer, part, COUNTS)] = h.counts.astype(np.int64)
            tensors[tensor_name(layer, part, AMAX)] = h.amax.astype(np.float32)
    said = {
        layer: {
            part: {"format": h.format, "nan": h.nan, "inf": h.inf, "place": h.place, "rope": h.rope}
            for part, h in parts.items()
        }
        for layer, parts in stats.layers.items()
    }
    about = kv_file.metadata(stats.model, stats.tokens, stats.made_by, said)
    write_whole(path, save(tensors, {"narrowgauge": json.dumps(about, sort_keys=True)}))
