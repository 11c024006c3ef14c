"""The behaviour of a kernel that claims a wide operation, and what a fault does to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.wide import Wide

#: least and greatest code of each output
Pairs = dict[str, tuple[Coded, Coded]]


@dataclass(frozen=True)
class Widening:
    """A contract on a wide operation with everything looked up. A fault edits the steps, what comes in, what goes out."""

    wide: Wide
    source: str
    format: str
    received: tuple[Callable[[Input], Input], ...] = ()  #: each changes what comes in
    after: tuple[Callable[[Pairs, Input], Pairs], ...] = ()  #: each changes the outputs

    @property
    def by_rows(self) -> bool:
        """Whether what comes out of a row depends on that row alone: in every operation."""
        return True
