"""Conversions of checkpoints as data: what a converter takes, what it gives, and the steps between.

Everything is a matrix [rows, columns] of codes. A converter is given ``codes`` (as x) and what is stored beside them;
it gives buffers of the same names. The steps are straight-line; reference/convert/steps.py says what each one means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.recipe import TENSOR, Blocks, Evidence

#: what a buffer has one value for: an element, an element of the transposed matrix, a block of the taken or of the
#: given scale, the whole tensor, a fused shard, a row, a column
Per = Literal["element", "transposed", "block", "new block", "tensor", "shard", "row", "column"]
#: ``("times", "scale", 2.0)``: the name of a step, and its operands: names of buffers, and numbers or texts
Step = tuple[str | float, ...]
#: the first buffer, which a kernel is given as x
FIRST = "codes"


@dataclass(frozen=True)
class Held:
    """One buffer of a conversion."""

    name: str
    per: Per = "element"
    format: str = ""  #: "" for that of the claim: its source on the way in, its format on the way out
    layout: str = ""  #: how it stands in memory, as in a contract's layouts; "" for a plain matrix


@dataclass(frozen=True)
class Conversion:
    """One way from what a checkpoint stores to what another place expects."""

    name: str
    formats: tuple[tuple[str, str], ...]  #: pairs: that of the codes taken, that of the codes given
    takes: tuple[Held, ...]
    gives: tuple[Held, ...]
    steps: tuple[Step, ...]
    source: str  #: file and lines of the engine; or clause of a specification
    evidence: Evidence = "source"
    blocks: Blocks = TENSOR  #: what shares a scale in what is taken
    new_blocks: Blocks = TENSOR  #: and in what is given
    exact: bool = False  #: every code stands for the number that it stood for, wherever the new format has it

    def __post_init__(self) -> None:
        for side in (self.takes, self.gives):
            names = [held.name for held in side]
            if len(set(names)) != len(names):
                raise BadInput(f"conversion {self.name!r}: buffers {names}; each must be there once")
        if not self.takes or self.takes[0].name != FIRST or self.takes[0].per != "element":
            raise BadInput(f"conversion {self.name!r}: what it takes must begin with {FIRST!r}, one for each element")
        for one, other in self.formats:
            if format_named(one).name != one or format_named(other).name != other:
                raise BadInput(f"conversion {self.name!r}: formats {one!r}, {other!r}; expected their own names")

    def check(self, source: str, format_name: str) -> None:
        """Raise ``BadInput`` for formats between which this conversion does not go."""
        if (source, format_name) not in self.formats:
            known = ", ".join(f"{one} to {other}" for one, other in self.formats)
            raise BadInput(f"conversion {self.name!r} does not go from {source} to {format_name}; it goes {known}")

    def inputs(self, source: str) -> dict[str, str]:
        """Names and formats of what is given beside the codes."""
        return {held.name: held.format or source for held in self.takes[1:]}

    def outputs(self, format_name: str) -> dict[str, str]:
        """Names and formats of what it returns."""
        return {held.name: held.format or format_name for held in self.gives}
