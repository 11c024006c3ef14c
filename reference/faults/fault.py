"""What a fault is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from narrowgauge.reference.convert.converting import Converting
from narrowgauge.reference.faults.edits import Edit
from narrowgauge.reference.faults.lifted import in_conversion
from narrowgauge.reference.kv.paged import Paged
from narrowgauge.reference.wide.widening import Widening


@dataclass(frozen=True)
class Fault:
    """A mistake that turns a right behaviour into a wrong one."""

    name: str  #: family.what
    code: str  #: stands first in a failure message, in brackets
    edit: Edit
    symptom: str  #: what a user of the kernel sees
    cause: str  #: what was done wrong
    #: public reports that say just this, and libraries in which it was measured or read; empty where we know of none
    reports: tuple[str, ...]
    across_rows: bool = False  #: what it does to a row depends on other rows: a cut of a matrix would not show it

    def applied_to(self, behaviour: Any) -> Any:
        """The faulty behaviour, or None where this fault cannot exist. On a cache: the same mistake in every part; in a
        conversion: in what quantizes there, or in a packed buffer."""
        if isinstance(behaviour, Converting):
            return in_conversion(self.edit, behaviour)
        if isinstance(behaviour, Paged):
            return behaviour.with_parts(self.edit)
        if isinstance(behaviour, Widening):
            return None
        return self.edit(behaviour)


@dataclass(frozen=True)
class _OfKind:
    """A mistake of a kernel of one kind alone, that is none of a quantizer."""

    name: str
    code: str
    edit: Callable[[Any], Any]  #: the faulty behaviour, or None where this fault cannot exist
    symptom: str
    cause: str
    reports: tuple[str, ...]
    across_rows: bool = True
    kind: ClassVar[type]

    def applied_to(self, behaviour: Any) -> Any:
        """The faulty behaviour, or None where this fault cannot exist."""
        return self.edit(behaviour) if isinstance(behaviour, self.kind) else None


@dataclass(frozen=True)
class PagedFault(_OfKind):
    """A mistake of a kernel on a key-value cache."""

    kind: ClassVar[type] = Paged


@dataclass(frozen=True)
class ConversionFault(_OfKind):
    """A mistake of a converter of checkpoints."""

    kind: ClassVar[type] = Converting


@dataclass(frozen=True)
class WideFault(_OfKind):
    """A mistake of a kernel of a wide operation."""

    across_rows: bool = False
    kind: ClassVar[type] = Widening


#: of a quantizer, reader or cast; of a kernel on a cache; of a converter; or of a wide operation
AnyFault = Fault | PagedFault | ConversionFault | WideFault
