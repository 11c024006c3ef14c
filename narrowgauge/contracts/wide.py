"""Operations that must be computed in a wide format, as data: what they take, what they give, and the steps between.

An operation is claimed by itself (``WideOp("rms_norm")``), or before a quantizer (``Then(RECIPE, first="rms_norm")``).
Steps are straight-line; reference/wide/steps.py says what each one means, and how far float32 may be off. Those that
are known are in reference/wide/catalogue.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.recipe import Evidence

#: what a buffer has one value for
Per = Literal["element", "column", "half", "row", "chosen"]
#: ``("times", "y", "x", "weight")``: the name of a step, that of what it gives, and its operands
Step = tuple[str | float, ...]
#: formats that x has, and what comes out, unless an output has one of its own
FORMATS = ("float32", "bfloat16", "float16")
#: the output that a quantizer after the operation takes
Y = "y"


@dataclass(frozen=True)
class Held:
    """A matrix beside x, or one that is given back."""

    name: str
    per: Per = "element"
    format: str = ""  #: "" for that of the claim: its source on the way in, its format on the way out

    def shape(self, rows: int, columns: int, chosen: int) -> tuple[int, int]:
        """Its shape, for outputs of so many rows and columns."""
        return {
            "element": (rows, columns),
            "column": (1, columns),
            "half": (rows, columns // 2),
            "row": (rows, 1),
            "chosen": (rows, chosen),
        }[self.per]


@dataclass(frozen=True)
class Wide:
    """An operation on a matrix x [rows, n · columns] that gives [rows, columns], row by row."""

    name: str
    about: str
    source: str
    steps: tuple[Step, ...]
    inputs: tuple[Held, ...] = ()  #: given beside x
    outputs: tuple[Held, ...] = (Held(Y),)
    parts: int = 1  #: n: how many matrices stand side by side in x
    chosen: int = 0  #: how many columns are chosen, where some are
    evidence: Evidence = "source"

    def check(self, source: str, format_name: str) -> None:
        """Raise ``BadInput`` for formats that this operation does not go between."""
        own = not any(not held.format for held in self.outputs)
        allowed = (self.outputs[0].format,) if own else FORMATS
        if source not in FORMATS or format_name not in allowed:
            raise BadInput(
                f"{self.name} does not make {format_name} of {source}; it makes {' or '.join(allowed)} of "
                f"{', '.join(FORMATS)}"
            )

    @property
    def quantizable(self) -> bool:
        """Whether a quantizer can follow: one matrix comes out, in the claim's format."""
        return self.outputs == (Held(Y),)

    def given(self, source: str) -> dict[str, str]:
        """Names and formats of what is given beside x."""
        return {held.name: held.format or source for held in self.inputs}

    def gives(self, format_name: str) -> dict[str, str]:
        """Names and formats of what comes out."""
        return {held.name: held.format or format_name for held in self.outputs}

    def columns(self, wide: int) -> int:
        """Columns of the outputs, for x of so many. Raises ``BadInput`` where its parts do not divide them, or where
        there are fewer than are chosen, or an odd number that is split."""
        if wide % self.parts:
            raise BadInput(f"{self.name}: x has {wide} columns; expected {self.parts} · columns")
        columns = wide // self.parts
        if columns < max(1, self.chosen):
            raise BadInput(f"{self.name}: {columns} columns; expected at least {max(1, self.chosen)}")
        if columns % 2 and any(held.per == "half" for held in self.inputs):
            raise BadInput(f"{self.name}: {columns} columns; expected an even number, since they come in pairs")
        return columns
