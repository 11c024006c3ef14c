"""The tables at the end of a run."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from narrowgauge.ci.ledger import Ledger, Row, common_faults
from narrowgauge.contracts.verdict import Result
from narrowgauge.reference.portrait import probes

#: in the order in which a cell of the table names them
STYLE: dict[Result, str] = {
    "failed": "bold red",
    "disputed": "yellow",
    "waived": "yellow",
    "passed": "green",
    "not_executed": "dim",
}
WORD: dict[Result, str] = {"not_executed": "not run"}
#: columns that the tables need; a log file has as many as it takes
WIDTH = 160


def summary(ledger: Ledger, width: int, colour: bool) -> str:
    """What was judged, what each cast does at its edge, and what was not executed."""
    text = io.StringIO()
    console = Console(file=text, width=max(width, WIDTH), force_terminal=colour, no_color=not colour, highlight=False)
    console.print(_judged(ledger.rows))
    edge = _edges(ledger.rows)
    if edge.row_count:
        console.print(edge)
    for line in _not_executed(ledger):
        console.print(line)
    return text.getvalue()


def _groups(rows: Iterable[Row]) -> dict[tuple[bool, str, str], list[Row]]:
    """Rows by kernel and format; plugged-in kernels first."""
    found: dict[tuple[bool, str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda r: (r.own, r.kernel, r.format, r.target)):
        found.setdefault((row.own, row.kernel, row.format), []).append(row)
    return found


def _judged(rows: Sequence[Row]) -> Table:
    """One line a kernel and format, one column a target."""
    table = Table(title="what was judged", title_justify="left", box=None, pad_edge=False, header_style="bold")
    executed = {row.target for row in rows if row.result != "not_executed"}
    column = {t: "emulated" if t.startswith("emulated-") and t not in executed else t for t in {r.target for r in rows}}
    headings = sorted(set(column.values()), key=lambda t: (t.startswith("emulated"), t))
    for heading in ("kernel", "claims", "format", *headings):
        table.add_column(heading, no_wrap=True)
    table.add_column("why", overflow="fold")
    first_own = True
    for (own, kernel, format_name), cells in _groups(rows).items():
        if own and first_own and table.row_count:
            table.add_section()
        first_own = first_own and not own
        results = [_results([c for c in cells if column[c.target] == heading]) for heading in headings]
        table.add_row(kernel, cells[0].rule, format_name.removeprefix("float8_"), *results, _why(cells))
    return table


def _results(cells: Sequence[Row]) -> Text:
    """How many of each result; a dot where nothing was planned."""
    parts = [(r, sum(c.result == r for c in cells)) for r in STYLE]
    texts = [Text(f"{count} {WORD.get(r, r)}", STYLE[r]) for r, count in parts if count]
    return Text(", ").join(texts) if texts else Text("·", "dim")


def _why(cells: Sequence[Row]) -> str:
    """The shortest true reason for what is not a pass."""
    wrong = [c for c in cells if c.result in ("failed", "disputed")]
    if not wrong:
        notes = dict.fromkeys(c.reason for c in cells if c.reason and c.result in ("waived", "passed"))
        return "; ".join(notes)
    reasons = list(dict.fromkeys(c.reason for c in wrong if c.reason))
    if reasons:
        return "; ".join(reasons[:2])
    common = common_faults(wrong)
    if common:
        return " or ".join(common)
    told = dict.fromkeys(" or ".join(c.faults) + ("" if c.left == 0 else " (in part)") for c in wrong if c.faults)
    if told:
        return "; ".join(told)
    kinds: dict[str, int] = {}
    for kind, count in (pair for c in wrong for pair in c.differences.items()):
        kinds[kind] = kinds.get(kind, 0) + count
    return "unexplained: " + ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in kinds.items())


def _edges(rows: Sequence[Row]) -> Table:
    table = Table(
        title="\nwhat each cast returned at the edge of its range", title_justify="left", box=None, pad_edge=False,
        header_style="bold",
    )  # fmt: skip
    for heading in ("kernel", "target", "format", "tie", "1000", "inf", "-inf", "nan", "-0"):
        table.add_column(heading)
    shown = sorted((r for r in rows if r.portrait), key=lambda r: (r.own, r.kernel, r.format, r.target))
    for key in dict.fromkeys((r.kernel, r.target, r.format) for r in shown):
        cells = [r for r in shown if (r.kernel, r.target, r.format) == key]
        names = probes(key[2])
        seen = [list(dict.fromkeys(c.portrait[p] for c in cells if p in c.portrait)) for p in names]
        texts = [" / ".join(values) if len(values) < 3 else f"{len(values)} answers" for values in seen]
        tie = next(iter(names)).removeprefix("tie ")
        table.add_row(key[0], key[1], key[2].removeprefix("float8_"), f"{tie} -> {texts[0]}", *texts[1:])
    return table


def _not_executed(ledger: Ledger) -> list[str]:
    """Reasons with their number, so that nothing that did not run looks like a pass."""
    reasons: dict[str, int] = {}
    for row in ledger.rows:
        if row.result == "not_executed":
            short = row.reason.split(":")[0]
            place = f"{row.target}: {short}"
            reasons[place] = reasons.get(place, 0) + 1
    lines = [f"not executed: {count} on {place}" for place, count in sorted(reasons.items())]
    lines += [f"not executed: all of {module}: {reason}" for module, reason in sorted(ledger.missing.items())]
    if ledger.unrun:
        lines.append(f"planned and never run: {len(ledger.unrun)}, first {ledger.unrun[0]}")
    return [f"\n{lines[0]}", *lines[1:]] if lines else []
