"""The behaviour of a kernel on a key-value cache: a quantizer or reader for each part, and where tokens go.

The reference's own answer is the behaviour of the bare claim; a fault is an edit of it. What comes in and goes out are
matrices: rows are slots of the cache, or tokens. reference/kv/memory.py has the images that a kernel sees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from narrowgauge.contracts.cache import Cache, Slots
from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.operations import OfCache

if TYPE_CHECKING:
    from narrowgauge.reference.behaviour import Behaviour
    from narrowgauge.reference.kv.rule import Attention

#: what a call is given -> what a fault takes it for
Taken = Callable[[Input], Input]
#: outputs, and the call as it came -> other outputs
Change = Callable[[dict[str, Any], Coded], dict[str, Any]]
#: the rule by which tokens are attended to, and the call -> another rule
Ruled = Callable[["Attention", Coded], "Attention"]


@dataclass(frozen=True)
class Paged:
    """A contract on a cache with everything looked up, and what a fault does to it."""

    cache: Cache
    contract: OfCache
    source: str
    format: str
    parts: tuple[tuple[str, Behaviour], ...]
    slots: Slots
    received: tuple[Taken, ...] = ()  #: each changes what comes in
    after: tuple[Change, ...] = ()  #: each changes the outputs
    attention: tuple[Ruled, ...] = ()  #: each changes the rule by which tokens are attended to
    values_by: tuple[tuple[str, Behaviour], ...] = ()  #: of attention: how values are read, where keys are otherwise
    sized: bool = False  #: the parts' blocks are those of one call, and not of the catalogue

    @property
    def by_rows(self) -> bool:
        """A row of x goes to any slot: no cut of it stands for the whole."""
        return False

    def part(self, name: str) -> Behaviour:
        return dict(self.parts)[name]

    def with_parts(self, edit: Callable[[Behaviour], Behaviour | None], only: str = "") -> Paged | None:
        """The same with a mistake in the quantizer or reader of all parts, or of one; None where it can exist in
        none."""
        changed = tuple((name, (edit(part) or part) if name == only or not only else part) for name, part in self.parts)
        return None if changed == self.parts else replace(self, parts=changed)
