"""What a fault is."""

from __future__ import annotations

from dataclasses import dataclass

from narrowgauge.reference.behaviour import Behaviour
from narrowgauge.reference.faults.edits import Edit


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

    def applied_to(self, behaviour: Behaviour) -> Behaviour | None:
        """The faulty behaviour, or None where this fault cannot exist."""
        return self.edit(behaviour)
