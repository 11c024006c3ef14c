"""The page of ``narrowgauge audit --html``: one file, nothing fetched, and every name of a stranger escaped."""

from __future__ import annotations

import datetime
import json
import shlex
from collections.abc import Iterator
from typing import Any

from narrowgauge.checkpoints.report import Group, Report, grouped
from narrowgauge.command import audit_pictures
from narrowgauge.command.audit_words import (
    about,
    compared_cells,
    online_cells,
    passport_groups,
    places,
    plain,
    verdict,
    where,
    worst_first,
)
from narrowgauge.command.pages import rendered
from narrowgauge.version import __version__

PAGE = "audit.html.jinja"
#: findings of a group, and rows of a table, that the page holds; the rest is in --json
MEMBERS, ROWS = 200, 500
#: letters of a configuration
LONGEST = 20_000
#: sorts a table by the column whose heading is clicked; the page says everything without it
SCRIPT = """
document.querySelectorAll("table.sortable").forEach(function (table) {
  table.querySelectorAll("th").forEach(function (head, column) {
    head.style.cursor = "pointer";
    head.addEventListener("click", function () {
      var up = head.classList.contains("sorted") && !head.classList.contains("up");
      table.querySelectorAll("th").forEach(function (one) { one.classList.remove("sorted", "up"); });
      head.classList.add("sorted");
      head.classList.toggle("up", up);
      var body = table.tBodies[0], rows = Array.from(body.rows);
      rows.sort(function (a, b) {
        var x = a.cells[column], y = b.cells[column];
        var order = x.dataset.value && y.dataset.value ? y.dataset.value - x.dataset.value
          : x.textContent.localeCompare(y.textContent, "en", { numeric: true });
        return up ? -order : order;
      });
      rows.forEach(function (row) { body.appendChild(row); });
    });
  });
});
"""


def page(report: Report) -> str:
    """The page as a text."""
    said, groups = list(about(report)), [_group(group) for group in grouped(report)]
    answers = {answer.about for answer in report.answers}
    return rendered(
        PAGE, SCRIPT,
        title=plain(report.asked.path.resolve().name), path=plain(str(report.asked.path)), version=__version__,
        date=datetime.date.today().isoformat(), wrong=report.wrong, verdict=plain(verdict(report)),
        answers=[{"about": plain(a.about), "said": plain(a.said)} for a in report.answers],
        facts=[(name, plain(text)) for name, text in said if name != "verdict" and name not in answers],
        groups=groups, notes=sum(group["level"] == "note" for group in groups),
        ranges=audit_pictures.ranges(report), histograms=audit_pictures.histograms(report),
        tables=list(_tables(report)), configs=list(_configurations(report)), command=_command(report),
    )  # fmt: skip


def _group(group: Group) -> dict[str, Any]:
    first = group.first
    members = [
        {"tensor": plain(f.finding.tensor), "said": plain(f.finding.said), "places": plain(places(f))}
        for f in group.members[:MEMBERS]
    ]
    other = (
        "" if first.role == "model" else f" ({first.role} state: engines do not load it, and the verdict leaves it out)"
    )
    each = (
        f"The first {MEMBERS} of {len(group.members):,}"
        if len(group.members) > MEMBERS
        else f"Each of the {len(members)}"
    )
    return {
        "each": each if len(members) > 1 else "The first places", "level": first.level,
        "kind": group.kind, "about": plain(group.about) + other, "count": group.count,
        "where": plain(where(group)), "said": plain(first.finding.said), "meaning": first.meaning,
        "remedy": plain(first.remedy), "members": members, "places": plain(places(first)),
    }  # fmt: skip


def _tables(report: Report) -> Iterator[dict[str, Any]]:
    same = passport_groups(report)
    if same:
        heads = ["tensors", "which", "scheme", "scaled by", "granularity", "bits", "compute path"]
        rows = [
            [_number(count), _name(name), *map(_text, said), _number(float(bits)), _text(path)]
            for (name, *said, bits, path), count in list(same.items())[:ROWS]
        ]
        yield _table("passports", "Quantized tensors", heads, rows, len(same))
    if report.online:
        ranked = worst_first(report.online)
        heads = ["weight", "recipe", "SQNR", "clipped", "flushed"]
        rows = []
        for one in ranked[:ROWS]:
            cells = online_cells(one)
            m = one.measured
            numbers = [m.sqnr if m.error else 999.0, m.counts["clipped"], m.counts["flushed"]] if m else [-999.0, 0, 0]
            rows.append(
                [_name(cells[0]), _text(cells[1]), *(_number(n, c) for n, c in zip(numbers, cells[2:], strict=True))]
            )
        yield _table("online", "Weights under a recipe", heads, rows, len(ranked))
    if report.compared:
        ranked_by = sorted(report.compared, key=lambda one: one.sqnr - one.expected)
        heads = ["weight", "SQNR", "usual", "cosine", "largest error"]
        numbers_of = [(c.sqnr, c.expected, c.cosine, c.most) for c in ranked_by[:ROWS]]
        rows = [
            [_name(cells[0]), *(_number(n, text) for n, text in zip(numbers, cells[1:], strict=True))]
            for numbers, cells in zip(numbers_of, map(compared_cells, ranked_by[:ROWS]), strict=True)
        ]
        yield _table("against", "Against the original", heads, rows, len(ranked_by))


def _table(name: str, title: str, heads: list[str], rows: list[list[dict[str, Any]]], count: int) -> dict[str, Any]:
    numbers = [bool(rows) and cell["number"] is not None for cell in rows[0]]
    said = f"The first {len(rows):,} of {count:,}; --json has all." if count > len(rows) else ""
    headings = [{"text": text, "number": number} for text, number in zip(heads, numbers, strict=True)]
    return {"id": name, "title": title, "headings": headings, "rows": rows, "said": said}


def _text(text: str) -> dict[str, Any]:
    return {"text": plain(text), "number": None, "name": False}


def _name(text: str) -> dict[str, Any]:
    return {"text": plain(text), "number": None, "name": True}


def _number(number: float, text: str = "") -> dict[str, Any]:
    return {"text": text or f"{number:,}", "number": number, "name": False}


def _configurations(report: Report) -> Iterator[tuple[str, str]]:
    files = {"config.json": report.checkpoint.config, **report.checkpoint.others}
    for name, content in files.items():
        if content:
            text = json.dumps(content, indent=1, default=str)
            yield plain(name), text[:LONGEST] + (" …" if len(text) > LONGEST else "")


def _command(report: Report) -> str:
    return plain(shlex.join(["narrowgauge", "audit", str(report.asked.path), *report.asked.words()]))
