"""Ceilings for keys and values of a model's folder, layer by layer; of the weights only what a layer needs is read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from narrowgauge.checkpoints.model import Stored
from narrowgauge.checkpoints.opening import open_checkpoint
from narrowgauge.checkpoints.reading import all_elements, rows
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.kv_file import BINS, PARTS
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.kv.ceiling import Ceiling, Rows, Values, allowance, normed, plain, projected, turned
from narrowgauge.reference.kv.families import Shape, shape_of
from narrowgauge.reference.measures import spacing
from narrowgauge.suites.kv_use import Report, Use

#: numbers of weights, by which a rounded model's arithmetic is meant
WEIGHTS = tuple(BINS)


@dataclass(frozen=True, eq=False)
class OfPart:
    """The ceiling of one part of one layer."""

    layer: str
    part: str
    exact: float  #: of exact arithmetic
    heads: Values  #: [heads], with what rounding in the model's format can add

    @property
    def largest(self) -> float:
        return float(self.heads.max())

    def clips(self, use: Use, scale: Any) -> bool:
        """Whether an element of that size would be clipped at the scale in use; False is for every input."""
        bound = np.asarray(use.recipe.destination(use.format).bound)
        held = (bound + spacing(bound, format_named(use.format)) / 2) * np.asarray(scale, np.float64)
        return bool((self.heads > held).any() if np.size(held) == self.heads.size else self.largest > held.min())

    def to_json(self) -> dict[str, Any]:
        return {
            "layer": self.layer, "part": self.part, "ceiling": self.largest, "exact_arithmetic": self.exact,
            "heads": [float(h) for h in self.heads],
        }  # fmt: skip


class Model:
    """The folder of a model. Raises ``BadInput`` for one without configuration or layers, or of an unknown kind."""

    def __init__(self, folder: Path) -> None:
        if not os.path.isfile(folder / "config.json"):
            raise BadInput(f"{folder} has no config.json; expected a model's folder, with its safetensors files")
        found = open_checkpoint(folder)
        self.shape: Shape = shape_of(found.config, f"{folder}/config.json")
        self.tensors = found.tensors
        self.folder = folder
        family = self.shape.family
        named = re.compile(rf"(?:.*\.)?{family.layers}\.(\d+)\.{family.attention}\.")
        layers = {match[0].removesuffix("."): int(match[1]) for n in self.tensors if (match := named.match(n))}
        if not layers:
            raise BadInput(f"{folder} has no tensor named ..{family.layers}.N.{family.attention}..")
        self.layers = sorted(layers, key=lambda name: (layers[name], name))

    def ceilings(self) -> Iterator[OfPart]:
        """Of each part of each layer, in their order. Raises ``BadInput`` for a tensor that is missing or not known."""
        for layer in self.layers:
            self._refuse_unknown(layer)
            yield from self._latent(layer) if self.shape.family.latent else self._pair(layer)

    def _refuse_unknown(self, layer: str) -> None:
        """A norm of K that this kind of model is not known to have would make the ceiling wrong."""
        family = self.shape.family
        expected = ["k_norm", "q_norm"] if family.key_norm else []
        expected += ["kv_a_layernorm", "q_a_layernorm"] if family.latent else []
        for name in self.tensors:
            child = name.removeprefix(f"{layer}.").partition(".")[0]
            if name.startswith(f"{layer}.") and "norm" in child and child not in expected:
                raise BadInput(
                    f"{self.folder}: tensor {name!r} is not known in such a model; its ceiling might not hold"
                )

    def _pair(self, layer: str) -> Iterator[OfPart]:
        shape, family = self.shape, self.shape.family
        size = shape.kv_heads * shape.head
        if family.fused:
            start, k, v = shape.heads * shape.head, f"{layer}.{family.fused}", f"{layer}.{family.fused}"
        else:
            start, k, v = 0, f"{layer}.k_proj", f"{layer}.v_proj"
        if family.key_norm:
            gain = self._gain(f"{layer}.k_norm.weight", shape.head)
            keys = normed(gain, shape.kv_heads, shape.rotated, family.order, shape.factor)
        else:
            rows = self._rows(layer, k, start, size)
            keys = turned(rows, shape.kv_heads, shape.rotated, family.order or "halves", shape.factor)
        yield self._part(layer, "k", keys)
        values = self._rows(layer, v, start + size if family.fused else 0, size)
        yield self._part(layer, "v", plain(values, shape.kv_heads))

    def _latent(self, layer: str) -> Iterator[OfPart]:
        shape = self.shape
        gain = self._gain(f"{layer}.kv_a_layernorm.weight", shape.rank)
        yield self._part(layer, "latent", normed(gain, 1, 0, "halves", 1.0))
        rows = self._rows(layer, f"{layer}.kv_a_proj_with_mqa", shape.rank, shape.head)
        yield self._part(layer, "rope", turned(rows, 1, shape.rotated, shape.family.order, shape.factor))

    def _part(self, layer: str, part: str, ceiling: Ceiling) -> OfPart:
        largest = ceiling.largest(allowance(self._format, max(self.shape.hidden, self.shape.rank)))
        return OfPart(layer, part, float(ceiling.exact.max()), largest)

    # --- tensors -----------------------------------------------------------------------------------------------------

    @property
    def _format(self) -> str:
        """The narrowest format of the weights that were read; a model's arithmetic is taken to round to it."""
        found = {one.dtype for one in self.tensors.values()}
        return "bfloat16" if "BF16" in found else "float16" if "F16" in found else "float32"

    def _rows(self, layer: str, name: str, start: int, count: int) -> Rows:
        """Rows of a projection, with the norm before them."""
        family = self.shape.family
        weight = self._matrix(f"{name}.weight", start, count)
        before = f"{layer.removesuffix(family.attention)}{family.before}"
        gain = self._gain(f"{before}.weight", self.shape.hidden)
        shift = self._vector(f"{before}.bias", 0, self.shape.hidden) if f"{before}.bias" in self.tensors else None
        bias = self._vector(f"{name}.bias", start, count) if f"{name}.bias" in self.tensors else None
        return projected(weight, gain, shift, bias, centred=family.norm == "layer")

    def _matrix(self, name: str, start: int, count: int) -> Values:
        """[count, hidden] of a weight, from row ``start`` on (of a transposed one, column)."""
        hidden, stored = self.shape.hidden, self._stored(name)
        shape = stored.shape
        turned_over = self.shape.family.transposed
        outputs, inputs = shape[::-1] if turned_over and len(shape) == 2 else (shape if len(shape) == 2 else (0, 0))
        if inputs != hidden or outputs < start + count:
            raise BadInput(
                f"{self.folder}: tensor {name!r} is {list(shape)}; expected {start + count} outputs of {hidden}"
            )
        pieces = rows(stored) if turned_over else rows(stored, start, count)
        parts = [self._numbers(name, piece) for piece in pieces]
        if turned_over:
            return np.concatenate([part[:, start : start + count] for part in parts]).T.copy()
        return np.concatenate(parts)

    def _gain(self, name: str, size: int) -> Values:
        return self._vector(name, 0, size) + (1.0 if self.shape.family.one_more else 0.0)

    def _vector(self, name: str, start: int, count: int) -> Values:
        found = self._numbers(name, all_elements(self._stored(name)))
        if found.size < start + count:
            raise BadInput(f"{self.folder}: tensor {name!r} has {found.size} numbers; expected {start + count}")
        return found[start : start + count]

    def _stored(self, name: str) -> Stored:
        if name not in self.tensors:
            raise BadInput(f"{self.folder} has no tensor {name!r}")
        return self.tensors[name]

    def _numbers(self, name: str, coded: Any) -> Values:
        if coded.format not in WEIGHTS:
            raise BadInput(
                f"{self.folder}: tensor {name!r} is {coded.format}; expected {', '.join(WEIGHTS)}: quantized weights "
                "are not read back here"
            )
        numbers = decode_values(coded)
        if not np.isfinite(numbers).all():
            raise BadInput(f"{self.folder}: tensor {name!r} has NaN or infinities: nothing bounds what they give")
        return numbers


def in_use(report: Report, found: OfPart) -> Any:
    """The scale in use for a part; None where the engine ends."""
    delivered = report.delivered[found.layer]
    return delivered.k if PARTS[found.part] == "k" else delivered.v
