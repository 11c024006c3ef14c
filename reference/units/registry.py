"""Which matrix units there are, and which of them take what on a target. Adding one is a line in ``of_…``."""

from __future__ import annotations

from narrowgauge.contracts.errors import BadInput, unknown
from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.units import of_amd, of_nvidia
from narrowgauge.reference.units.families_plain import Chain
from narrowgauge.reference.units.names import DOC, F32
from narrowgauge.reference.units.unit import Unit, Unknown

UNKNOWN: tuple[Unknown, ...] = (*of_nvidia.UNKNOWN, *of_amd.UNKNOWN)
_MATRIX: tuple[Unit, ...] = (*of_nvidia.UNITS, *of_amd.UNITS)
_OF = [*(unit.targets for unit in _MATRIX), *(gap.targets for gap in UNKNOWN)]
#: every target of which anything is known
TARGETS = tuple(dict.fromkeys(name for names in _OF for name in names))
#: what a kernel does without a matrix unit: float32 by fma, k ascending. It is the same everywhere
_PLAIN = Unit("plain.fma", TARGETS, "fma.rn.f32, v_fma_f32", (F32,), F32, Chain(), DOC, "IEEE 754", known_nan=False)
UNITS: dict[str, Unit] = {unit.name: unit for unit in (*_MATRIX, _PLAIN)}


def unit_named(name: str) -> Unit:
    """The unit of that name. Raises ``BadInput`` with near names."""
    if name not in UNITS:
        raise unknown("matrix unit", name, UNITS)
    return UNITS[name]


def units_for(target: str, a_format: str, b_format: str, out: str, scales: str = "") -> tuple[Unit, ...]:
    """Every known unit of a target that multiplies such operands into such results, most used first.

    ``scales``: format of the scales that it takes; "" for units that take none.

    Several may take the same formats: of which a kernel uses is its compiler's affair. Raises ``BadInput`` where none
    is known: what a unit computes is never guessed from its neighbours.
    """
    if target not in TARGETS:
        raise unknown("target with matrix units", target, TARGETS)
    one, other = format_named(a_format).name, format_named(b_format).name
    asked = f"{one} × {other} into {format_named(out).name}{f' with scales of {scales}' if scales else ''}"
    for gap in UNKNOWN:
        if target in gap.targets and one in gap.formats and other in gap.formats:
            raise BadInput(_not_known(target, asked, gap))
    here = [unit for unit in UNITS.values() if target in unit.targets]
    takes = [unit for unit in here if unit.takes(one, other) and unit.out == format_named(out).name]
    found = tuple(unit for unit in takes if (format_named(scales).name in unit.scales if scales else not unit.scales))
    if not found:
        has = "; ".join(f"{', '.join(unit.formats)} into {unit.out} ({unit.name})" for unit in here)
        raise BadInput(f"no matrix unit of {target} computes {asked}; name the formats that reach it. It has {has}")
    return found


def _not_known(target: str, asked: str, gap: Unknown) -> str:
    source = f" ({gap.source})" if gap.source else ""
    return (
        f"how {target} computes {asked} is not known. What is: {gap.known}{source}. "
        "Run 'narrowgauge probe' on a kernel there, or judge it by exact data and by bounds"
    )
