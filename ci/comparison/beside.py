"""The columns of a comparison, and by key what each of them has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from narrowgauge.ci.comparison.sides import EMULATED, Planned, Side
from narrowgauge.ci.ledger import Row

#: the case whose inputs are drawn anew in every run
DRAWN = "property"
#: operations of rows that are of no kernel: recordings of units, parts of checkpoints
NO_KERNELS = ("unit", "audit")


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
    def ran(self) -> Row | None:
        """The verdict, where there was an execution."""
        return None if self.row is None or self.row.result == "not_executed" else self.row


#: by key, what each column has
Table = dict[tuple[str, ...], dict[Column, Cell]]
#: whether two codes that both keep the claim of a row can part in the bits of NaN alone
OnlyNan = Callable[[Row], bool]


@dataclass(frozen=True)
class Rules:
    """What decides whether codes may be compared, and what it means that they part."""

    incomparable: Mapping[tuple[int, int], str]  #: why codes of two sides cannot be, by their numbers
    only_nan: OnlyNan

    def other_inputs(self, rows: Mapping[Column, Row]) -> bool:
        """Whether the inputs of some verdicts on one cell were, or may have been, not the same."""
        sides = {column.side for column in rows}
        return (
            any(row.case == DRAWN for row in rows.values())
            or len({row.elements for row in rows.values() if row.digest}) > 1
            or any((i, j) in self.incomparable for i in sides for j in sides)
        )

    def in_nan_alone(self, rows: Mapping[Column, Row]) -> bool:
        """Whether codes that part, and all pass, can do so in the bits of NaN alone: one claim, which says so."""
        one, *others = rows.values()
        same = all(row.result == "passed" and row.claim == one.claim for row in (one, *others))
        return same and self.only_nan(one)


def columns_of(sides: Sequence[Side]) -> list[Column]:
    pairs = [(number, target) for number, side in enumerate(sides) for target in side.targets(NO_KERNELS)]
    once = [target for _, target in pairs]
    # hardware first, then what stands for it
    pairs.sort(key=lambda pair: (pair[1].startswith(EMULATED), pair[1], pair[0]))
    return [Column(t if once.count(t) == 1 else f"{t} @ {sides[n].name}", n, t) for n, t in pairs]


def table_of(sides: Sequence[Side], columns: Sequence[Column], kernel: str) -> Table:
    table: Table = {}
    for column in columns:
        side = sides[column.side]
        for test, planned in side.planned.items():
            if planned.target != column.target or (kernel and planned.kernel != kernel):
                continue
            if planned.operation in NO_KERNELS:
                continue
            row = side.rows.get(test)
            why = side.why_unrun(test) if row is None else row.reason if row.result == "not_executed" else ""
            table.setdefault(planned.key, {})[column] = Cell(planned, row, why)
    for column in columns:  # of a side that judged nothing and kept no plan, everything is not executed
        side = sides[column.side]
        if not side.planned:
            for cells in table.values():
                cells.setdefault(column, Cell(next(iter(cells.values())).planned, None, side.why_unrun()))
    return dict(sorted(table.items()))


def incomparable_of(sides: Sequence[Side]) -> dict[tuple[int, int], str]:
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


def nights(columns: Sequence[Column]) -> Iterator[tuple[Column, Column]]:
    for target in dict.fromkeys(c.target for c in columns):
        yield from pairwise([c for c in columns if c.target == target])
