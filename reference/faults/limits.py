"""Faults of a clamp that was written for another format: ``cast.clamped_to_*``. One line of ``LIMITS`` each."""

from __future__ import annotations

from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.behaviour import Behaviour
from narrowgauge.reference.codec import largest, values
from narrowgauge.reference.faults import edits
from narrowgauge.reference.faults.edits import Edit
from narrowgauge.reference.faults.fault import Fault
from narrowgauge.reference.faults.value_edits import is_float

#: a number that casts are clamped to, and whose largest value it is
LIMITS = {
    57344: "e5m2",
    448: "e4m3fn",
    240: "e4m3fnuz, and of e4m3 as IEEE 754 would have it",
    224: "e4m3fnuz as vLLM clamps it",
    30: "e4m3b11fnuz",
}


def clamped_to(limit: float) -> Edit:
    """Finite values and infinities end at ``limit``, where that is a value below the destination's largest."""
    changed = edits.policy(limit=float(limit), overflow="max", infinity="max")

    def edit(behaviour: Behaviour) -> Behaviour | None:
        if not is_float(behaviour):
            return None
        fmt = format_named(behaviour.written or behaviour.format)
        return changed(behaviour) if limit < values(fmt)[largest(fmt)] else None

    return edit


FAULTS = tuple(
    Fault(
        f"cast.clamped_to_{limit}",
        "OVERFLOW",
        clamped_to(limit),
        f"nothing beyond {limit} is ever returned, though the format has larger values",
        f"values are clamped to {limit}, the largest value of {whose}",
        (),
    )
    for limit, whose in LIMITS.items()
)
