"""Recipes: how a quantizer computes its scale and codes, as straight-line float32 steps.

Zero, NaN and infinity behaviour follows from the steps, as it does in the engines, and is never stored twice. What
needs a branch is a function around a recipe, not a step in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from narrowgauge.contracts.errors import BadInput

#: ``("div", "bound")``: the name of a step and its operand, a number or the name of a value of the context.
Step = tuple[str] | tuple[str, float | str]
#: A chain starts at the name of a value ("amax", "scale", "encode", "bound", "1/bound") and applies steps to it.
Chain = tuple[str | Step, ...]


@dataclass(frozen=True)
class Destination:
    """What a recipe uses for one destination format."""

    format: str
    bound: float  #: the number the engine divides amax by and clamps to; 224 on FNUZ in some engines
    cast: str  #: name of the cast policy of the last step


@dataclass(frozen=True)
class Recipe:
    """One engine's quantizer. ``scale`` is the dequantization scale; ``encode`` is what the elements meet."""

    name: str
    granularity: Literal["token"]  #: what shares one scale; a token is a row
    destinations: tuple[Destination, ...]
    scale: Chain
    encode: Chain
    apply: Literal["mul", "div"]  #: x * encode, or x / encode
    amax_nan: Literal["drop", "keep"]  #: fmax seeded with 0 drops NaN elements
    clamp: Literal["fmin_first", "fmax_first", "keep_nan", "none"]  #: the order says what NaN becomes
    source: str  #: where the engine does this: file and lines
    constants: tuple[tuple[str, Chain], ...] = ()  #: named values, each a chain that starts at "bound"

    def __post_init__(self) -> None:
        starts = {str(self.scale[0]), str(self.encode[0])}
        if "amax" not in starts or self.scale[0] == "scale" or self.encode[0] == "encode":
            raise BadInput(
                f"recipe {self.name!r}: scale starts at {self.scale[0]!r}, encode at {self.encode[0]!r}; "
                "one of the two must start at 'amax' and neither at itself"
            )

    def destination(self, format_name: str) -> Destination:
        """What this recipe uses for a format. Raises ``BadInput`` where the engine has no such path."""
        for destination in self.destinations:
            if destination.format == format_name:
                return destination
        known = ", ".join(d.format for d in self.destinations)
        raise BadInput(f"recipe {self.name!r} has no destination {format_name!r}; it has {known}")
