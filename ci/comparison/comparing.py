"""Ledger rows of several targets, lanes or nights beside each other: where codes agree, and where they part.

By digests alone, so no tensors move: a digest says equal or not. Cells are paired by all that their id has but the
target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from narrowgauge.ci.comparison.beside import Column, OnlyNan, Rules, columns_of, incomparable_of, nights, table_of
from narrowgauge.ci.comparison.findings import KINDS, SECTIONS, Finding, findings_of
from narrowgauge.ci.comparison.matrix import Line, matrix_of
from narrowgauge.ci.comparison.sides import Side


@dataclass
class Comparison:
    """Everything that is said of some sides."""

    sides: list[Side]
    columns: list[Column]
    notes: list[str]
    changed: dict[str, dict[str, tuple[str, str]]]  #: of nights: by "from -> to", versions that changed
    lines: list[Line]
    findings: list[Finding]

    @property
    def counts(self) -> dict[str, int]:
        """Cells by kind; each as often as a section tells of it."""
        return {kind: sum(len(f.cases) for f in self.findings if f.kind == kind) for kind in KINDS}

    @property
    def parts(self) -> bool:
        return any(KINDS[f.kind].parts for f in self.findings)

    @property
    def compared(self) -> bool:
        """Whether any two verdicts stood beside each other with codes that could be compared, or parted."""
        return self.parts or any(f.kind == "agree" for f in self.findings)


def compare(sides: Sequence[Side], only_nan: OnlyNan, kernel: str = "") -> Comparison:
    """Everything; of one kernel where one is named. ``only_nan`` says of a row what its claim leaves open."""
    columns = columns_of(sides)
    table = table_of(sides, columns, kernel)
    columns = [c for c in columns if any(c in cells for cells in table.values())]
    rules = Rules(incomparable_of(sides), only_nan)
    findings = sorted(findings_of(table, columns, rules), key=_place)
    notes = [*(p for side in sides for p in side.problems), *_notes(sides)]
    return Comparison(list(sides), columns, notes, _changes(sides, columns), matrix_of(table, columns, rules), findings)


def _place(finding: Finding) -> tuple[int, int, str, str, str]:
    """The worst of each section first."""
    section, kind = list(SECTIONS).index(finding.section), list(KINDS).index(finding.kind)
    return section, kind, finding.kernel, finding.operation, finding.format


def _notes(sides: Sequence[Side]) -> list[str]:
    told = [
        f"codes of {one.name} and {other.name} are not compared, verdicts are. Two {why}: inputs may not be the same"
        for (i, j), why in incomparable_of(sides).items()
        for one, other in [(sides[i], sides[j])]
        if i < j
    ]
    depths = {side.name: side.depth for side in sides if side.depth}
    if len(set(depths.values())) > 1:
        words = ", ".join(f"{name} {depth}" for name, depth in depths.items())
        told.append(f"two depths ({words}): cases of the deeper one alone are planned nowhere else")
    told += [f"{side.name} judged nothing: {side.lost}" for side in sides if side.lost]
    return told


def _changes(sides: Sequence[Side], columns: Sequence[Column]) -> dict[str, dict[str, tuple[str, str]]]:
    """Versions that changed between two nights of a target."""
    found = {}
    for one, other in nights(columns):
        a, b = (sides[c.side].versions.get(c.target, {}) for c in (one, other))
        # what one night alone knows is no change: a run that was cut has no ledger, which knows most
        changed = {n: (a[n], b[n]) for n in sorted({*a} & {*b}) if a[n] != b[n]}
        if changed:
            found[f"{one.label} -> {other.label}"] = changed
    return found
