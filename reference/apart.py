"""On which inputs two answers part, said as ranges: "|x| >= 464.000031: 0x7e, torch_until_2_12 gives 0x7f"."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.compare import Mask
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.landmarks import PLACES, places
from narrowgauge.reference.showing import show

Elements = npt.NDArray[np.intp]
#: so many ranges of one sign are told one by one; where there are more, inputs are grouped by their place
MOST_RANGES = 4
#: so many places of a range are named; a longer one runs through all of them
MOST_NAMED = 3


@dataclass(frozen=True)
class Apart:
    """A group of inputs on which a kernel and a rule give different outputs."""

    output: str
    where: str  #: the place on the destination's number line, or for a matrix the class of difference
    inputs: str  #: the range: "|x| >= 464.000031 (0x43e80001)"
    differing: int
    of: int  #: inputs of that place that were tried in the range
    got: str  #: at the first input, and at the last where that is another code
    want: str


@dataclass(frozen=True, eq=False)
class _Group:
    """Elements of one sign, ascending in magnitude, that differ."""

    where: str
    elements: Elements
    of: int
    to_the_end: bool = False  #: nothing that was tried lies beyond the last one

    @property
    def ends(self) -> Elements:
        return self.elements[[0, -1]]


def apart(x: Coded, got: Coded, want: Coded, differs: Mask) -> tuple[Apart, ...]:
    """The groups of a cast's elements (1-d) where ``differs``, in ascending magnitude, NaN last.

    What happens to negative inputs as to positive ones is told once, as ``|x|``.
    """
    value = decode_values(x)
    place = places(value, format_named(want.format))
    plus, minus = (_side(value, place, differs, negative) for negative in (False, True))
    told: list[Apart] = []
    for group in plus:
        twin = next((g for g in minus if _mirrors(group, g, x, got, want)), None)
        if twin is not None:
            minus.remove(twin)
        told.append(_told(group, twin, x, got, want))
    return (*told, *(_told(group, None, x, got, want) for group in minus))


def _side(value: npt.NDArray[np.float64], place: npt.NDArray[np.uint8], differs: Mask, negative: bool) -> list[_Group]:
    """The groups of one sign."""
    mine = np.signbit(value) == negative
    numbers, nans = np.flatnonzero(mine & ~np.isnan(value)), np.flatnonzero(mine & np.isnan(value))
    ordered = numbers[np.argsort(np.abs(value[numbers]), kind="stable")]
    return [*_groups(ordered, differs, place), *_groups(nans, differs, place)]


def _groups(ordered: Elements, differs: Mask, place: npt.NDArray[np.uint8]) -> list[_Group]:
    """Few ranges as they are; many by place, and within a place again few ranges as they are."""
    ranges = _ranges(ordered, differs, place)
    if len(ranges) <= MOST_RANGES:
        return ranges
    found = []
    for number in np.unique(place[ordered[differs[ordered]]]):
        members = ordered[place[ordered] == number]
        inner = [replace(r, to_the_end=False) for r in _ranges(members, differs, place)]
        scattered = _Group(PLACES[number], members[differs[members]], members.size)
        found += inner if len(inner) <= MOST_RANGES else [scattered]
    return found


def _ranges(ordered: Elements, differs: Mask, place: npt.NDArray[np.uint8]) -> list[_Group]:
    """Every maximal run of elements that differ."""
    flags = differs[ordered]
    runs = np.split(np.arange(ordered.size), np.flatnonzero(np.diff(flags)) + 1)
    return [
        _Group(
            where=_names(np.unique(place[ordered[run]])),
            elements=ordered[run],
            of=run.size,
            to_the_end=run.size > 1 and bool(run[-1] == ordered.size - 1),
        )
        for run in runs
        if run.size and flags[run[0]]
    ]


def _names(numbers: npt.NDArray[np.uint8]) -> str:
    return ", ".join(PLACES[n] for n in numbers) if numbers.size <= MOST_NAMED else "everywhere"


# --- mirror images ---------------------------------------------------------------------------------------------------


def _mirrors(group: _Group, other: _Group, x: Coded, got: Coded, want: Coded) -> bool:
    """Whether ``other`` is the same with the signs turned round, or with outputs that ignore the sign.

    Where inputs are drawn, those of the two signs are not the same ones: a range is told by its ends.
    """
    kinds = [(g.where, g.to_the_end, g.of == g.elements.size) for g in (group, other)]
    ends = slice(0, 1) if group.to_the_end else slice(None)
    if kinds[0] != kinds[1] or not _opposite(x, group, other, ends):
        return False
    return all(_same(c, group, other) or _opposite(c, group, other) for c in (got, want))


def _same(codes: Coded, group: _Group, other: _Group) -> bool:
    return bool((codes.data[group.ends] == codes.data[other.ends]).all())


def _opposite(codes: Coded, group: _Group, other: _Group, ends: slice = slice(None)) -> bool:
    fmt = format_named(codes.format)
    mine, its = (codes.data[g.ends[ends]] for g in (group, other))
    if fmt.family == "integer":
        return bool(((mine.astype(np.int64) + its.astype(np.int64)) % fmt.code_count == 0).all())
    return bool((mine ^ np.array(fmt.sign_bit, mine.dtype) == its).all())


# --- words -----------------------------------------------------------------------------------------------------------


def _told(group: _Group, twin: _Group | None, x: Coded, got: Coded, want: Coded) -> Apart:
    both = [group] if twin is None else [group, twin]
    return Apart(
        output="codes",
        where=group.where,
        inputs=_inputs(group, x, both=twin is not None),
        differing=sum(g.elements.size for g in both),
        of=sum(g.of for g in both),
        got=_outputs(group, twin, got),
        want=_outputs(group, twin, want),
    )


def _ends(group: _Group, codes: Coded) -> tuple[str, str]:
    first, last = (show(Coded(codes.format, codes.data[i])) for i in group.ends)
    return first, last


def _inputs(group: _Group, x: Coded, both: bool) -> str:
    first, last = _ends(group, x)
    if first.startswith("nan"):
        return ("\u00b1" if both else "") + (first if first == last else f"{first} to {last}")
    name, negative = "|x|" if both else "x", first.startswith("-")
    if first == last:
        return f"{name} = {first}"
    if group.to_the_end:
        return f"{name} {'<=' if negative else '>='} {first}"
    return f"{last} <= {name} <= {first}" if negative else f"{first} <= {name} <= {last}"


def _outputs(group: _Group, twin: _Group | None, codes: Coded) -> str:
    first, last = _ends(group, codes)
    sign = "" if twin is None or first.startswith("nan") or _same(codes, group, twin) else "\u00b1"
    return sign + (first if first == last else f"{first} to {last}")
