"""What quantizing a stored weight by a recipe would do to it, in bands of rows, so that memory stays small."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from narrowgauge.checkpoints.asked import Destination
from narrowgauge.checkpoints.findings import Finding
from narrowgauge.checkpoints.model import Stored
from narrowgauge.checkpoints.reading import rows
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.recipe import Recipe
from narrowgauge.reference.calibrated import calibrated
from narrowgauge.reference.fast_codec import to_float32
from narrowgauge.reference.measures import KINDS, Measured, measure
from narrowgauge.reference.quantize import Statistics, block_values, elements, own_cast, statistics
from narrowgauge.reference.recipe_data import SOURCES
from narrowgauge.reference.steps import F32

#: elements of a band, about: a few float64 of each stand in memory at once
BAND = 1 << 20
#: a part of the elements that may be clipped, decibels below which a weight is of no use, and that it may lie below
#: what is usual
CLIPPED, UNUSABLE, BELOW = 1e-5, 10.0, 6.0
#: by bits of a code: parts of the elements that may become 0 without doubt, and that make a weight useless. Of numbers
#: of a normal distribution, or twice as peaked, 1 to 5 in 100 do in 8 bits, and up to 36 in 4 bits in groups of 128
FLUSHED = {8: (0.05, 0.5), 6: (0.1, 0.5), 4: (0.4, 0.8)}
#: embeddings and heads, norms, routers of experts, convolutions of linear attention
_SPARED = re.compile(
    r"(^|[._])(embed\w*|token_embd|wte|wpe|lm_head|head|output_head|norm\w*|ln_\w+|layernorm|router|conv1d)(\.|$)|\.mlp\.gate\.weight$|"
    r"(^|\.)\w*embeddings?(\.|$)|_norm(\.|$)|^output\.weight$",
    re.IGNORECASE,
)
#: makes the bands of a matrix anew, in order, each [rows, columns]: all but the last of a multiple of so many rows
Bands = Callable[[int], Iterator[Coded]]


@dataclass(frozen=True)
class OfWeight:
    """A stored matrix under a recipe; ``refused`` says why it cannot go through it."""

    tensor: str
    to: str
    format: str  #: of the codes
    measured: Measured | None
    refused: str = ""

    @property
    def flushed(self) -> float:
        """The part of the elements that come back as 0 and were not."""
        m = self.measured
        return m.counts["flushed"] / sum(m.counts.values()) if m is not None else 0.0

    @property
    def worst_first(self) -> tuple[float, ...]:
        """Ascending from the worst: what loses elements or flushes too many, then by decibels; what was refused last.

        One large element hides behind decibels that all others became 0.
        """
        if self.measured is None:
            return (1.0,)
        many = self.flushed if self.flushed > FLUSHED[format_named(self.format).bits][0] else 0.0
        return (0.0, float(-self.measured.counts["lost"]), -many, self.measured.sqnr)

    def to_json(self) -> dict[str, Any]:
        measured = None if self.measured is None else self.measured.to_json()
        return {"tensor": self.tensor, "to": self.to, "measured": measured, "refused": self.refused}


def is_weight(tensor: Stored) -> bool:
    """Whether a tensor is a matrix of the model, or several of one layer (experts), in a format wider than 8 bits."""
    return tensor.role == "model" and tensor.format in SOURCES and len(tensor.shape) in (2, 3) and tensor.size > 0


def is_spared(name: str) -> bool:
    """Whether engines leave a matrix of that name as it is when they quantize a model: they take linear layers."""
    return _SPARED.search(name) is not None


def findings_of(one: OfWeight, to: Destination) -> Iterator[Finding]:
    """What is wrong with a weight under a recipe."""
    if one.measured is None:
        yield Finding("does not fit the recipe", one.refused, one.tensor)
        return
    m = one.measured
    total, lost, clipped = sum(m.counts.values()), m.counts["lost"], m.counts["clipped"]
    said = f"{m.words}, {clipped:,} clipped and {m.counts['flushed']:,} flushed of {total:,}"
    if lost:
        yield Finding("quantizing loses", said, one.tensor, lost)
    expected, (many, most) = usual(to.format), FLUSHED[format_named(to.format).bits]
    # OCP MX rounds scales down: by its definition 1 in 100 of common weights is clipped, by a quarter at most, and the
    # decibels are the usual ones. A clip is at fault where most of an unusual error is its own.
    if clipped > CLIPPED * total and m.sqnr < expected - BELOW and m.share("clipped") > 0.5:
        yield Finding("quantizing clips", said, one.tensor, clipped)
    if one.flushed > many:
        kind = "quantizing ruins" if one.flushed > most else "quantizing flushes"
        yield Finding(kind, said, one.tensor, m.counts["flushed"])
    elif m.error and m.sqnr < UNUSABLE:
        yield Finding("quantizing ruins", said, one.tensor)
    elif m.error and m.sqnr < expected - BELOW:
        yield Finding("quantizing costs much", f"{said}; usual is {expected:.0f} dB", one.tensor)


def usual(format_name: str) -> float:
    """Decibels of SQNR that a format gives where its scale suits the numbers.

    A float of m bits behind the point errs by at most half a step of 2^-m of its binade, evenly: a noise of step² / 12
    against the mean square of numbers spread evenly over the logarithms of a binade, 3 / (2 ln 2). An integer whose
    largest value is four standard deviations has a noise of step² / 12 too.
    """
    fmt = format_named(format_name)
    if fmt.family == "integer":
        largest = 2 ** (fmt.bits - 1) - 1
        return 10 * math.log10(12 * (largest / 4) ** 2)
    return 10 * math.log10(12 * 3 / (2 * math.log(2)) * 4**fmt.mantissa)


def of_weight(tensor: Stored, to: Destination) -> OfWeight:
    """A stored matrix, or each of several, under the recipe of a destination."""
    assert to.recipe is not None
    parts = []
    try:
        for one in matrices(tensor):
            parts.append(through(_bands_of(one), (one.shape[0], one.shape[1]), to.recipe, to.format))
    except BadInput as error:
        return OfWeight(tensor.name, to.name, to.format, None, str(error))
    return OfWeight(tensor.name, to.name, to.format, together(parts))


def matrices(tensor: Stored) -> Iterator[Stored]:
    """Each matrix [rows, columns] of a tensor: the experts of one layer are quantized each by itself."""
    rows, columns = tensor.shape[-2:]
    count = math.prod(tensor.shape[:-2])
    for number in range(count):
        size = tensor.size // count
        yield replace(tensor, shape=(rows, columns), start=tensor.start + number * size, size=size)


def _bands_of(matrix: Stored) -> Bands:
    each = matrix.size // matrix.shape[0]

    def bands(multiple: int) -> Iterator[Coded]:
        count = max(1, BAND // max(1, matrix.shape[1] * multiple)) * multiple
        return rows(matrix, size=count * each)

    return bands


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
    each = recipe.blocks.rows or 1
    whole, given = _whole(bands(each), recipe, format_name)
    return together(_band(band, recipe, format_name, whole, given) for band in bands(each))


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
