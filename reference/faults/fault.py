"""What a fault is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from narrowgauge.reference.behaviour import Behaviour
from narrowgauge.reference.convert.converting import Converting
from narrowgauge.reference.faults.edits import Edit
from narrowgauge.reference.faults.lifted import in_conversion
from narrowgauge.reference.faults.lifted_products import in_product
from narrowgauge.reference.faults.product_ways import Way, Ways
from narrowgauge.reference.kv.paged import Paged
from narrowgauge.reference.matmul.multiplying import Multiplying
from narrowgauge.reference.wide.run import resolve_wide
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
        conversion: in what quantizes there, or in a packed buffer; in a product: in the first of its ways."""
        if isinstance(behaviour, Converting):
            return in_conversion(self.edit, behaviour)
        if isinstance(behaviour, Paged):
            return behaviour.with_parts(self.edit)
        if isinstance(behaviour, Multiplying):
            return _first(self.ways(behaviour))
        if isinstance(behaviour, Widening):
            return None
        return self.edit(behaviour)

    def ways(self, behaviour: Any) -> Iterator[Way]:
        """Every faulty behaviour that this fault can make: of a product several, of anything else one."""
        if isinstance(behaviour, Multiplying):
            return in_product(self.edit, self.code, behaviour)
        return _only(self.applied_to(behaviour))


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

    def ways(self, behaviour: Any) -> Iterator[Way]:
        """The same, as a fault has it that can be made in several ways."""
        return _only(self.applied_to(behaviour))


@dataclass(frozen=True)
class PagedFault(_OfKind):
    """A mistake of a kernel on a key-value cache."""

    kind: ClassVar[type] = Paged


@dataclass(frozen=True)
class ConversionFault(_OfKind):
    """A mistake of a converter of checkpoints."""

    kind: ClassVar[type] = Converting


@dataclass(frozen=True)
class ProductFault(_OfKind):
    """A mistake of a kernel that multiplies matrices. ``edit`` gives every way in which it can be made."""

    edit: Ways
    kind: ClassVar[type] = Multiplying

    def applied_to(self, behaviour: Any) -> Any:
        """The faulty behaviour in the first of the ways, or None where there is none."""
        return _first(self.ways(behaviour))

    def ways(self, behaviour: Any) -> Iterator[Way]:
        """Every faulty behaviour that this fault can make."""
        return iter(self.edit(behaviour)) if isinstance(behaviour, Multiplying) else iter(())


def _first(ways: Iterator[Way]) -> Any:
    return next((way.behaviour for way in ways), None)


def _only(behaviour: Any) -> Iterator[Way]:
    return iter(()) if behaviour is None else iter((Way("", behaviour),))


@dataclass(frozen=True)
class WideFault(_OfKind):
    """A mistake of a kernel of a wide operation, by itself or before a quantizer."""

    across_rows: bool = False
    kind: ClassVar[type] = Widening

    def applied_to(self, behaviour: Any) -> Any:
        """The faulty behaviour, or None where this fault cannot exist."""
        if not isinstance(behaviour, Behaviour) or not behaviour.first:
            return super().applied_to(behaviour)
        first = resolve_wide(behaviour.first, "Then(...)")
        made = self.edit(Widening(first, behaviour.source, behaviour.source))
        return None if made is None else replace(behaviour, first=made.wide)


#: of a quantizer, reader or cast; of a kernel on a cache; of a converter; of a product; or of a wide operation
AnyFault = Fault | PagedFault | ConversionFault | ProductFault | WideFault
