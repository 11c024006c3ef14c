"""What the gate says: sections of tables, for a terminal and as Markdown; and the whole as JSON."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from rich.text import Text

from narrowgauge.ci.findings import KINDS, Finding
from narrowgauge.ci.gate import Report
from narrowgauge.ci.gate.cells import why
from narrowgauge.ci.gate.changes import Change
from narrowgauge.ci.gate.waiving import bracket
from narrowgauge.command.audit_words import plain
from narrowgauge.plugin.screen import Grid, Line
from narrowgauge.version import __version__

T = TypeVar("T")
#: lines of a section; --json has all
TOP = 40
#: shards that are told, the slowest first
SLOWEST = 10
#: days before its date from which a waiver is said to be near it
NEAR = 30
#: letters of what is said of a test
LONGEST = 240
#: findings of one kind and place that are told; of tests the first is, and the rest are counted
EACH = 5
#: findings that a section of their own tells
FAILURES = ("new_failure", "still_failing")


@dataclass
class Section:
    """A table: the last column is a text."""

    title: str
    headings: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)
    style: str = ""

    @property
    def more(self) -> str:
        return f"and {len(self.rows) - TOP:,} more lines: --json has all" if len(self.rows) > TOP else ""


def verdict(report: Report) -> str:
    """The night in one line."""
    counts = report.counts
    judged = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in sorted(counts.items(), key=lambda p: -p[1]))
    if not report.red:
        remarks = f"; {len(report.yellow)} remarks" if report.yellow else ""
        return f"GREEN: {judged}{remarks}"
    kinds = Counter(f.kind for f in report.red)
    said = "; ".join(f"{KINDS[kind].title}{_where(report.red, kind, n)}" for kind, n in kinds.items())
    return f"RED: {said}"


def _where(found: Sequence[Finding], kind: str, count: int) -> str:
    """Which shards, where shards are what it is about; else how many."""
    places = list(dict.fromkeys(f.where for f in found if f.kind == kind and not f.id))
    if places and all(places) and len(places) == count <= SLOWEST:
        return f" ({', '.join(plain(place) for place in places)})"
    return f" ({count:,})"


def sections(report: Report) -> list[Section]:
    """Everything that there is to say, the worst first; empty ones are left out."""
    failing = [c for c in report.changes.failing if c.test.result == "failed"]
    found = [
        _findings("red", "red", [f for f in report.red if f.kind not in FAILURES], "bold red"),
        _failures("new failures", [c for c in failing if c.new], "bold red"),
        _failures("still failing", [c for c in failing if not c.new], "red"),
        _fixed(report),
        _findings("remarks", "remark", report.yellow, "yellow"),
        _waived(report),
        _shards(report),
    ]
    return [section for section in found if section.rows]


def _grouped(items: Iterable[T], key: Callable[[T], tuple[str, ...]]) -> dict[tuple[str, ...], list[T]]:
    groups: dict[tuple[str, ...], list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def _findings(title: str, column: str, found: Sequence[Finding], style: str) -> Section:
    """Findings of one kind, place and kernel in one line, with the first of them."""
    section = Section(title, ("where", "kernel", "owner", "number", f"{column}, and what to do"), style=style)
    for (kind, where, kernel, owner), group in _grouped(found, lambda f: (f.kind, f.where, f.kernel, f.owner)).items():
        told = group[:1] if group[0].id else group[:EACH]
        rest = f" (and {len(group) - len(told):,} more)" if len(group) > len(told) else ""
        said = "; ".join(_one(finding) for finding in told)
        covered = f" In quarantine: {group[0].quarantined}." if group[0].quarantined else ""
        text = f"{KINDS[kind].title}: {said}{rest}.{covered} {KINDS[kind].remedy}"
        section.rows.append((where, kernel, owner, str(len(group)), text))
    return section


def _one(finding: Finding) -> str:
    named = not finding.id or finding.id in finding.said
    return _short(finding.said if named else f"{bracket(finding.id)}: {finding.said}")


def _failures(title: str, found: Sequence[Change], style: str) -> Section:
    """Failures of one kernel on one target, by one mistake and since one night, in one line."""
    section = Section(title, ("kernel", "owner", "target", "tests", "since", "last good", "mistake"), style=style)
    for (kernel, owner, target, _, since, good), group in _grouped(found, _alike).items():
        first, nights = group[0], group[0].state.nights
        since = f"{since}, {nights} nights" if nights > 1 else since
        said = f"{first.test.said} [{bracket(first.test.cell.id)}]"
        section.rows.append((kernel, owner, target, str(len(group)), since, good or "never", _short(said)))
    return section


def _alike(change: Change) -> tuple[str, ...]:
    cell, row = change.test.cell, change.test.row
    mistake = (" or ".join(row.faults) or row.reason) if row is not None else ""
    return (cell.kernel, cell.owner, cell.target, mistake, change.state.since, change.state.good)


def _fixed(report: Report) -> Section:
    section = Section("mended", ("kernel", "owner", "target", "tests", "first of them"), style="green")
    key = lambda c: (c.test.cell.kernel, c.test.cell.owner, c.test.cell.target)  # noqa: E731
    for names, group in _grouped(report.changes.fixed, key).items():
        section.rows.append((*names, str(len(group)), bracket(group[0].test.cell.id)))
    return section


def _waived(report: Report) -> Section:
    section = Section("waived", ("kernel", "target", "tests", "until", "why"))
    for excuse in sorted(report.excuses, key=lambda e: (e.expires, e.kernel, e.target)):
        days = (excuse.expires - report.day).days
        until = f"{excuse.expires}, {days} days" if days <= NEAR else str(excuse.expires)
        why_it_is = f"{excuse.reason} ({excuse.link})"
        section.rows.append((excuse.kernel, excuse.target, str(len(excuse.tests)), until, why_it_is))
    return section


def _shards(report: Report) -> Section:
    section = Section("slowest shards", ("shard", "minutes", "tests", "state", "versions"))
    shards = [(s, s.run) for s in report.night.shards if s.run is not None]
    for shard, run in sorted(shards, key=lambda pair: -pair[1].seconds)[:SLOWEST]:
        versions = ", ".join(f"{name} {run.versions[name]}" for name in ("torch", "triton") if name in run.versions)
        attempt = f", attempt {run.attempt}" if run.attempt > 1 else ""
        row = (run.name, f"{run.seconds / 60:.1f}", f"{len(shard.ends):,}", f"{run.state}{attempt}", versions)
        section.rows.append(row)
    return section


def _short(text: str) -> str:
    line = plain(" ".join(text.split()))
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def _foot(report: Report) -> str:
    green = report.changes.last_green
    past = f"last green night: {green}" if green else "no green night is known"
    return f"night {report.changes.night}, judged as of {report.day}; {past if report.changes.known else 'no history'}"


def texts(report: Report, width: int) -> list[Text]:
    """For a terminal."""
    lines = [Text(verdict(report), "bold green" if not report.red else "bold red"), Text(plain(_foot(report)))]
    for section in sections(report):
        grid = Grid(section.title, section.headings[:-1], section.headings[-1], beside_from=110)
        for row in section.rows[:TOP]:
            cells = [Text(plain(cell), section.style if place == 0 else "") for place, cell in enumerate(row[:-1])]
            grid.lines.append(Line(cells, plain(row[-1])))
        lines += [Text(), *grid.texts(width), *([Text(section.more)] if section.more else [])]
    return lines


def markdown(report: Report) -> str:
    """For GitHub's step summary and Buildkite's annotation."""
    mark = "🔴" if report.red else "🟢"
    lines = [f"## {mark} narrowgauge: {_safe(verdict(report))}", "", _safe(_foot(report))]
    for section in sections(report):
        lines += ["", f"### {section.title}", "", _row(section.headings), "|" + "---|" * len(section.headings)]
        lines += [_row(row) for row in section.rows[:TOP]]
        lines += ["", section.more] if section.more else []
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_safe(cell) for cell in cells) + " |"


def _safe(text: str) -> str:
    """A stranger's text, which must not become markup."""
    return re.sub(r"([\\`*_{}\[\]|])", r"\\\1", html.escape(plain(text), quote=False))


