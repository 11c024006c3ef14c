"""How far quantized values are from what went in: SQNR, units in the last place, and errors told apart by their cause.

Of finite inputs alone. An input that is NaN or infinite is counted and left out; so is a finite input that comes back
as NaN or infinity ("lost": no ratio can hold it, and whoever ranks by SQNR must look at that count first).

* exact: it comes back as it was.
* clipped: its code is the last one on its side, and it lies more than half of the last step beyond that code's value.
  An error within half a step of the end is a rounding error, as everywhere.
* flushed: it is not zero and comes back as zero.
* rounded: everything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import Format, format_named
from narrowgauge.contracts.recipe import Blocks, Recipe
from narrowgauge.reference.dequantized import Values, code_values, multipliers, to_elements
from narrowgauge.reference.fast_codec import decode_values

#: what becomes of an element, in the order in which it is asked
KINDS = ("exact", "clipped", "flushed", "rounded")
OTHERS = ("not_finite", "lost")
#: so many elements are looked at at once: float64 of a whole matrix would be many times its size
_BAND = 1 << 18


@dataclass(frozen=True)
class Measured:
    """What was measured of a tensor or a block. Energies are sums of squares."""

    counts: dict[str, int]  #: of ``KINDS`` and ``OTHERS``
    signal: float  #: energy of the finite inputs that came back finite
    noise: dict[str, float]  #: energy of their errors, by kind
    max_ulp: float  #: the largest error in units of the destination's spacing at the input, where the scale is not 0

    @property
    def error(self) -> float:
        return sum(self.noise.values())

    @property
    def sqnr(self) -> float:
        """Decibels; infinite where there is no error, minus infinite where all that comes back is error of nothing."""
        if self.error == 0:
            return np.inf
        with np.errstate(divide="ignore"):
            return float(10 * (np.log10(self.signal) - np.log10(self.error)))

    @property
    def words(self) -> str:
        """Decibels and what they leave out, in few letters."""
        faultless = "exact" if self.counts["exact"] else "-"
        said = f"{self.sqnr:.1f} dB" if self.error else faultless
        return f"{said}, {self.counts['lost']:,} lost" if self.counts["lost"] else said

    def share(self, kind: str) -> float:
        """The part of the squared error that a kind makes up; 0 where there is none."""
        return self.noise[kind] / self.error if self.error else 0.0

    def to_json(self) -> dict[str, Any]:
        """Decibels that are infinite are null: JSON has no infinity."""
        shares = {kind: self.share(kind) for kind in KINDS}
        sqnr = self.sqnr if np.isfinite(self.sqnr) else None
        return {
            "sqnr_db": sqnr, "max_ulp": self.max_ulp, "counts": self.counts, "error_shares": shares,
            "signal": self.signal, "error": self.error,
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class Measures:
    """The same for each block: arrays of the shape of the blocks' grid."""

    counts: dict[str, npt.NDArray[np.int64]]
    signal: Values
    noise: dict[str, Values]
    max_ulp: Values

    @property
    def tensor(self) -> Measured:
        """All blocks together."""
        return self._of(np.s_[:, :])

    def block(self, row: int, column: int) -> Measured:
        """One block of the grid."""
        return self._of(np.s_[row : row + 1, column : column + 1])

    def _of(self, where: tuple[slice, slice]) -> Measured:
        return Measured(
            {kind: int(count[where].sum()) for kind, count in self.counts.items()},
            float(self.signal[where].sum()),
            {kind: float(energy[where].sum()) for kind, energy in self.noise.items()},
            float(self.max_ulp[where].max(initial=0.0)),
        )

    @property
    def sqnr(self) -> Values:
        """Decibels of each block."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(10 * (np.log10(self.signal) - np.log10(sum(self.noise.values()))))


def measure(
    x: Coded,
    outputs: Mapping[str, Coded],
    recipe: Recipe,
    format_name: str,
    given: Mapping[str, Coded] | None = None,
) -> Measures:
    """Measures of a matrix x [rows, columns] and what a recipe made of it.

    An error is one subtraction in float64, which is exact but where input and result are 2^29 apart or more; sums are
    of squares in float64.
    """
    blocks = recipe.blocks
    rows, columns = x.shape
    grid = blocks.grid(rows, columns)
    factor = np.broadcast_to(multipliers(outputs, recipe, given), grid)
    codes = code_values(outputs, recipe, given)
    every = _Sums(grid)
    fmt, bound = format_named(format_name), recipe.destination(format_name).bound
    each = blocks.rows or 1
    band = each * max(1, _BAND // max(1, each * columns))
    for first in range(0, rows if columns else 0, band):
        part = slice(first, min(first + band, rows))
        down = slice(first // each, -(-part.stop // each)) if blocks.rows else slice(0, 1)
        m = to_elements(factor[down], blocks, (part.stop - first, columns))
        end = _at_the_end(decode_values(outputs["codes"].take(np.arange(part.start, part.stop))), fmt, bound)
        every.add(_look(decode_values(Coded(x.format, x.data[part])), codes[part], end, m, fmt, bound), blocks, down)
    return every.measures


def of_elements(
    x: Coded, outputs: Mapping[str, Coded], recipe: Recipe, format_name: str, given: Mapping[str, Coded] | None = None
) -> Looked:
    """The same of each element of a matrix that is small, [rows, columns]: for whoever counts them himself."""
    m = to_elements(multipliers(outputs, recipe, given), recipe.blocks, x.shape)
    fmt, bound = format_named(format_name), recipe.destination(format_name).bound
    end = _at_the_end(decode_values(outputs["codes"]), fmt, bound)
    return _look(decode_values(x), code_values(outputs, recipe, given), end, m, fmt, bound)


@dataclass(frozen=True, eq=False)
class Looked:
    """Of each element of a band: its kind, its energy, that of its error, and the error in ulps."""

    kind: npt.NDArray[np.uint8]  #: index into ``KINDS`` and then ``OTHERS``
    signal: Values
    noise: Values
    ulp: Values


def _at_the_end(raw: Values, fmt: Format, bound: float) -> npt.NDArray[np.int8]:
    """1 for a code that is the last one above, -1 for the last one below, 0 between. An unsigned format ends at 0."""
    lowest = -bound if fmt.signed else 0.0
    return (raw >= bound).astype(np.int8) - (raw <= lowest).astype(np.int8)


def _look(x: Values, code: Values, end: npt.NDArray[np.int8], m: Values, fmt: Format, bound: float) -> Looked:
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        back = code * m
        error = x - back
        there, came = np.isfinite(x), np.isfinite(back)
        half = spacing(np.asarray(bound), fmt) / 2 * m
        kind = np.full(x.shape, KINDS.index("rounded"), np.uint8)
        kind[back == 0] = KINDS.index("flushed")
        kind[(end * error) > half] = KINDS.index("clipped")
        kind[error == 0] = KINDS.index("exact")
        kind[~came] = len(KINDS) + OTHERS.index("lost")
        kind[~there] = len(KINDS) + OTHERS.index("not_finite")
        # A quotient just below a power of two is not rounded up to it: x < 2^k m are two float64, so x / m lies 2^-53
        # of 2^k below it at least, and that is a float64 too. So the binade is the right one.
        ulp = np.abs(error) / (spacing(np.abs(x) / m, fmt, bound) * m)
    counted = there & came
    ulp = np.where(counted & (error != 0) & (m > 0), ulp, 0.0)
    return Looked(kind, np.where(counted, x * x, 0.0), np.where(counted, error * error, 0.0), ulp)


def spacing(value: Values, fmt: Format, bound: float | None = None) -> Values:
    """The distance of the codes of a format at a magnitude: of its binade, at least that of the subnormals.

    Beyond ``bound`` it is what it is there.
    """
    if fmt.family == "integer":
        return np.ones_like(value)
    held = value if bound is None else np.minimum(value, bound)
    _, exponent = np.frexp(np.where(np.isfinite(held) & (held > 0), held, 0.0))
    lowest = 1 - fmt.bias
    place = np.where(held > 0, np.maximum(exponent - 1, lowest), lowest)
    return np.asarray(np.ldexp(1.0, place - fmt.mantissa))


class _Sums:
    """Sums over blocks, as bands come in."""

    def __init__(self, grid: tuple[int, int]) -> None:
        kinds = (*KINDS, *OTHERS)
        self.measures = Measures(
            {kind: np.zeros(grid, np.int64) for kind in kinds},
            np.zeros(grid),
            {kind: np.zeros(grid) for kind in KINDS},
            np.zeros(grid),
        )

    def add(self, seen: Looked, blocks: Blocks, down: slice) -> None:
        """Take in a band whose blocks are the rows ``down`` of the grid."""
        total, size = self.measures, (blocks.rows, blocks.columns)
        total.signal[down] += _reduced(np.add, seen.signal, size)
        for number, (kind, count) in enumerate(total.counts.items()):
            mine = seen.kind == number
            if mine.any():
                count[down] += _reduced(np.add, mine.astype(np.int64), size)
                if kind in total.noise:
                    total.noise[kind][down] += _reduced(np.add, np.where(mine, seen.noise, 0.0), size)
        np.maximum(total.max_ulp[down], _reduced(np.maximum, seen.ulp, size), out=total.max_ulp[down])


def _reduced(how: np.ufunc, values: npt.NDArray[Any], blocks: tuple[int, int]) -> npt.NDArray[Any]:
    for axis, each in enumerate(blocks):
        size = values.shape[axis]
        values = how.reduceat(values, range(0, size, each or size), axis=axis)
    return values
