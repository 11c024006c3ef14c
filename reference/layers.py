"""What recipes cost a linear layer: of its input, its weight, and the product of the two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.recipe import Recipe
from narrowgauge.reference.calibrated import calibrated
from narrowgauge.reference.dequantized import Values, dequantized
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.measures import Measured, measure
from narrowgauge.reference.quantize import quantize


@dataclass(frozen=True)
class To:
    """A recipe to one of its formats, and the numbers that were chosen for what it is given beside x."""

    recipe: Recipe
    format: str
    chosen: Mapping[str, float]

    def __str__(self) -> str:
        return self.recipe.name if len(self.recipe.destinations) == 1 else f"{self.recipe.name} ({self.format})"


@dataclass(frozen=True)
class Pair:
    """What a layer's input and its weight go through; None leaves one as it is."""

    input: To | None
    weight: To | None

    def __str__(self) -> str:
        if str(self.input) == str(self.weight):
            return str(self.input)
        return f"{self.input or 'as it is'} × {self.weight or 'as it is'}"


@dataclass(frozen=True)
class OfLayer:
    """One layer under one pair of recipes. What is None was left as it is, or could not be measured: ``refused``."""

    layer: str
    recipe: str
    input: Measured | None
    weight: Measured | None
    output: Measured | None  #: of the product: kinds of error are not told apart there
    refused: str = ""

    @property
    def lost(self) -> int:
        """Elements that are numbers before and none after."""
        return sum(m.counts["lost"] for m in (self.input, self.weight, self.output) if m is not None)

    @property
    def worst_first(self) -> tuple[float, ...]:
        """Ascending from the worst: what loses elements, then by decibels of the output; what was refused is last."""
        if self.output is None:
            return (1.0, 0.0, 0.0)
        return (0.0, float(-self.lost), self.output.sqnr)

    def to_json(self) -> dict[str, Any]:
        parts = {"input": self.input, "weight": self.weight, "output": self.output}
        return {"layer": self.layer, "recipe": self.recipe, "refused": self.refused} | {
            name: None if part is None else part.to_json() for name, part in parts.items()
        }


def measure_layer(name: str, x: Coded, weight: Coded, pair: Pair) -> OfLayer:
    """A layer's input [rows, features] and weight [outputs, features] under a pair of recipes.

    The output is input times weight transposed, in float64, with and without quantizing. A recipe that cannot take one
    of them, since its blocks do not divide it, makes the layer "refused", with the reason.
    """
    try:
        inputs = _through(x, pair.input)
        weights = _through(weight, pair.weight)
    except BadInput as error:
        return OfLayer(name, str(pair), None, None, None, str(error))
    with np.errstate(invalid="ignore", over="ignore"):
        want = decode_values(x) @ decode_values(weight).T
        got = inputs[0] @ weights[0].T
    return OfLayer(name, str(pair), inputs[1], weights[1], of_product(want, got))


def _through(x: Coded, to: To | None) -> tuple[Values, Measured | None]:
    """What a matrix comes back as, and the measures of that."""
    if to is None:
        return decode_values(x), None
    given = calibrated(x, to.recipe, to.format, to.chosen)
    outputs = quantize(x, to.recipe, to.format, given=given)
    back = dequantized(outputs, to.recipe, given)
    return back, measure(x, outputs, to.recipe, to.format, given).tensor


def of_product(want: npt.NDArray[np.float64], got: npt.NDArray[np.float64]) -> Measured:
    """Energies of a product and of its error; every error counts as rounding."""
    there, came = np.isfinite(want), np.isfinite(got)
    both = there & came
    with np.errstate(invalid="ignore"):
        error = np.where(both, want - got, 0.0)
    exact = int((both & (error == 0)).sum())
    counts = {
        "exact": exact, "clipped": 0, "flushed": 0, "rounded": int(both.sum()) - exact,
        "not_finite": int((~there).sum()), "lost": int((there & ~came).sum()),
    }  # fmt: skip
    noise = {"exact": 0.0, "clipped": 0.0, "flushed": 0.0, "rounded": float(np.square(error).sum())}
    return Measured(counts, float(np.square(np.where(both, want, 0.0)).sum()), noise, 0.0)