def as_json(report: Report) -> dict[str, Any]:
    """Everything, not cut."""
    return {
        "schema": "narrowgauge.gate/1",
        "narrowgauge": __version__,
        "verdict": verdict(report),
        "exit": int(report.exit),
        "day": report.day.isoformat(),
        "night": report.changes.night,
        "last_green": report.changes.last_green,
        "counts": dict(report.counts),
        "findings": [finding.to_json() for finding in report.findings],
        "failing": [_failure(change) for change in report.changes.failing],
        "mended": [change.test.cell.id for change in report.changes.fixed],
        "not_executed_now": [change.test.cell.id for change in report.changes.lost],
        "gone": report.changes.gone,
        "waived": [
            {**{n: getattr(e, n) for n in ("kernel", "target", "link", "reason")}, "expires": e.expires.isoformat(),
             "tests": [t.cell.id for t in e.tests]} for e in report.excuses
        ],
        "shards": [run.to_json() for run in report.night.runs],
    }  # fmt: skip


def _failure(change: Change) -> dict[str, Any]:
    test = change.test
    row = test.row
    return {
        "id": test.cell.id,
        "place": test.place,
        "shard": test.shard,
        "kernel": test.cell.kernel,
        "owner": test.cell.owner,
        "target": test.cell.target,
        "result": test.result,
        "message": why(row) if row is not None else test.said,
        "faults": list(row.faults) if row is not None else [],
        "new": change.new,
        **asdict(change.state),
    }
