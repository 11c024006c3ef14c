"""Kinds of calls of products, as data: which numbers, which scales, and what makes their sums exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Name = Literal[
    "exact",
    "full",
    "limit",
    "beyond",
    "lost",
    "scaled",
    "subnormal",
    "promoted",
    "extreme",
    "noise",
    "positive",
    "specials",
]
#: scales of few bits, none of them 1; powers of two; what checkpoints have, of up to 24 bits
_ODD = (1.5, 0.625, 3.0, 0.875, 1.25, 2.5, 1.75)
_POWERS = (0.5, 4.0, 2.0, 0.25, 8.0)
_USUAL = (0.0123, 0.37, 0.0078125, 0.0021, 1.7, 0.11, 0.25)
#: of a and of b, so that no product overflows: the least scale of E8M0, and large ones
_ENDS = ((2.0**-127, 2.0**-126), (2.0**100, 2.0**101))


#: K, where no blocks say it: no multiple of any tile
DEPTH = 277


@dataclass(frozen=True)
class Kind:
    """What the numbers of a call are like."""

    name: Name
    about: str
    scales: tuple[tuple[float, ...], tuple[float, ...]] = (_POWERS, _POWERS)  #: of a's blocks, and of b's
    tensor: tuple[float, float] = (4.0, 0.5)  #: scales of whole tensors, of a and of b
    most: int = 12  #: whole numbers up to this; 0 for numbers that are not whole
    bits: int = 14  #: significant bits of the sum of magnitudes in a row
    exact: bool = True  #: the result is a point
    depth: int = DEPTH  #: K, where no blocks say it
    drawn: Literal["", "limit", "beyond", "lost"] = ""  #: by whom, where another file draws the codes


KINDS: dict[Name, Kind] = {
    kind.name: kind
    for kind in (
        Kind("exact", "sums below 2^14 quanta, under scales of several bits", (_ODD, _ODD)),
        Kind("full", "sums as large as the accumulator holds exactly, under powers of two", most=64, bits=22),
        Kind("limit", "every row to 0.99 of what the accumulator holds exactly", drawn="limit"),
        Kind("beyond", "odd sums between 1.3 and 1.75 times what 13-bit units hold", drawn="beyond"),
        Kind("lost", "one large product, and after it such as 13-bit units lose each", exact=False, drawn="lost"),
        Kind("scaled", "exact sums under scales of 24 bits", (_USUAL, _USUAL), (0.37, 1234.5), exact=False),
        Kind("subnormal", "numbers below the smallest normal one, in every other row and column", most=0),
        Kind("promoted", "positive sums that pass 2^14 by stretches that do not", depth=651),
        Kind("extreme", "the least scale of E8M0, and large ones", _ENDS),
        Kind("noise", "any numbers, within bounds", (_USUAL, _USUAL), (0.37, 1234.5), most=0, exact=False),
        Kind("positive", "positive numbers: units that truncate are never above", most=0, exact=False),
        Kind("specials", "exact sums, with NaN and infinity in few places", (_ODD, _ODD)),
    )
}
