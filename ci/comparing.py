"""Ledger rows of several targets, lanes or nights beside each other: where codes agree, and where they part.

By digests alone, so no tensors move: a digest says equal or not. Cells are paired by their id without the target.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from narrowgauge.ci.ledger import Row
from narrowgauge.ci.sides import EMULATED, Planned, Side
from narrowgauge.contracts.formats import FORMATS

#: the case whose inputs are drawn anew in every run
DRAWN = "property"
#: operations of rows that are of no kernel: recordings of units, parts of checkpoints
NO_KERNELS = ("unit", "audit")


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
        Kind("failures", "none passes, and their codes part", True),
        Kind("unexecuted", "not executed on every one"),
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


@dataclass(frozen=True)
class Column:
    """One target of one side."""

    label: str
    side: int
    target: str


@dataclass(frozen=True)
class Cell:
    """What one column has of a key: a verdict, or the reason why there is none."""

    planned: Planned
    row: Row | None
    why: str = ""

    @property
    def executed(self) -> bool:
        return self.row is not None and self.row.result != "not_executed"


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


@dataclass(frozen=True)
class Tally:
    """What one column has in a row of the matrix."""

    results: dict[str, int]  #: executed cells by result
    unexecuted: int
    compared: int = 0  #: cells whose codes could be held against those of the first column that was executed
    apart: int = 0  #: of these, how many part
    with_label: str = ""  #: that column; "" for itself


@dataclass(frozen=True)
class Line:
    """A row of the matrix."""

    format: str
    operation: str
    kernel: str
    tallies: dict[str, Tally]  #: by label of a column; a column for which nothing was planned has none


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


def compare(sides: Sequence[Side], kernel: str = "") -> Comparison:
    """Everything; of one kernel where one is named."""
    columns = _columns(sides)
    table = _table(sides, columns, kernel)
    incomparable = _incomparable(sides)
    findings = sorted(
        [*_findings(table, columns, incomparable), *_formats(table)], key=lambda f: (
            list(SECTIONS).index(f.section), list(KINDS).index(f.kind), f.kernel, f.operation, f.format
        ),
    )  # fmt: skip
    notes = [*(p for side in sides for p in side.problems), *_notes(sides)]
    return Comparison(list(sides), columns, notes, _changes(sides, columns), _matrix(table, incomparable), findings)


# --- the table -------------------------------------------------------------------------------------------------------

#: by key, what each column has
Table = dict[str, dict[Column, Cell]]
#: why codes of two sides cannot be compared, by their numbers
Incomparable = Mapping[tuple[int, int], str]


def _columns(sides: Sequence[Side]) -> list[Column]:
    pairs = [(number, target) for number, side in enumerate(sides) for target in side.targets(NO_KERNELS)]
    once = [target for _, target in pairs]
    # hardware first, then what stands for it
    pairs.sort(key=lambda pair: (pair[1].startswith(EMULATED), pair[1], pair[0]))
    return [Column(t if once.count(t) == 1 else f"{t} @ {sides[n].name}", n, t) for n, t in pairs]


def _table(sides: Sequence[Side], columns: Sequence[Column], kernel: str) -> Table:
    table: Table = {}
    for column in columns:
        side = sides[column.side]
        for test, planned in side.planned.items():
            if planned.target != column.target or (kernel and planned.kernel != kernel):
                continue
            if planned.operation in NO_KERNELS:
                continue
            row = side.rows.get(test)
            why = side.why_unrun() if row is None else row.reason if row.result == "not_executed" else ""
            table.setdefault(planned.key, {})[column] = Cell(planned, row, why)
    for column in columns:  # of a side that judged nothing and kept no plan, everything is not executed
        side = sides[column.side]
        if not side.planned:
            for cells in table.values():
                cells.setdefault(column, Cell(next(iter(cells.values())).planned, None, side.why_unrun()))
    return dict(sorted(table.items()))


def _incomparable(sides: Sequence[Side]) -> dict[tuple[int, int], str]:
    found = {}
    for i, one in enumerate(sides):
        for j, other in enumerate(sides):
            for what, a, b in (
                ("versions of narrowgauge", one.narrowgauge, other.narrowgauge),
                ("golden manifests", one.golden, other.golden),
            ):
                if a and b and a != b:
                    found[i, j] = f"{what}: {a[:12]} and {b[:12]}"
    return found


def _notes(sides: Sequence[Side]) -> list[str]:
    told = [
        f"codes of {one.name} and {other.name} are not compared, verdicts are. Two {why}: inputs may not be the same"
        for (i, j), why in _incomparable(sides).items()
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
    for one, other in _nights(columns):
        a, b = (sides[c.side].versions.get(c.target, {}) for c in (one, other))
        changed = {n: (a.get(n, "-"), b.get(n, "-")) for n in sorted({*a, *b}) if a.get(n) != b.get(n)}
        if changed:
            found[f"{one.label} -> {other.label}"] = changed
    return found


# --- findings --------------------------------------------------------------------------------------------------------


def _nights(columns: Sequence[Column]) -> Iterator[tuple[Column, Column]]:
    for target in dict.fromkeys(c.target for c in columns):
        yield from pairwise([c for c in columns if c.target == target])


def _scopes(columns: Sequence[Column]) -> Iterator[tuple[str, list[Column]]]:
    """Which columns are held against each other: over targets, the last night of each."""
    latest = {c.target: c for c in columns}
    for target, column in latest.items():
        if (emulated := latest.get(EMULATED + target)) is not None:
            yield "emulator", [column, emulated]
    for pair in _nights(columns):
        yield "drift", list(pair)
    yield "targets", list(latest.values())


def _findings(table: Table, columns: Sequence[Column], incomparable: Incomparable) -> list[Finding]:
    found: dict[tuple[object, ...], Finding] = {}
    for section, scope in _scopes(columns):
        for cells in table.values():
            here = {c: cells[c] for c in scope if c in cells}
            if section == "targets":
                here = _without_stand_ins(here)
            if len(here) < 2:
                continue
            seen = {c: cell.row for c, cell in here.items() if cell.row is not None and cell.executed}
            if len(seen) > 1:
                kind = kind_of(seen, incomparable)
                words = {c.label: _code_word(kind, row) for c, row in seen.items()}
                said = {c.label: row.result if kind == "verdicts" else "" for c, row in seen.items()}
                _add(found, section, kind, words, said, seen, next(iter(here.values())))
            if unrun := {c: cell for c, cell in here.items() if not cell.executed}:
                words = {c.label: "executed" for c in seen} | {c.label: cell.why for c, cell in unrun.items()}
                _add(found, section, "unexecuted", words, words, seen, next(iter(unrun.values())))
    return list(found.values())


def _without_stand_ins(cells: Mapping[Column, Cell]) -> dict[Column, Cell]:
    """Where the hardware was executed, what is emulated of it is told in a section of its own."""
    there = {column.target for column, cell in cells.items() if cell.executed}
    return {c: cell for c, cell in cells.items() if c.target.removeprefix(EMULATED) not in there - {c.target}}


def kind_of(rows: Mapping[Column, Row], incomparable: Incomparable) -> str:
    """What can be said of two or more verdicts on one cell."""
    results = {row.result for row in rows.values()}
    digests = {row.digest for row in rows.values()}
    if len(results) > 1:
        return "verdicts"
    if digests == {""}:
        return "no_codes"
    if _other_inputs(rows, incomparable):
        return "incomparable"
    if len(digests) == 1:
        return "agree"
    return "codes" if results == {"passed"} else "failures"


def _other_inputs(rows: Mapping[Column, Row], incomparable: Incomparable) -> bool:
    sides = {column.side for column in rows}
    return (
        any(row.case == DRAWN for row in rows.values())
        or len({row.elements for row in rows.values()}) > 1
        or any((i, j) in incomparable for i in sides for j in sides)
    )


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
            if cell.executed:
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


# --- the matrix ------------------------------------------------------------------------------------------------------


def _matrix(table: Table, incomparable: Incomparable) -> list[Line]:
    groups: dict[tuple[str, str, str], list[dict[Column, Cell]]] = {}
    for cells in table.values():
        planned = next(iter(cells.values())).planned
        groups.setdefault((planned.operation, planned.kernel, planned.format), []).append(cells)
    return [_line(key, groups[key], incomparable) for key in sorted(groups)]


def _line(key: tuple[str, str, str], group: Sequence[dict[Column, Cell]], incomparable: Incomparable) -> Line:
    operation, kernel, name = key
    columns = sorted(
        {c for cells in group for c in cells}, key=lambda c: (c.target.startswith(EMULATED), c.target, c.side)
    )
    executed = [c for c in columns if any(c in cells and cells[c].executed for cells in group)]
    first = executed[0] if executed else None
    tallies = {}
    for column in columns:
        mine = [cells[column] for cells in group if column in cells]
        results: dict[str, int] = {}
        for row in (cell.row for cell in mine if cell.executed):
            assert row is not None
            results[row.result] = results.get(row.result, 0) + 1
        unrun = sum(not cell.executed for cell in mine)
        if first is None or column == first:
            tallies[column.label] = Tally(results, unrun)
            continue
        pairs = [
            {first: cells[first].row, column: cells[column].row}
            for cells in group
            if first in cells and column in cells and cells[first].executed and cells[column].executed
        ]
        compared = [p for p in pairs if _can_be(p, incomparable)]
        apart = sum(len({row.digest for row in p.values() if row is not None}) > 1 for p in compared)
        tallies[column.label] = Tally(results, unrun, len(compared), apart, first.label)
    return Line(name, operation, kernel, tallies)


def _can_be(pair: Mapping[Column, Row | None], incomparable: Incomparable) -> bool:
    rows = {column: row for column, row in pair.items() if row is not None}
    return all(row.digest for row in rows.values()) and not _other_inputs(rows, incomparable)
