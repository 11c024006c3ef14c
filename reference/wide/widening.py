"""The behaviour of a kernel that claims a wide operation, and what a fault does to it."""

from __future__ import annotations

from dataclasses import dataclass

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.wide import Wide

#: least and greatest code of each output
Pairs = dict[str, tuple[Coded, Coded]]


@dataclass(frozen=True)
class Widening:
    """A contract on a wide operation with everything looked up. A fault edits the steps."""

    wide: Wide
    source: str
    format: str

    @property
    def by_rows(self) -> bool:
        """Whether what comes out of a row depends on that row alone: in every operation."""
        return True
