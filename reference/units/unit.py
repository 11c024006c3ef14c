"""A matrix unit as data, and one that is not known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.codec import nan_code
from narrowgauge.reference.units.families import Family

#: what a model rests on: real GPUs' answers, recorded; two groups that worked apart; one group; a vendor's document
Grade = Literal["recorded", "two groups", "one group", "document"]
#: operands of so many bits or fewer may be of two formats
_MIXED = 8


@dataclass(frozen=True)
class Unit:
    """What one machine instruction computes of which formats, on which targets."""

    name: str
    targets: tuple[str, ...]
    instruction: str
    formats: tuple[str, ...]  #: of either operand; two different ones only of at most 8 bits
    out: str  #: format of the addend and of the result
    family: Family
    grade: Grade
    source: str
    through: str = ""  #: format to which codes are converted before, exactly; float32 to tfloat32 by dropping bits
    scales: tuple[str, ...] = ()  #: formats of the scales that it takes; () for none
    block: int = 0  #: so many elements of k have one scale
    known_nan: bool = True  #: whether every NaN is known to be ``nan``; else any NaN is as good

    def takes(self, a_format: str, b_format: str) -> bool:
        """Whether operands of these formats can be multiplied by it."""
        mixed = all(format_named(name).bits <= _MIXED for name in (a_format, b_format))
        return a_format in self.formats and b_format in self.formats and (mixed or a_format == b_format)

    @property
    def nan(self) -> int:
        """The code that stands for a NaN: all ones below the sign, where it is known."""
        fmt = format_named(self.out)
        return fmt.sign_bit - 1 if self.known_nan else nan_code(fmt)


@dataclass(frozen=True)
class Unknown:
    """Units of whose arithmetic nobody has published a model."""

    targets: tuple[str, ...]
    formats: tuple[str, ...]  #: operands
    known: str  #: what is known all the same
    source: str
