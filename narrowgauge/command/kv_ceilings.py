"""``narrowgauge kv --weights``: how large K and V can become at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from narrowgauge.command.kv_words import about_use, finding_lines, verdict_of
from narrowgauge.command.shared import print_json
from narrowgauge.contracts.verdict import Exit
from narrowgauge.plugin.screen import Grid, Line, facts, screen, show
from narrowgauge.suites.kv_ceiling import Model, OfPart, in_use
from narrowgauge.suites.kv_scales import Scales
from narrowgauge.suites.kv_use import Report, Use, report_on_scales

LABEL = "ceiling, not an estimate"
MEANING = "no input exceeds it, and real ones may stay far below: measure them (narrowgauge kv FILE.py:FUNCTION)"


def run(folder: Path, scales: Scales, use: Use, top: int, as_json: bool) -> int:
    """Ceilings of every layer, against the format at the scale in use. The exit code is that of the scales alone: a
    ceiling beyond the range is no finding."""
    model = Model(folder)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        found = list(progress.track(model.ceilings(), total=2 * len(model.layers), description="reading weights"))
    report = report_on_scales(model.layers, scales, use, measured=False)
    if as_json:
        ceilings = [one.to_json() | _use(report, one) for one in found]
        print_json({"label": LABEL, "meaning": MEANING, **report.to_json(), "ceilings": ceilings})
    else:
        show(screen(), _texts(report, found, top, screen().width))
    return Exit.FAILED if report.wrong else Exit.OK


def _use(report: Report, one: OfPart) -> dict[str, object]:
    scale = in_use(report, one)
    return {"scale": scale, "may_clip": None if scale is None else one.clips(report.use, scale)}


def _texts(report: Report, found: Sequence[OfPart], top: int, width: int) -> list[Text]:
    never = sum(_use(report, one)["may_clip"] is False for one in found)
    grid = Grid("", ["layer", "", "ceiling", "least head", "largest head", "scale", "at that scale"])
    shown = sorted(found, key=lambda one: -one.largest)[: 2 * top]
    for one in shown:
        scale, clips = in_use(report, one), _use(report, one)["may_clip"]
        words = "-" if scale is None else "one a head" if np.ndim(scale) else f"{scale:.4g}"
        at = "-" if clips is None else "may clip" if clips else "cannot clip"
        numbers = [f"{value:.4g}" for value in (one.largest, one.heads.min(), one.heads.max())]
        cells = [one.layer, one.part.upper(), *numbers, words, at]
        grid.lines.append(Line([Text(cell) for cell in cells]))
    more = len(found) - len(shown)
    last = [Text(f"… and {more} more (--top, or --json for all)")] if more > 0 else []
    judged = verdict_of(report, len(report.delivered))
    said = [
        (LABEL, MEANING),
        ("verdict", f"{never} of {len(found)} parts cannot clip, whatever the input; {judged}"),
        *about_use(report.use, report.scales, report.warnings),
        *finding_lines(report.findings),
    ]
    return [*facts(said, width, indent=0), Text(), *grid.texts(width), *last]
