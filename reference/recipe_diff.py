"""Two recipes on the same data: where their codes, their scales and what both stand for part, and at which step.

Recipes of one granularity and one format are compared code by code. Of others, only what codes and scales stand for
can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.recipe import Recipe
from narrowgauge.reference.dequantized import Values, dequantized, multipliers, to_elements
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.measures import Measured, measure
from narrowgauge.reference.quantize import quantize
from narrowgauge.reference.showing import show
from narrowgauge.reference.tracing import Parting, block_of, parting, trace

#: so many places are told, each of another data set where there are as many
PLACES = 5


@dataclass(frozen=True)
class Side:
    """A recipe to one format, and what it is given beside x, by the name of the data set."""

    recipe: Recipe
    format: str
    given: Mapping[str, Mapping[str, Coded]]

    def beside(self, name: str) -> Mapping[str, Coded]:
        return self.given.get(name, {})


@dataclass(frozen=True)
class OfData:
    """What parts in one data set. Codes are None where the formats are two, scales where the granularities are."""

    name: str
    elements: int
    blocks: int
    codes: int | None
    scales: int | None
    values: int  #: elements of which codes and scales together stand for different numbers
    nearer: tuple[int, int]  #: of those, how many come nearer to x by the first, and by the second
    measured: tuple[Measured, Measured]

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"measured": [m.to_json() for m in self.measured]}


@dataclass(frozen=True)
class Place:
    """One element of which the two make different codes, scales or values."""

    data: str
    index: tuple[int, int]
    input: str
    codes: tuple[str, str]
    scales: tuple[str, str]  #: what codes are multiplied by
    values: tuple[float, float]
    parting: Parting | None  #: None where the way is the same to the end, and only the reader's is not


@dataclass(frozen=True)
class Compared:
    """Two recipes on all data sets."""

    rows: tuple[OfData, ...]
    places: tuple[Place, ...]
    #: by data set that parts: x and both values, [3, elements]: those whose values part; where none do, all that part
    apart: dict[str, npt.NDArray[np.float64]]

    def total(self, field: str) -> int | None:
        counts = [getattr(row, field) for row in self.rows]
        return None if None in counts else sum(counts)


@dataclass(frozen=True, eq=False)
class _Outcome:
    outputs: Mapping[str, Coded]
    factor: Values
    values: Values


def compare_recipes(data: Mapping[str, Coded], one: Side, other: Side) -> Compared:
    """Both recipes on every matrix. Raises ``BadInput`` where the blocks of either do not divide one."""
    rows, places, apart = [], [], {}
    for name, x in data.items():
        outcomes = [_outcome(x, side, name) for side in (one, other)]
        row, differs = _of_data(name, x, one, other, outcomes)
        rows.append(row)
        if differs.any():
            values = _unequal(*(o.values for o in outcomes))
            drawn = values if values.any() else differs
            apart[name] = np.stack([decode_values(x)[drawn], *(o.values[drawn] for o in outcomes)])
            places += _places(name, x, (one, other), outcomes, drawn)
    return Compared(tuple(rows), tuple(_spread_out(places)), apart)


def _outcome(x: Coded, side: Side, name: str) -> _Outcome:
    beside = side.beside(name)
    outputs = quantize(x, side.recipe, side.format, given=beside)
    factor = multipliers(outputs, side.recipe, beside)
    return _Outcome(outputs, factor, dequantized(outputs, side.recipe, beside))


def _of_data(
    name: str, x: Coded, one: Side, other: Side, outcomes: Sequence[_Outcome]
) -> tuple[OfData, npt.NDArray[np.bool_]]:
    """The counts of a data set, and a mask of the elements that part in any way."""
    a, b = outcomes
    values = _unequal(a.values, b.values)
    differs = values.copy()
    codes = scales = None
    if one.format == other.format:
        mask = a.outputs["codes"].data != b.outputs["codes"].data  # of NaN the reference has one code in each format
        codes = int(mask.sum())
        differs |= mask
    same_blocks = _size(one) == _size(other)
    grid = one.recipe.blocks.grid(*x.shape)
    if same_blocks:
        mask = np.broadcast_to(_unequal(a.factor, b.factor), grid)
        scales = int(mask.sum())
        differs |= np.broadcast_to(to_elements(mask, one.recipe.blocks, x.shape), x.shape)
    exact = decode_values(x)
    with np.errstate(invalid="ignore"):
        errors = [np.abs(o.values - exact) for o in outcomes]
        nearer = int((values & (errors[0] < errors[1])).sum()), int((values & (errors[1] < errors[0])).sum())
    measured = tuple(
        measure(x, o.outputs, s.recipe, s.format, s.beside(name)).tensor
        for o, s in zip(outcomes, (one, other), strict=True)
    )
    blocks = grid[0] * grid[1]
    return OfData(
        name, x.data.size, blocks, codes, scales, int(values.sum()), nearer, (measured[0], measured[1])
    ), differs


def _size(side: Side) -> tuple[int, int]:
    """Of blocks; whether they may be ragged is no matter where both take a matrix."""
    return side.recipe.blocks.rows, side.recipe.blocks.columns


def _unequal(one: Values, other: Values) -> npt.NDArray[np.bool_]:
    """Where numbers differ; one NaN is as good as another, and so is one zero."""
    return np.asarray((one != other) & ~(np.isnan(one) & np.isnan(other)))


def _places(
    name: str, x: Coded, sides: tuple[Side, Side], outcomes: Sequence[_Outcome], differs: npt.NDArray[np.bool_]
) -> list[Place]:
    """The first elements that part, of different blocks of both."""
    found: list[Place] = []
    seen: set[object] = set()
    for at in np.argwhere(differs):
        index = int(at[0]), int(at[1])
        blocks = tuple(block_of(s.recipe, index) for s in sides)
        if blocks not in seen and len(found) < PLACES:
            seen.add(blocks)
            found.append(_place(name, x, sides, outcomes, index))
        if len(found) == PLACES:
            break
    return found


def _place(
    name: str, x: Coded, sides: tuple[Side, Side], outcomes: Sequence[_Outcome], index: tuple[int, int]
) -> Place:
    ways = [trace(x, s.recipe, s.format, s.beside(name), index) for s in sides]
    codes = [show(Coded(s.format, o.outputs["codes"].data[index])) for s, o in zip(sides, outcomes, strict=True)]
    factors = []
    for side, outcome in zip(sides, outcomes, strict=True):
        i, j = (min(p, size - 1) for p, size in zip(block_of(side.recipe, index), outcome.factor.shape, strict=True))
        factors.append(f"{outcome.factor[i, j]:.9g}")
    values = [float(o.values[index]) for o in outcomes]
    return Place(
        name,
        index,
        show(Coded(x.format, x.data[index])),
        (codes[0], codes[1]),
        (factors[0], factors[1]),
        (values[0], values[1]),
        parting(*ways),
    )


def _spread_out(places: Sequence[Place]) -> list[Place]:
    """The first of each data set, then the second of each, until there are enough."""
    of_data: dict[str, int] = {}
    ranked = []
    for place in places:
        of_data[place.data] = of_data.get(place.data, -1) + 1
        ranked.append((of_data[place.data], place))
    ranked.sort(key=lambda pair: pair[0])
    return [place for _, place in ranked[:PLACES]]


def common_format(one: Recipe, other: Recipe, asked: str | None) -> tuple[str, str]:
    """The destinations to compare at: the one that is asked for; else the first that both have, else the first of each.

    Raises ``BadInput`` where neither has what is asked for; a recipe that lacks it keeps its own first.
    """
    formats = [[d.format for d in recipe.destinations] for recipe in (one, other)]
    if asked is not None:
        if not any(asked in f for f in formats):
            known = "; ".join(f"{r.name} has {', '.join(f)}" for r, f in zip((one, other), formats, strict=True))
            raise BadInput(f"neither recipe has destination {asked!r}: {known}")
        first, second = (asked if asked in f else f[0] for f in formats)
        return first, second
    both = [name for name in formats[0] if name in formats[1]]
    return (both[0], both[0]) if both else (formats[0][0], formats[1][0])
