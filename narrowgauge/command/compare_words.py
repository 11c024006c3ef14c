"""What ``narrowgauge compare`` says, for a screen and as Markdown: findings that say the same are told once."""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rich.text import Text

from narrowgauge.ci.comparison.comparing import Comparison
from narrowgauge.ci.comparison.findings import KINDS, SECTIONS, Finding
from narrowgauge.ci.comparison.matrix import Line as Row
from narrowgauge.ci.comparison.matrix import Tally
from narrowgauge.command.audit_words import plain
from narrowgauge.command.compare_why import Why, why
from narrowgauge.plugin.screen import Grid, Line, brief, facts
from narrowgauge.plugin.tables import WORD

#: findings of a section, places of a finding, and rows of the matrix that a screen shows; pages and --json have all
SHOWN, PLACES, ROWS = 12, 6, 40
STYLE = {"verdicts": "bold red", "failures": "bold red", "codes": "yellow", "nan": "yellow", "unexecuted": "dim"}
#: what stands between columns of the same codes, and between those of others
SAME, APART = " = ", "  |  "
NOT_PLANNED = "·"


@dataclass
class Told:
    """Findings of one kind that have the same columns, words and explanation."""

    section: str
    kind: str
    classes: tuple[tuple[str, ...], ...]
    words: tuple[str, ...]
    why: Why
    places: list[str] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)
    count: int = 0

    @property
    def pattern(self) -> str:
        """Who agrees with whom: columns of one class are joined."""
        joined = SAME if self.kind in ("agree", "codes", "nan", "failures", "verdicts") else ", "
        parts = []
        for labels, word in zip(self.classes, self.words, strict=True):
            said = f": {WORD.get(word, brief(word))}" if word else ""  # type: ignore[call-overload]
            parts.append(joined.join(labels) + said)
        return APART.join(parts)

    @property
    def cells(self) -> str:
        return f"{self.count:,} cell{'' if self.count == 1 else 's'}" if self.count else "two formats"


def told(findings: Iterable[Finding]) -> list[Told]:
    """Findings that say the same of several kernels, as one."""
    groups: dict[tuple[object, ...], Told] = {}
    for finding in findings:
        explained = why(finding)
        key = (finding.section, finding.kind, finding.classes, finding.words, tuple(explained))
        one = groups.setdefault(key, Told(*key[:4], explained))
        one.places.append(_place(finding))
        if finding.kernel not in one.kernels:
            one.kernels.append(finding.kernel)
        one.count += len(finding.cases)
    return list(groups.values())


def _place(finding: Finding) -> str:
    sources = f"{', '.join(finding.sources)} to " if finding.sources else ""
    cases = list(dict.fromkeys(case.split(" ", 1)[1] for case in finding.cases))
    return f"{finding.kernel} ({finding.operation} of {sources}{finding.format})" + (
        f": {', '.join(cases)}" if cases else ""
    )


def verdict(comparison: Comparison, findings: Sequence[Finding]) -> str:
    """One sentence."""
    apart = sum(len(f.cases) for f in findings if KINDS[f.kind].parts)
    if apart:
        return f"Something parts, in {apart:,} comparisons of cells."
    if not comparison.compared:
        return "Nothing could be compared: no two columns were executed on the same cells."
    return "Nothing parts." if findings else "Nothing of what was asked for."


def counts(findings: Sequence[Finding]) -> list[tuple[str, str]]:
    """How many comparisons of cells of each kind there are, by section."""
    found = []
    for section, title in SECTIONS.items():
        here = {kind: sum(len(f.cases) for f in findings if (f.section, f.kind) == (section, kind)) for kind in KINDS}
        words = [f"{count:,} {KINDS[kind].said}" for kind, count in here.items() if count]
        if words:
            found.append((title, "; ".join(words)))
    return found


def sides_of(comparison: Comparison) -> list[list[str]]:
    """Name, versions and what was judged of each side, as rows of a table."""
    rows = []
    for number, side in enumerate(comparison.sides):
        targets = ", ".join(c.target for c in comparison.columns if c.side == number)
        judged = sum(row.result != "not_executed" for row in side.rows.values())
        shards = f"{len(side.shards)} of {side.of}" if side.shards else "-"
        golden = side.golden[:12] or "-"
        rows.append(
            [side.name, targets, f"{judged:,} of {len(side.planned):,}", shards, side.narrowgauge or "-", golden,
             side.depth or "-"]
        )  # fmt: skip
    return rows


SIDE_HEADS = ["side", "targets", "executed", "shards", "narrowgauge", "golden", "depth"]


def tally_words(tally: Tally | None) -> tuple[str, str]:
    """What was judged in a cell of the matrix, and what parts there."""
    if tally is None:
        return NOT_PLANNED, ""
    judged = [f"{count} {WORD.get(result, result)}" for result, count in tally.results.items()]  # type: ignore[call-overload]
    if tally.unexecuted:
        judged.append(f"{tally.unexecuted} not executed")
    if not tally.compared:
        return ", ".join(judged), ""
    if not tally.apart:
        return ", ".join(judged), f"codes of {tally.compared} as {tally.with_label}"
    nan = ""
    if tally.nan:
        nan = " (in NaN's bits alone)" if tally.nan == tally.apart else f" ({tally.nan} in NaN's bits alone)"
    return ", ".join(judged), f"{tally.apart} of {tally.compared} part from {tally.with_label}{nan}"


def is_quiet(row: Row) -> bool:
    """Whether everything in a row of the matrix passed everywhere, with the same codes."""
    return all(not t.apart and not t.unexecuted and set(t.results) <= {"passed"} for t in row.tallies.values())


