"""The tables at the end of a run."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from rich.text import Text

from narrowgauge.ci.ledger import Ledger, Row, common_faults
from narrowgauge.contracts.verdict import Result
from narrowgauge.golden.units import OPERATION as UNIT
from narrowgauge.plugin.screen import PIPED_WIDTH, Grid, Line, brief, on_screen, screen, show
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
#: how many different reasons, and how many faults of a set, stand in a line
REASONS, FAULTS_NAMED = 2, 4
#: a screen narrower than this does without the claims, and one narrower than that has no room for reasons in a column
WITH_CLAIMS, WITH_WHY = 150, 110


def summary(ledger: Ledger, width: int, colour: bool) -> str:
    """What was judged, what each cast does at its edge, and what was not executed.

    ``width`` is that of the terminal; a file or a pipe gets tables of ``PIPED_WIDTH``.
    """
    text = io.StringIO()
    width = width if colour or on_screen() else PIPED_WIDTH
    console = screen(text, width, colour)
    units = [row for row in ledger.rows if row.operation == UNIT]  # each on GPUs of its own: columns by themselves
    kernels = [row for row in ledger.rows if row.operation != UNIT]
    if kernels or not units:
        show(console, _judged("what was judged", kernels).texts(width))
    if units:
        show(console, ["", *_judged("matrix units", units).texts(width)])
    edge = _edges(ledger.rows)
    if edge.lines:
        show(console, ["", *edge.texts(width)])
    lost = _not_executed(ledger)
    if lost:
        show(console, ["", *lost])
    return text.getvalue()


def _groups(rows: Iterable[Row]) -> dict[tuple[bool, str, str], list[Row]]:
    """Rows by kernel and format; plugged-in kernels first."""
    found: dict[tuple[bool, str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda r: (r.own, r.kernel, r.format, r.target)):
        found.setdefault((row.own, row.kernel, row.format), []).append(row)
    return found


def _judged(title: str, rows: Sequence[Row]) -> Grid:
    """One line a kernel and format, one column a target."""
    executed = {row.target for row in rows if row.result != "not_executed"}
    column = {t: "emulated" if t.startswith("emulated-") and t not in executed else t for t in {r.target for r in rows}}
    targets = sorted(set(column.values()), key=lambda t: (t.startswith("emulated"), t))
    grid = Grid(
        title, ["kernel", "claims", "format", *targets], "why",
        optional="claims", optional_from=WITH_CLAIMS, beside_from=WITH_WHY,
    )  # fmt: skip
    for (_, kernel, format_name), cells in _groups(rows).items():
        names = (kernel, cells[0].rule, format_name.removeprefix("float8_"))
        results = [_results([c for c in cells if column[c.target] == target]) for target in targets]
        grid.lines.append(Line([*map(Text, names), *results], _why(cells)))
    return grid


def _results(cells: Sequence[Row]) -> Text:
    """How many of each result; a dot where nothing was planned."""
    parts = [(r, sum(c.result == r for c in cells)) for r in STYLE]
    texts = [Text(f"{count} {WORD.get(r, r)}", STYLE[r]) for r, count in parts if count]
    return Text(", ").join(texts) if texts else Text("·", "dim")


def _why(cells: Sequence[Row]) -> str:
    """The shortest true reason for what is not a pass."""
    wrong = [c for c in cells if c.result in ("failed", "disputed")]
    if not wrong and cells[0].rule == "?":
        return _observed([c for c in cells if c.result == "passed"])
    if not wrong:
        return _reasons(c.reason for c in cells if c.result in ("waived", "passed"))
    reasons = _reasons(c.reason for c in wrong)
    if reasons:
        return reasons
    # A shrunk example shows a mistake at its smallest, where many would do the same; a whole case says which.
    wrong = [c for c in wrong if c.case != "property"] or wrong
    common = common_faults(wrong)
    if common:
        return _any_of(common)
    told = dict.fromkeys(_any_of(c.faults) + ("" if c.left == 0 else " (in part)") for c in wrong if _answered(c))
    if told:
        return "; ".join(told)
    kinds: dict[str, int] = {}
    for kind, count in (pair for c in wrong for pair in c.differences.items()):
        kinds[kind] = kinds.get(kind, 0) + count
    return "unexplained: " + ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in kinds.items())


def _observed(cells: Sequence[Row]) -> str:
    """The rules that an observed kernel follows in all its cases; a case with few values may fit many."""
    if not cells:
        return ""
    follows = set.intersection(*(set(c.follows) for c in cells))
    if follows:
        return brief(f"follows {', '.join(sorted(follows))}")
    apart = [c.reason for c in cells if not c.follows]
    return brief(apart[0] if apart else "follows no named rule in all of its cases")


def _reasons(texts: Iterable[str]) -> str:
    different = list(dict.fromkeys(brief(text) for text in texts if text))
    return brief("; ".join(different[:REASONS]))


def _any_of(faults: Sequence[str]) -> str:
    """The names of a set, as many as a line takes; each is whole."""
    more = len(faults) - FAULTS_NAMED
    return " or ".join(faults[:FAULTS_NAMED]) + (f" or {more} more" if more > 0 else "")


def _answered(row: Row) -> bool:
    return bool(row.explanations) and row.explanations[0].accounts_for(sum(row.differences.values()))


def _edges(rows: Sequence[Row]) -> Grid:
    grid = Grid(
        "what each cast returned at the edge of its range",
        ["kernel", "target", "format", "tie", "1000", "inf", "-inf", "nan", "-0"],
    )
    shown = sorted((r for r in rows if r.portrait), key=lambda r: (r.own, r.kernel, r.format, r.target))
    for key in dict.fromkeys((r.kernel, r.target, r.format) for r in shown):
        cells = [r for r in shown if (r.kernel, r.target, r.format) == key]
        names = probes(key[2])
        seen = [list(dict.fromkeys(c.portrait[p] for c in cells if p in c.portrait)) for p in names]
        texts = [_answers(values) for values in seen]
        tie = next(iter(names)).removeprefix("tie ")
        values = (key[0], key[1], key[2].removeprefix("float8_"), f"{tie} -> {texts[0]}", *texts[1:])
        grid.lines.append(Line([Text(value) for value in values]))
    return grid


def _answers(values: Sequence[str]) -> str:
    """What a cast returned for one input in all cases that asked for it."""
    if len(values) > 2 or any("different" in value for value in values):
        return "several"
    return " / ".join(values)


def _not_executed(ledger: Ledger) -> list[str]:
    """Reasons with their number, so that nothing that did not run looks like a pass."""
    reasons: dict[str, int] = {}
    for row in ledger.rows:
        if row.result == "not_executed":
            place = f"{row.target}: {brief(row.reason.split(':')[0])}"
            reasons[place] = reasons.get(place, 0) + 1
    lines = [f"not executed: {count} on {place}" for place, count in sorted(reasons.items())]
    lines += [f"not executed: all of {module}: {brief(reason)}" for module, reason in sorted(ledger.missing.items())]
    if ledger.unrun:
        lines.append(f"planned and never run: {len(ledger.unrun)}, first {ledger.unrun[0]}")
    return lines
