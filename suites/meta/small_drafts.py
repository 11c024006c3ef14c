# SPDX-License-Identifier: Apache-2.0
"""A small checkpoint before it is written, and all tensors of a language model of one scheme."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from narrowgauge.suites.meta import small_models as models
from narrowgauge.suites.meta.small_bytes import Array, Raw, bf16, f16, f32, value_of
from narrowgauge.suites.meta.small_schemes import Scheme, Store


@dataclass
class Draft:
    """A checkpoint before it is written. Names with "/" are paths into the dictionaries of torch.save."""

    tensors: dict[str, Raw] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)  #: config.json; {}: none is written
    others: dict[str, Any] = field(default_factory=dict)  #: other JSON files by name
    weights: dict[str, Array] = field(default_factory=dict)
    originals: dict[str, Array] = field(default_factory=dict)
    shards: int = 0  #: files with an index; 0: one file
    file: str = "model.safetensors"

    def keep(self, name: str, x: Array, store: Store) -> None:
        """A tensor that is not quantized."""
        raw = store(x)
        self.tensors[name], self.weights[name], self.originals[name] = raw, value_of(raw), x

    def quantize(self, path: str, w: Array, scheme: Scheme, shared: float = 0.0) -> None:
        """The weight of a linear layer. ``shared``: the largest magnitude of all under its second scale."""
        made = scheme(w, shared)
        self.tensors |= {f"{path}.{suffix}": raw for suffix, raw in made.tensors.items()}
        self.weights[f"{path}.weight"], self.originals[f"{path}.weight"] = made.weight, w


@dataclass(frozen=True)
class Llm:
    """A language model of one scheme. Suffixes and stores of the scales that belong to no weight."""

    model: models.Model
    scheme: Scheme | None = None
    config: Mapping[str, Any] = field(default_factory=dict)  #: quantization_config; {}: none
    others: Mapping[str, Any] = field(default_factory=dict)
    kept: Store = bf16  #: what was not quantized
    input: tuple[str, Callable[[float], Raw]] | None = None  #: suffix of the input's scale, how it is stored
    kv: tuple[str, str, Callable[[float], Raw]] | None = None  #: names of k's and v's scale behind self_attn, and how
    kv_equal: bool = False  #: Quark gives both the larger
    smooth: str = ""  #: last part of the paths with a pre_quant_scale
    shards: int = 0


def draft(row: Llm) -> Draft:
    """All tensors of a language model."""
    found = Draft(config=dict(row.model.config), others=dict(row.others), shards=row.shards)
    if row.kept is f16:
        found.config = {k: v for k, v in found.config.items() if k != "dtype"} | {"torch_dtype": "float16"}
    if row.config:
        found.config["quantization_config"] = dict(row.config)
    for name, shape in row.model.kept.items():
        is_bias = name.endswith("e_score_correction_bias")
        found.keep(name, models.original(name, shape), f32 if is_bias else row.kept)
    largest: dict[str, float] = {}
    for path, shape in row.model.linear.items():
        word = row.model.input_of(path)
        largest[word] = max(largest.get(word, 0.0), float(np.abs(models.original(path + ".weight", shape)).max()))
    for path, shape in row.model.linear.items():
        _linear(found, row, path, models.original(path + ".weight", shape), largest[row.model.input_of(path)])
    if row.kv:
        _kv_scales(found, row, row.kv)
    return found


def _linear(found: Draft, row: Llm, path: str, w: Array, shared: float) -> None:
    name = f"{path}.weight"
    if row.scheme is None:
        return found.keep(name, w, row.kept)
    found.quantize(path, w, row.scheme, shared)
    if row.input:
        suffix, store = row.input
        found.tensors[f"{path}.{suffix}"] = store(models.activation_scale(row.model.input_of(path)))
    if row.smooth and path.endswith(row.smooth):
        factors = np.random.default_rng(len(path)).uniform(0.5, 2, w.shape[1])
        found.tensors[f"{path}.pre_quant_scale"] = bf16(factors)
    return None


def _kv_scales(found: Draft, row: Llm, kv: tuple[str, str, Callable[[float], Raw]]) -> None:
    *parts, store = kv
    for i in range(models.LAYERS):
        values = [models.activation_scale(f"{i} {part}") / 3 for part in "kv"]
        for part, value in zip(parts, [max(values)] * 2 if row.kv_equal else values, strict=True):
            found.tensors[f"model.layers.{i}.self_attn.{part}"] = store(value)
