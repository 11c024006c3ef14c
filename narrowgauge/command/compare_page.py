"""The page of ``narrowgauge compare --html``."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from narrowgauge.ci.comparison.comparing import Comparison
from narrowgauge.ci.comparison.findings import KINDS, SECTIONS, Finding
from narrowgauge.ci.comparison.matrix import Line, Tally
from narrowgauge.command.audit_words import plain
from narrowgauge.command.compare_words import SIDE_HEADS, Told, counts, is_quiet, sides_of, tally_words, told, verdict
from narrowgauge.command.pages import rendered
from narrowgauge.version import __version__

PAGE = "compare.html.jinja"
#: leaves what has every word that is typed, and hides rows without a difference; the page says everything without it
SCRIPT = """
var word = document.getElementById("word"), quiet = document.getElementById("quiet");
function filter() {
  var words = word.value.toLowerCase().split(/\\s+/).filter(Boolean);
  document.querySelectorAll(".find").forEach(function (one) {
    var text = one.textContent.toLowerCase();
    one.hidden = (quiet.checked && one.classList.contains("quiet")) ||
      !words.every(function (each) { return text.indexOf(each) >= 0; });
  });
}
word.addEventListener("input", filter);
quiet.addEventListener("change", filter);
document.getElementById("filter").hidden = false;
filter();
"""
#: how a finding, or a cell of the matrix, is marked; the words beside it say the same
#: columns that the headline names
NAMED = 5
LEVELS = {"verdicts": "wrong", "failures": "wrong", "codes": "doubt", "nan": "doubt", "agree": "well"}


def page(comparison: Comparison, findings: Sequence[Finding]) -> str:
    """The page as a text."""
    each = told(findings)
    return rendered(
        PAGE, SCRIPT,
        version=__version__, date=datetime.date.today().isoformat(),
        wrong=any(KINDS[f.kind].parts for f in findings), verdict=verdict(comparison, findings),
        heads=SIDE_HEADS, sides=[[plain(cell) for cell in row] for row in sides_of(comparison)],
        notes=[plain(note) for note in comparison.notes],
        changed=[(plain(pair), [tuple(map(plain, (n, a, b))) for n, (a, b) in found.items()])
                 for pair, found in comparison.changed.items()],
        counts=counts(findings),
        sections=[(title, [_told(one) for one in each if one.section == section])
                  for section, title in SECTIONS.items() if any(one.section == section for one in each)],
        headline=plain(_headline(comparison)), labels=[plain(column.label) for column in comparison.columns],
        lines=[_line(line, comparison) for line in comparison.lines],
    )  # fmt: skip


def _headline(comparison: Comparison) -> str:
    labels = [column.label for column in comparison.columns]
    few = ", ".join(labels) if len(labels) <= NAMED else f"{len(labels)} columns of {len(comparison.sides)} runs"
    return f"Compared: {few}"


def _told(one: Told) -> dict[str, Any]:
    return {
        "kind": one.kind, "said": KINDS[one.kind].said, "level": LEVELS.get(one.kind, "note"),
        "pattern": plain(one.pattern), "cells": one.cells, "quiet": one.kind == "agree",
        "why": [(plain(name), plain(text)) for name, text in one.why], "places": [plain(place) for place in one.places],
    }  # fmt: skip


def _line(line: Line, comparison: Comparison) -> dict[str, Any]:
    names = [plain(name) for name in (line.kernel, line.operation, line.format)]
    cells = [_cell(line.tallies.get(column.label)) for column in comparison.columns]
    return {"names": names, "cells": cells, "quiet": is_quiet(line)}


def _cell(tally: Tally | None) -> dict[str, str]:
    judged, parts = tally_words(tally)
    return {"judged": judged, "parts": plain(parts), "level": _level(tally)}


def _level(tally: Tally | None) -> str:
    if tally is None:
        return "unplanned"
    if set(tally.results) - {"passed"}:
        return "wrong"
    if tally.apart:
        return "doubt"
    return "well" if tally.results and not tally.unexecuted else "note"
