"""A matrix unit as data, and one that is not known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from narrowgauge.reference.units.families import Family

#: what a model rests on: real GPUs' answers, recorded; two groups that worked apart; one group; a vendor's document
Grade = Literal["recorded", "two groups", "one group", "document"]


@dataclass(frozen=True)
class Unit:
    """What one machine instruction computes of which formats, on which targets."""

    name: str
    targets: tuple[str, ...]
    instruction: str
    formats: tuple[str, ...]  #: of either operand
    out: str  #: format of the addend and of the result
    family: Family
    grade: Grade
    source: str
    mixed: bool = False  #: whether both operands may be of different ones of its formats
    through: str = ""  #: format to which codes are converted before, exactly
    scales: tuple[str, ...] = ()  #: formats of the scales that it takes; () for none
    block: int = 0  #: so many elements of k have one scale
    nan: int = 0x7FFFFFFF  #: the code of every NaN that it gives
    nan_known: bool = True  #: whether that code is part of what is known; else any NaN is as good

    def takes(self, a_format: str, b_format: str) -> bool:
        """Whether operands of these formats can be multiplied by it."""
        known = a_format in self.formats and b_format in self.formats
        return known and (self.mixed or a_format == b_format)


@dataclass(frozen=True)
class Unknown:
    """Units of whose arithmetic nobody has published a model."""

    targets: tuple[str, ...]
    formats: tuple[str, ...]
    known: str  #: what is known all the same
    source: str
