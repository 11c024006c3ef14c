"""What a scale does to a histogram: elements clipped, flushed and lost, the error, and which scale would be best.

Every number is an interval. Its ends agree where bins are single values (bfloat16, float16). For bins of float32 they
are what the bin's ends allow, since a cast is monotone:

* an element of a bin is surely clipped if both ends are, perhaps if one is: clipped, flushed and lost elements are each
  a stretch of the line of magnitudes. Zero alone is no flushed element, so the bin of zero flushes none for sure.
* the error of an element x of [low, high], which comes back as q with q(low) <= q <= q(high), is at most the larger of
  high - q(low) and q(high) - low. Where q(low) = q(high) it is at least the distance of q from [low, high]; where they
  are neighbours in the format, the lesser of their distances; else at least 0.

An element is looked at without its sign, which all recipes here treat alike, but for the lowest integer of two's
complement: a negative element that becomes -128 counts as one that becomes 127.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.recipe import Recipe
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.kv.histogram import Histogram
from narrowgauge.reference.measures import KINDS, OTHERS, of_elements
from narrowgauge.reference.quantize import quantize

Values = npt.NDArray[np.float64]
#: two numbers, the first not above the second
Interval = tuple[float, float]
#: what becomes of an element and is told; each is a stretch of the line of magnitudes
TOLD = ("clipped", "flushed", "lost")
#: scales that are tried: that which takes the largest magnitude to the largest value of the format, times 2^(i / 8)
PER_OCTAVE, FROM_OCTAVE, TO_OCTAVE = 8, -6, 1
GRID = tuple(2.0 ** (i / PER_OCTAVE) for i in range(FROM_OCTAVE * PER_OCTAVE, TO_OCTAVE * PER_OCTAVE + 1))
GRID_WORDS = f"amax / largest, times 2^(i/{PER_OCTAVE}) from 2^{FROM_OCTAVE} to 2^{TO_OCTAVE}"
#: a scale of float32 that is not 0
LEAST, MOST = 2.0**-126, float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Effect:
    """What becomes of the finite elements of a histogram under one scale. Energies are sums of squares."""

    scale: float
    counts: dict[str, tuple[int, int]]  #: of ``TOLD``: surely, perhaps
    nonzero: int  #: elements that are surely not zero
    finite: int
    signal: Interval  #: energy of the elements that come back finite
    error: Interval

    @property
    def sqnr(self) -> Interval:
        """Decibels; infinite where there is no error."""
        return _decibels(self.signal[0], self.error[1]), _decibels(self.signal[1], self.error[0])

    @property
    def relative(self) -> Interval:
        """The root of error over signal."""
        low, high = self.sqnr
        return 10 ** (-high / 20), 10 ** (-low / 20)

    def share(self, kind: str) -> float:
        """The part of elements that is surely clipped or lost; of those that are not zero, flushed."""
        every = self.nonzero if kind == "flushed" else self.finite
        return self.counts[kind][0] / every if every else 0.0

    def to_json(self) -> dict[str, Any]:
        """What is infinite is null: JSON has no infinity."""
        return {
            "scale": self.scale, "counts": {k: list(c) for k, c in self.counts.items()}, "nonzero": self.nonzero,
            "finite": self.finite, "sqnr_db": [v if np.isfinite(v) else None for v in self.sqnr],
            "relative_error": [v if np.isfinite(v) else None for v in self.relative],
        }  # fmt: skip


def _decibels(signal: float, error: float) -> float:
    if error == 0:
        return np.inf
    return float(10 * (np.log10(signal) - np.log10(error))) if signal > 0 else -np.inf


class Effects:
    """A histogram under a recipe to one format, at any scale."""

    def __init__(self, histogram: Histogram, recipe: Recipe, format_name: str) -> None:
        self.histogram, self.recipe, self.format = histogram, recipe, format_name
        self.low, self.high = histogram.edges()
        self.counts = histogram.counts.astype(np.float64)
        self._ends: tuple[Values, Values] = (decode_values(self.low)[0], decode_values(self.high)[0])

    def at(self, scale: float) -> Effect:
        """What that scale does; it is rounded to float32, as an engine's is."""
        at = float(np.float32(scale))
        given = _given(at)
        outputs = [quantize(x, self.recipe, self.format, given=given) for x in self._edges]
        kinds = [
            of_elements(x, out, self.recipe, self.format, given).kind[0]
            for x, out in zip(self._edges, outputs, strict=True)
        ]
        counts = {kind: self._counted(kinds, kind) for kind in TOLD}
        signal, error = self._energies(at, [out["codes"] for out in outputs])
        low, _ = self._ends
        nonzero = int(self.histogram.counts[low > 0].sum())
        return Effect(at, counts, nonzero, self.histogram.finite, signal, error)

    @property
    def _edges(self) -> Sequence[Coded]:
        return (self.low,) if self.histogram.exact else (self.low, self.high)

    def _counted(self, kinds: Sequence[npt.NDArray[np.uint8]], kind: str) -> tuple[int, int]:
        number = (*KINDS, *OTHERS).index(kind)
        mine = np.array([each == number for each in kinds])
        counts = self.histogram.counts
        return int(counts[mine.all(axis=0)].sum()), int(counts[mine.any(axis=0)].sum())

    def _energies(self, scale: float, codes: Sequence[Coded]) -> tuple[Interval, Interval]:
        """Of the signal and of the error, of elements that come back finite."""
        low, high = self._ends
        q_low, q_high = (decode_values(each)[0] * scale for each in (codes[0], codes[-1]))
        came, may = np.isfinite(q_high), np.isfinite(q_low)
        q_low, q_high = np.where(may, q_low, 0.0), np.where(came, q_high, high)
        same = (q_low == q_high) & came
        next_to = codes[-1].codes[0].astype(np.int64) - codes[0].codes[0] == 1
        below, above = np.maximum(low - q_low, 0.0), np.maximum(q_high - high, 0.0)
        least = np.where(
            same, np.maximum(below, np.maximum(q_low - high, 0.0)), np.where(next_to, np.minimum(below, above), 0.0)
        )
        most = np.maximum(high - q_low, q_high - low)
        if self.histogram.exact:
            least = most = np.abs(low - q_low)
        n = self.counts
        signal = float((n * low * low)[came].sum()), float((n * high * high)[may].sum())
        error = float((n * least * least)[came].sum()), float((n * most * most)[may].sum())
        return signal, error

    @cached_property
    def by_amax(self) -> float:
        """The scale that takes the largest magnitude to the largest value; 1 where all is zero."""
        bound = self.recipe.destination(self.format).bound
        wanted = float(np.float32(self.histogram.largest / bound)) if self.histogram.largest else 1.0
        return min(max(wanted, LEAST), MOST)

    @cached_property
    def best(self) -> Effect:
        """Under the scale of the grid that loses the fewest elements, and then has the least error: in the middle of
        its interval. Of equal ones the nearest to that of the largest magnitude, the larger one first."""
        held = {min(max(float(np.float32(self.by_amax * factor)), LEAST), MOST): factor for factor in GRID}
        return min(map(self.at, held), key=lambda e: (e.counts["lost"][1], sum(e.error), _away(held[e.scale])))


def _away(factor: float) -> tuple[float, bool]:
    return abs(float(np.log2(factor))), factor < 1


def _given(scale: float) -> dict[str, Coded]:
    return {"scale": Coded("float32", np.array([[scale]], np.float32).view(np.uint32))}
