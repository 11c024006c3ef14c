"""What may be said of cells that several columns have: one finding for those of a kernel that are alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from narrowgauge.ci.comparison.beside import Cell, Column, Rules, Table, nights
from narrowgauge.ci.comparison.sides import EMULATED
from narrowgauge.ci.ledger import Row
from narrowgauge.contracts.formats import FORMATS


@dataclass(frozen=True)
class Kind:
    """What may be said of a cell that several columns have."""

    name: str
    said: str
    parts: bool = False  #: whether something parts: exit code 1


#: the worst first
KINDS = {
    kind.name: kind
    for kind in (
        Kind("verdicts", "verdicts part: not all of them pass, or fail in one way", True),
        Kind("codes", "codes part, and all pass", True),
        Kind("nan", "codes part in the bits of NaN alone, and all pass", True),
        Kind("failures", "none passes, and their codes part", True),
        Kind("unexecuted", "not executed on every one"),
        Kind("unplanned", "planned in one night alone"),
        Kind("formats", "two formats of one width: codes are not compared"),
        Kind("incomparable", "not comparable: other inputs"),
        Kind("no_codes", "none returned codes"),
        Kind("agree", "codes agree"),
    )
}
#: what findings are about, in the order in which they are told
SECTIONS = {
    "emulator": "emulated against hardware of the same architecture",
    "drift": "one target over nights",
    "targets": "across targets",
}


@dataclass
class Finding:
    """Cells of a kernel of which the same can be said."""

    section: str
    kind: str
    kernel: str
    operation: str
    format: str
    #: labels of columns of the same codes (of "verdicts" and "unexecuted": of the same words), in their order
    classes: tuple[tuple[str, ...], ...]
    words: tuple[str, ...]  #: of each class: results, or why it was not executed
    sources: list[str] = field(default_factory=list)
    cases: list[str] = field(default_factory=list)
    rows: list[dict[str, Row]] = field(default_factory=list)  #: for each case, by label


def _scopes(columns: Sequence[Column]) -> Iterator[tuple[str, list[Column]]]:
    """Which columns are held against each other: over targets, the last night of each."""
    latest = {c.target: c for c in columns}
    for target, column in latest.items():
        if (emulated := latest.get(EMULATED + target)) is not None:
            yield "emulator", [column, emulated]
    for pair in nights(columns):
        yield "drift", list(pair)
    yield "targets", list(latest.values())


def findings_of(table: Table, columns: Sequence[Column], rules: Rules) -> list[Finding]:
    found: dict[tuple[object, ...], Finding] = {}
    for section, scope in _scopes(columns):
        for cells in table.values():
            here = {c: cells[c] for c in scope if c in cells}
            if section == "targets":
                here = _without_stand_ins(here)
            if len(here) < 2:
                if section == "drift" and here:
                    words = {c.label: "planned" if c in here else "not planned" for c in scope}
                    _add(found, section, "unplanned", words, words, {}, next(iter(here.values())))
                continue
            seen = {c: row for c, cell in here.items() if (row := cell.ran) is not None}
            if len(seen) > 1:
                kind = kind_of(seen, rules)
                words = {c.label: _code_word(kind, row) for c, row in seen.items()}
                said = {c.label: row.result if kind == "verdicts" else "" for c, row in seen.items()}
                _add(found, section, kind, words, said, seen, next(iter(here.values())))
            if unrun := {c: cell for c, cell in here.items() if cell.ran is None}:
                words = {c.label: "executed" for c in seen} | {c.label: cell.why for c, cell in unrun.items()}
                _add(found, section, "unexecuted", words, words, seen, next(iter(unrun.values())))
    return [*found.values(), *_formats(table)]


def _without_stand_ins(cells: Mapping[Column, Cell]) -> dict[Column, Cell]:
    """Where the hardware was executed, what is emulated of it is told in a section of its own."""
    there = {column.target for column, cell in cells.items() if cell.ran is not None}
    return {c: cell for c, cell in cells.items() if c.target.removeprefix(EMULATED) not in there - {c.target}}


def kind_of(rows: Mapping[Column, Row], rules: Rules) -> str:
    """What can be said of two or more verdicts on one cell."""
    results = {row.result for row in rows.values()}
    digests = {row.digest for row in rows.values()}
    if len(results) > 1:
        return "verdicts"
    if digests == {""}:
        return "no_codes"
    if rules.other_inputs(rows):
        return "incomparable"
    if len(digests) == 1:
        return "agree"
    if results != {"passed"}:
        return "failures"
    return "nan" if rules.in_nan_alone(rows) else "codes"


def _code_word(kind: str, row: Row) -> str:
    """Equal for columns of one class."""
    return f"{row.result} {row.digest}" if kind == "verdicts" else row.digest


def _add(
    found: dict[tuple[object, ...], Finding], section: str, kind: str, words: Mapping[str, str],
    said: Mapping[str, str], rows: Mapping[Column, Row], cell: Cell,
) -> None:  # fmt: skip
    """Count a cell to the finding that says the same, or make one."""
    groups: dict[str, list[str]] = {}
    for label, word in words.items():
        groups.setdefault("" if kind in ("agree", "incomparable", "no_codes") else word, []).append(label)
    classes = tuple(tuple(labels) for labels in groups.values())
    planned = cell.planned
    told = tuple(said[labels[0]] for labels in classes)
    key = (section, kind, planned.kernel, planned.operation, planned.format, classes, told)
    finding = found.setdefault(
        key, Finding(section, kind, planned.kernel, planned.operation, planned.format, classes, told)
    )
    if planned.source not in finding.sources:
        finding.sources.append(planned.source)
    finding.cases.append(f"{planned.source} {planned.case}")
    finding.rows.append({column.label: row for column, row in rows.items()})


def _formats(table: Table) -> list[Finding]:
    """A kernel that has one format here and its twin of another family there: beside each other, never equal."""
    places: dict[tuple[str, str], dict[str, dict[str, None]]] = {}
    for cells in table.values():
        for column, cell in cells.items():
            if cell.ran is not None:
                of = places.setdefault((cell.planned.kernel, cell.planned.operation), {})
                for name in (cell.planned.source, cell.planned.format):
                    of.setdefault(name, {})[column.label] = None
    found = []
    for (kernel, operation), formats in places.items():
        for name in formats:
            twin = _twin(name)
            if twin in formats and set(formats[twin]) != set(formats[name]):
                classes, words = (tuple(formats[twin]), tuple(formats[name])), (twin, name)
                found.append(Finding("targets", "formats", kernel, operation, " and ".join(words), classes, words))
    return found


def _twin(name: str) -> str:
    """What OCP targets have where FNUZ targets have this format; "" for another."""
    if not name.endswith("fnuz"):
        return ""
    return next((n for n in (name.removesuffix("uz"), name.removesuffix("fnuz")) if n in FORMATS), "")
