"""The behaviour of a converter: a conversion with its formats, and what a fault does to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.conversion import Conversion

if TYPE_CHECKING:
    from narrowgauge.reference.behaviour import Behaviour

Buffers = dict[str, Coded]


@dataclass(frozen=True)
class Converting:
    """A contract on a conversion with everything looked up. A fault edits the steps, what comes in, what goes out."""

    conversion: Conversion
    source: str
    format: str
    quantizer: Behaviour | None = None  #: what makes codes of numbers, where the steps do that
    received: tuple[Callable[[Input], Input], ...] = ()  #: each changes what comes in
    after: tuple[Callable[[Buffers, Input], Buffers], ...] = ()  #: each changes the outputs

    @property
    def by_rows(self) -> bool:
        """A fused shard, a block or a tensor is more than a row: no cut stands for the whole."""
        return False