def is_unexecuted(row: Row) -> bool:
    """Whether nothing is wrong in a row but that something was not executed."""
    return all(not t.apart and set(t.results) <= {"passed"} for t in row.tallies.values())


# --- for a screen ----------------------------------------------------------------------------------------------------


def report(comparison: Comparison, findings: Sequence[Finding], asked: Collection[str], width: int) -> list[Text]:
    """Sides, what parts, and the matrix of what is not equal throughout."""
    grid = Grid("", SIDE_HEADS)
    grid.lines += [Line([Text(plain(cell)) for cell in row]) for row in sides_of(comparison)]
    texts = [Text(verdict(comparison, findings), "bold"), Text(), *grid.texts(width)]
    texts += [Text(f"note: {brief(plain(note))}") for note in comparison.notes]
    for pair, changed in comparison.changed.items():
        said = [(name, f"{a} -> {b}") for name, (a, b) in changed.items()]
        texts += [Text(), Text(f"versions that changed, {pair}"), *facts(said, width)]
    if said := counts(findings):
        texts += [Text(), *facts(said, width)]
    each = [one for one in told(findings) if one.kind != "agree" or "agree" in asked]
    for section, title in SECTIONS.items():
        texts += _section(title, [one for one in each if one.section == section], width)
    return [*texts, Text(), *_matrix(comparison, width)]


def _section(title: str, each: Sequence[Told], width: int) -> Iterator[Text]:
    if not each:
        return
    yield Text()
    yield Text(title, "italic")
    for one in each[:SHOWN]:
        yield Text(f"  {one.kind}  ", STYLE.get(one.kind, "bold")) + Text(plain(f"{one.pattern}  ({one.cells})"))
        places = one.places if one.why else one.kernels  # what needs no explanation is told by the kernel
        more = f" and {len(places) - PLACES} more" if len(places) > PLACES else ""
        said = [*one.why, ("where", "; ".join(places[:PLACES]) + more)]
        yield from facts([(plain(name), plain(text)) for name, text in said], width, indent=4)
    if len(each) > SHOWN:
        yield Text(f"  … and {len(each) - SHOWN} more (--html, --markdown and --json have all)")


def _matrix(comparison: Comparison, width: int) -> list[Text]:
    beside = [row for row in comparison.lines if len(row.tallies) > 1]
    rows = sorted((row for row in beside if not is_quiet(row)), key=is_unexecuted)  # what parts comes first
    labels = [c.label for c in comparison.columns]
    grid = Grid("rows in which something parts, fails or was not executed", ["kernel", "path", "format", *labels])
    for row in rows[:ROWS]:
        said = {label: tally_words(row.tallies.get(label)) for label in labels}
        cells = (row.kernel, row.operation, row.format, *(judged for judged, _ in said.values()))
        note = "; ".join(f"{label}: {parts}" for label, (_, parts) in said.items() if parts)
        grid.lines.append(Line([Text(plain(cell)) for cell in cells], plain(note)))
    texts = grid.texts(width) if rows else []
    if len(rows) > ROWS:
        texts.append(Text(f"… and {len(rows) - ROWS} rows more (--html, --markdown and --json have all)"))
    quiet, alone = len(beside) - len(rows), len(comparison.lines) - len(beside)
    texts.append(Text(f"rows that passed everywhere, with the same codes: {quiet}; rows of one target alone: {alone}"))
    return texts


# --- Markdown --------------------------------------------------------------------------------------------------------


def markdown(comparison: Comparison, findings: Sequence[Finding]) -> str:
    """The same, whole, for GitHub."""
    lines = ["# Compared", "", f"**{_md(verdict(comparison, findings))}**", ""]
    lines += _table(SIDE_HEADS, sides_of(comparison))
    lines += ["", *(f"* {_md(note)}" for note in comparison.notes)]
    for pair, changed in comparison.changed.items():
        lines += ["", f"Versions that changed, {_md(pair)}:", ""]
        lines += _table(["what", "from", "to"], [[name, a, b] for name, (a, b) in changed.items()])
    if said := counts(findings):
        lines += ["", *(f"* {_md(title)}: {_md(text)}" for title, text in said)]
    each = told(findings)
    for section, title in SECTIONS.items():
        here = [one for one in each if one.section == section]
        if here:
            lines += ["", f"## {title[0].upper()}{title[1:]}", ""]
            rows = [[one.kind, one.pattern, _explained(one), "; ".join(one.places)] for one in here]
            lines += _table(["what", "who", "why", "where"], rows)
    labels = [c.label for c in comparison.columns]
    rows = [[row.kernel, row.operation, row.format, *_cells(row, labels)] for row in comparison.lines]
    lines += ["", "## Matrix", "", *_table(["kernel", "path", "format", *labels], rows)]
    return "\n".join(lines) + "\n"


def _cells(row: Row, labels: Sequence[str]) -> list[str]:
    return ["; ".join(filter(None, tally_words(row.tallies.get(label)))) for label in labels]


def _explained(one: Told) -> str:
    return "; ".join(f"{name}: {said}" for name, said in one.why)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [heads, ["---"] * len(heads), *rows]
    return [f"| {' | '.join(map(_md, line) if line is not lines[1] else line)} |" for line in lines]


def _md(text: str) -> str:
    """A text as it is, whatever it has that Markdown or HTML would read."""
    return re.sub(r"([\\`*_\[\]|~#])", r"\\\1", html.escape(plain(text), quote=False))
