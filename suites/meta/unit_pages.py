"""Writes the tables of docs/units.md, from the registry of matrix units and the golden vectors."""

from __future__ import annotations

from narrowgauge.golden import units as golden
from narrowgauge.reference.units.names import SOURCES
from narrowgauge.reference.units.registry import UNITS, UNKNOWN
from narrowgauge.reference.units.words import arithmetic
from narrowgauge.suites.meta.pages import Page


def table() -> str:
    """A line for each unit."""
    lines = ["| unit | on | instruction | operands | result | arithmetic | rests on |", "|---|---|---|---|---|---|---|"]
    for unit in UNITS.values():
        on = "every target" if unit.name.startswith("plain.") else ", ".join(unit.targets)
        scales = f"; scales {', '.join(unit.scales)} of {unit.block}" if unit.scales else ""
        grade = f"{unit.grade}: {unit.source}"
        cells = (
            f"`{unit.name}`",
            on,
            unit.instruction,
            ", ".join(unit.formats) + scales,
            unit.out,
            arithmetic(unit),
            grade,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def unknown() -> str:
    """What is known of those that have no model."""
    lines = ["| targets | operands | known | source |", "|---|---|---|---|"]
    for gap in UNKNOWN:
        lines.append(f"| {', '.join(gap.targets)} | {', '.join(gap.formats)} | {gap.known} | {gap.source} |")
    return "\n".join(lines) + "\n"


def vectors() -> str:
    """Of each file of vectors, each vector with its answers."""
    parts = []
    for rule, out in golden.families():
        made = golden.tensors_of(rule, out)
        parts.append(f"### unit-{rule}-{out}\n\n| vector | what it shows | answers |\n|---|---|---|")
        for row, vector in enumerate(golden.vectors_of(rule, out)):
            by: dict[int, list[str]] = {}
            for unit in golden.units_of(rule, out):
                by.setdefault(int(made[unit.name].data[row]), []).append(unit.name)
            digits = made["c"].data.dtype.itemsize * 2
            told = "; ".join(f"{code:0{digits}x}: {', '.join(names)}" for code, names in by.items())
            parts.append(
                f"| {vector.name} | {vector.about} | {told if len(by) > 1 else told.partition(':')[0] + ': all'} |"
            )
        parts.append("")
    return "\n".join(parts)


def below() -> str:
    """All that stands below the mark."""
    sources = "".join(f"* {word} {text}\n" for word, text in SOURCES.items())
    return (
        f"\n## Units\n\n{table()}\n{sources}\n## Not known\n\n{unknown()}\n## Vectors\n\n"
        f"Results are bits, in hexadecimal. An infinite or NaN result of AMD's is any NaN.\n\n{vectors()}"
    )


PAGE = Page("units.md", "unit_pages", below)

if __name__ == "__main__":
    PAGE.write()
