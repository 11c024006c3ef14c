"""What quantizing a stored weight by a recipe would do to it, in bands of rows: memory does not grow with the tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.recipe import Recipe
from narrowgauge.reference.calibrated import calibrated
from narrowgauge.reference.fast_codec import decode_values, to_float32
from narrowgauge.reference.measures import KINDS, Measured, measure
from narrowgauge.reference.quantize import Statistics, block_values, elements, own_cast, statistics
from narrowgauge.reference.steps import F32

#: elements of a band, about: a few float64 of each stand in memory at once
BAND = 1 << 20
#: makes the bands of a matrix anew, in order, each [rows, columns]: all but the last of a multiple of so many rows
Bands = Callable[[int], Iterator[Coded]]


@dataclass(frozen=True)
class OfWeight:
    """A stored matrix under a recipe; ``refused`` says why it cannot go through it."""

    tensor: str
    to: str
    measured: Measured | None
    refused: str = ""

    def to_json(self) -> dict[str, Any]:
        measured = None if self.measured is None else self.measured.to_json()
        return {"tensor": self.tensor, "to": self.to, "measured": measured, "refused": self.refused}


def takes_transposed(recipe: Recipe) -> bool:
    """Whether a recipe's weight is [inputs, outputs]: checkpoints store [outputs, inputs]."""
    return recipe.blocks.rows > 1 and recipe.blocks.columns == 1


def through(bands: Bands, shape: tuple[int, int], recipe: Recipe, format_name: str) -> Measured:
    """Measures of a matrix [rows, columns] as it is stored, under a recipe. Raises ``BadInput`` where its blocks do not
    divide the matrix.

    What a recipe is given beside x is taken from the matrix itself, as ``sqnr`` does.
    """
    if takes_transposed(recipe):  # a band of rows is a band of whole columns to the recipe
        recipe.blocks.grid(shape[1], 0)
        return together(
            _band(Coded(b.format, np.ascontiguousarray(b.data.T)), recipe, format_name, {}, {}) for b in bands(1)
        )
    recipe.blocks.grid(*shape)
    rows = recipe.blocks.rows or 1
    whole, given = _whole(bands(rows), recipe, format_name)
    return together(_band(band, recipe, format_name, whole, given) for band in bands(rows))


def _whole(bands: Iterator[Coded], recipe: Recipe, format_name: str) -> tuple[dict[str, F32], dict[str, Coded]]:
    """What all rows say together: statistics of the whole tensor, or of blocks of all rows; and what is given."""
    if recipe.by_rows and not recipe.inputs:
        return {}, {}
    found: dict[str, F32] = {}
    ends: list[float] = []
    merge = np.maximum if recipe.amax_nan == "keep" else np.fmax  # "all": NaN where every band's is NaN
    for band in bands:
        matrix = to_float32(band)
        seen = statistics(matrix, recipe).found
        for name, value in seen.items():
            if name == "tensor_amax" or recipe.blocks.rows == 0:
                found[name] = merge(found[name], value) if name in found else value
        finite = matrix[np.isfinite(matrix)] if recipe.inputs else matrix[:0]
        ends += [float(finite.min()), float(finite.max())] if finite.size else []
    extremes = np.array([[min(ends), max(ends)]] if ends else [[0.0, 0.0]], np.float32)
    return found, calibrated(Coded("float32", extremes.view(np.uint32)), recipe, format_name, {})


def _band(
    band: Coded, recipe: Recipe, format_name: str, whole: Mapping[str, F32], given: Mapping[str, Coded]
) -> Measured:
    """As ``quantize`` of the whole, since a band holds whole blocks and ``whole`` says what lies beyond it."""
    with np.errstate(all="ignore"):
        matrix = to_float32(band)
        own = statistics(matrix, recipe)
        values = block_values(Statistics(own.grid, {**own.found, **whole}), recipe, format_name, band.format, given)
        codes = elements(matrix, values, recipe, format_name, own_cast(recipe, format_name))
        outputs = {"codes": codes} | {
            name: values[f"{name} as stored"] for name in recipe.outputs(format_name) if name != "codes"
        }
        return measure(band, outputs, recipe, format_name, given).tensor


def together(parts: Iterable[Measured]) -> Measured:
    """The measures of several parts of a tensor, as one."""
    kept = list(parts)
    if not kept:
        raise BadInput("a tensor without elements has nothing to quantize")
    return Measured(
        {kind: sum(m.counts[kind] for m in kept) for kind in kept[0].counts},
        sum(m.signal for m in kept),
        {kind: sum(m.noise[kind] for m in kept) for kind in KINDS},
        max(m.max_ulp for m in kept),
    )


def matrices(shape: Sequence[int]) -> tuple[int, int, int]:
    """A tensor as so many matrices [rows, columns]: experts of one layer are quantized each by itself."""
    return int(np.prod(shape[:-2], dtype=np.int64)), shape[-2], shape[-1]
