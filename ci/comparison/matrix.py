"""The matrix: of each kernel, operation and format, what each column has, and how much of it parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from narrowgauge.ci.comparison.beside import Cell, Column, Rules, Table
from narrowgauge.ci.ledger import Row


@dataclass(frozen=True)
class Tally:
    """What one column has in a row of the matrix."""

    results: dict[str, int]  #: executed cells by result
    unexecuted: int
    compared: int = 0  #: cells whose codes could be held against those of the first column that was executed
    apart: int = 0  #: of these, how many part
    nan: int = 0  #: of those that part, how many in the bits of NaN alone
    with_label: str = ""  #: that column; "" for itself


@dataclass(frozen=True)
class Line:
    """A row of the matrix."""

    format: str
    operation: str
    kernel: str
    tallies: dict[str, Tally]  #: by label of a column; a column for which nothing was planned has none


def matrix_of(table: Table, columns: Sequence[Column], rules: Rules) -> list[Line]:
    """A row for each kernel, operation and format."""
    groups: dict[tuple[str, str, str], list[dict[Column, Cell]]] = {}
    for cells in table.values():
        planned = next(iter(cells.values())).planned
        groups.setdefault((planned.operation, planned.kernel, planned.format), []).append(cells)
    return [_line(key, groups[key], columns, rules) for key in sorted(groups)]


def _line(
    key: tuple[str, str, str], group: Sequence[dict[Column, Cell]], columns: Sequence[Column], rules: Rules
) -> Line:
    operation, kernel, name = key
    first = next((c for c in columns if any(c in cells and cells[c].ran is not None for cells in group)), None)
    tallies = {}
    for column in columns:
        mine = [cells[column] for cells in group if column in cells]
        if not mine:
            continue
        results: Counter[str] = Counter(row.result for cell in mine if (row := cell.ran) is not None)
        unrun = sum(cell.ran is None for cell in mine)
        if first is None or column == first:
            tallies[column.label] = Tally(dict(results), unrun)
            continue
        pairs = [pair for cells in group if (pair := _pair(cells, first, column, rules))]
        apart = [pair for pair in pairs if len({row.digest for row in pair.values()}) > 1]
        nan = sum(rules.in_nan_alone(pair) for pair in apart)
        tallies[column.label] = Tally(dict(results), unrun, len(pairs), len(apart), nan, first.label)
    return Line(name, operation, kernel, tallies)


def _pair(cells: Mapping[Column, Cell], first: Column, column: Column, rules: Rules) -> dict[Column, Row]:
    """The two verdicts, where both have codes that can be compared; else nothing."""
    pair = {c: row for c in (first, column) if c in cells and (row := cells[c].ran) is not None and row.digest}
    return pair if len(pair) == 2 and not rules.other_inputs(pair) else {}
