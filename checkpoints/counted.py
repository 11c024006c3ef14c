"""What a census holds: numbers that add up over the pieces of a tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from narrowgauge.checkpoints.findings import Place
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.reference.showing import show

#: so many first places are kept of each kind of trouble
FIRST = 5
#: elements of one kind: where each stands among all, outermost first, and its code, or the whole number that it is
Seen: TypeAlias = tuple[tuple[int, int], ...]

#: kinds of trouble that need no destination; of others see ``beyond`` and ``flushed``, and ``code`` of codes
NAN, PLUS_INFINITE, MINUS_INFINITE, NEGATIVE = "NaN", "+inf", "-inf", "negative"


def beyond(to: str) -> str:
    """The kind: finite values beyond the largest of a destination, once rounded."""
    return f"beyond {to}"


def flushed(to: str) -> str:
    """The kind: values that are not zero and become zero in a destination."""
    return f"zero in {to}"


def code(code: int) -> str:
    """The kind: elements of that code."""
    return f"code {code:#04x}"


@dataclass(frozen=True)
class Landed:
    """What becomes of a tensor's finite values in a destination, cast one by one, to nearest even, without a scale."""

    beyond: int = 0  #: lie beyond its largest: infinite, NaN or saturated, by who casts
    flushed: int = 0  #: are not zero, and become zero
    subnormal: int = 0  #: become subnormal numbers
    inexact: int | None = 0  #: become another number, those that are beyond or flushed among them; None if not counted

    def __add__(self, other: Landed) -> Landed:
        return Landed(
            self.beyond + other.beyond,
            self.flushed + other.flushed,
            self.subnormal + other.subnormal,
            _sum(self.inexact, other.inexact),
        )


def _sum(mine: int | None, theirs: int | None) -> int | None:
    return None if mine is None or theirs is None else mine + theirs


@dataclass(frozen=True, eq=False)
class Census:
    """The numbers in one tensor, or in a run of its elements; exact, all of them."""

    format: str  #: our name of the format, or numpy's of an integer type that is none of ours
    shape: tuple[int, ...]  #: of the whole tensor
    elements: int = 0
    nan: int = 0
    plus_infinite: int = 0
    minus_infinite: int = 0
    zeros: int = 0  #: of either sign
    negative_zeros: int = 0
    negative: int | None = 0  #: numbers below zero, -inf among them; None if not counted
    amax: float = 0.0  #: the largest finite magnitude, 0 without one; an int of integers
    least: float = inf  #: the smallest finite magnitude that is not zero
    into: Mapping[str, Landed] = field(default_factory=dict)  #: by destination; {} of integers
    codes: npt.NDArray[np.int64] | None = None  #: how often each code stands there, of formats of at most 8 bits
    seen: Mapping[str, Seen] = field(default_factory=dict)  #: the first of each kind of trouble; none: not in it

    @property
    def infinite(self) -> int:
        return self.plus_infinite + self.minus_infinite

    @property
    def finite(self) -> int:
        return self.elements - self.nan - self.infinite

    def count(self, code: int) -> int:
        """How often a code stands in it. For formats of at most 8 bits."""
        assert self.codes is not None
        return int(self.codes[code])

    def places(self, kind: str) -> tuple[Place, ...]:
        """The first elements of a kind of trouble, in their order: index and value as shown."""
        return tuple(Place(self._index(offset), self._shown(code)) for offset, code in self.seen.get(kind, ()))

    def to_json(self) -> dict[str, Any]:
        """As data: of codes those that stand there, in hexadecimal; of trouble the first places."""
        said = {name: getattr(self, name) for name in ("format", *TOTALS, "negative", "amax")}
        said["least"] = self.least if self.least < inf else None
        said["into"] = {to: asdict(landed) for to, landed in self.into.items()}
        if self.codes is not None:
            said["codes"] = {f"{code:#04x}": int(self.codes[code]) for code in np.flatnonzero(self.codes)}
        said["first"] = {
            kind: [{"index": list(place.index), "value": place.value} for place in self.places(kind)]
            for kind in self.seen
        }
        return said

    def _index(self, offset: int) -> tuple[int, ...]:
        return tuple(map(int, np.unravel_index(offset, self.shape))) if self.shape else ()

    def _shown(self, code: int) -> str:
        if self.codes is None and isinstance(self.amax, int):
            return str(code)  # a whole number, which stands for itself
        return show(Coded(self.format, np.array(code, FORMATS[self.format].storage)))

    def __add__(self, other: Census) -> Census:
        """Of two runs of the same tensor. Raises ``BadInput`` for others."""
        mine, theirs = ((c.format, c.shape, tuple(c.into), c.codes is None) for c in (self, other))
        if mine != theirs:
            raise BadInput(f"two censuses that do not add up: of {mine} and of {theirs}; expected one tensor's")
        totals = {name: getattr(self, name) + getattr(other, name) for name in TOTALS}
        return Census(
            self.format,
            self.shape,
            **totals,
            negative=_sum(self.negative, other.negative),
            amax=max(self.amax, other.amax),
            least=min(self.least, other.least),
            into={to: landed + other.into[to] for to, landed in self.into.items()},
            codes=None if self.codes is None or other.codes is None else self.codes + other.codes,
            seen=merged(self.seen, other.seen),
        )


#: counts that add up
TOTALS = ("elements", "nan", "plus_infinite", "minus_infinite", "zeros", "negative_zeros")


def merged(mine: Mapping[str, Seen], theirs: Mapping[str, Seen]) -> dict[str, Seen]:
    """The first places of both together."""
    kinds = dict.fromkeys((*mine, *theirs))
    return {kind: tuple(sorted((*mine.get(kind, ()), *theirs.get(kind, ()))))[:FIRST] for kind in kinds}


def number(mask: npt.NDArray[Any]) -> int:
    """How many of them are not zero."""
    return int(np.count_nonzero(mask))
