"""Matrix units in words."""

from __future__ import annotations

from narrowgauge.reference.units.families import Truncating, TruncatingGroups, TwoHalves
from narrowgauge.reference.units.families_amd import Exact, Pairwise, Rounded
from narrowgauge.reference.units.families_plain import Chain, Whole
from narrowgauge.reference.units.names import SOURCES
from narrowgauge.reference.units.unit import Unit

_WRITTEN = {23: "cut to float32", 13: "cut to 13 bits in float32", 10: "nearest float16"}


def arithmetic(unit: Unit) -> str:
    """A unit's family and parameters in words."""
    match unit.family:
        case Truncating(length=length, fraction=fraction, stored=stored, zero=zero):
            return f"T: {length} at once, {fraction} bits, {_WRITTEN[stored]}, zeros at 2^{zero}"
        case TruncatingGroups(length=length, group=group, fraction=fraction, zero=zero):
            return f"T of sums of {group}: {length} at once, {fraction} bits, cut to float32, zeros at 2^{zero}"
        case TwoHalves(inner=inner):
            return (
                f"two T by k % 4: {inner.length} at once, {inner.fraction} bits, {_WRITTEN[inner.stored]}; one addition"
            )
        case Exact(length=length):
            return f"exact sum of {length}, nearest"
        case Pairwise(length=length):
            return f"pairs of {length}, each nearest, subnormals flushed"
        case Rounded(length=length, parities=parities):
            return f"CDNA3: {length} at once{', even and odd k apart' if parities else ''}, nearest"
        case Chain():
            return "fma by fma, nearest"
        case Whole(clamps=clamps, length=length):
            return f"exact, clamped after each {length}" if clamps else "exact, lower 32 bits"
    raise AssertionError(unit)


def facts_of(unit: Unit) -> list[tuple[str, str]]:
    """What there is to say of a unit, as pairs: what it is, and the words."""
    facts = [
        ("targets", ", ".join(unit.targets)),
        ("instruction", unit.instruction),
        ("operands", ", ".join(unit.formats)),
        ("result", unit.out),
        ("arithmetic", arithmetic(unit)),
    ]
    facts += [("converted before", unit.through)] if unit.through else []
    facts += [("scales", f"{', '.join(unit.scales)}, one for {unit.block} of k")] if unit.scales else []
    said = [f"{mark} {words}" for mark, words in SOURCES.items() if mark in unit.source]
    return [*facts, ("rests on", f"{unit.grade}: {'; '.join(said) or unit.source}")]
