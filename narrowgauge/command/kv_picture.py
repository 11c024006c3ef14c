"""The picture of ``narrowgauge kv``: how large K and V are, against what the format holds at the scale in use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from narrowgauge.command import pictures
from narrowgauge.command.panels import STEPS
from narrowgauge.command.pictures import BLUE, GREY, ORANGE, PALE, RED
from narrowgauge.reference.kv.findings import Judged, decibels
from narrowgauge.reference.kv.histogram import by_binade
from narrowgauge.reference.kv.window import window

#: layers that are drawn, of the worst; panels beside each other; binades around what was seen; ticks of an axis
LAYERS, COLUMNS, MARGIN, TICKS = 16, 4, 2, 8
SMALL = 8


def draw(layers: Sequence[Sequence[Judged]], title: str, path: Path) -> None:
    """A panel for each part of the worst layers, in their order; ``title`` says what the cache is."""
    shown = [part for parts in layers[:LAYERS] for part in parts]
    low, high = _ends(shown)
    rows = -(-len(shown) // COLUMNS)

    def make(figure: Any) -> None:
        figure.suptitle(
            f"{title}\nelements in each power of two of magnitude (counts on a logarithmic scale)", fontsize=10
        )
        panels = figure.subplots(rows, COLUMNS, sharex=True, squeeze=False).ravel()
        for axes, one in zip(panels, shown, strict=False):
            _panel(axes, one, low, high)
        for axes in panels[len(shown) :]:
            axes.set_axis_off()
        marks, names = panels[0].get_legend_handles_labels()
        figure.legend(marks, names, loc="outside lower center", ncols=len(names), fontsize=SMALL, frameon=False)

    pictures.save(path, "--picture", 1.5 + 1.9 * rows, make)


def _ends(shown: Sequence[Judged]) -> tuple[int, int]:
    """Exponents of the axis: what was seen, and the windows."""
    ends: list[float] = []
    for one in shown:
        first, counts, _ = by_binade(one.effects.histogram)
        ends += [first, first + counts.size] if counts.size else []
        held = window(one.effects.format, _bound(one), _scale(one))
        ends += [float(np.floor(np.log2(held.flushed))), float(np.ceil(np.log2(held.largest)))]
    return int(min(ends)) - MARGIN, int(max(ends)) + MARGIN


def _bound(one: Judged) -> float:
    return one.effects.recipe.destination(one.effects.format).bound


def _scale(one: Judged) -> float:
    """The scale in use; of one a head, or none, the good one."""
    return one.used.scale if one.used is not None and 0 < one.used.scale < np.inf else one.good.scale


def _panel(axes: Any, one: Judged, low: int, high: int) -> None:
    held = window(one.effects.format, _bound(one), _scale(one))
    flushed, normal, largest = (float(np.log2(v)) for v in (held.flushed, held.normal, held.largest))
    axes.axvspan(low, flushed, color=GREY, alpha=0.25, linewidth=0, label="becomes 0")
    axes.axvspan(flushed, normal, color=ORANGE, alpha=0.25, linewidth=0, label="subnormal: fewer bits")
    axes.axvspan(normal, largest, color=PALE, linewidth=0, label="normal range")
    axes.axvspan(largest, high, color=RED, alpha=0.25, linewidth=0, label="beyond the largest")
    first, counts, zero = by_binade(one.effects.histogram)
    axes.bar(first + np.arange(counts.size) + 0.5, counts, 0.9, color=BLUE, label="|x|")
    axes.set_yscale("log")
    axes.set_ylim(0.5, max(10.0, float(counts.max(initial=1)) * 3))
    axes.set_xlim(low, high)
    step = next(step for step in STEPS if (high - low) // step < TICKS)
    ticks = [e for e in range(low, high + 1) if e % step == 0]
    axes.set_xticks(ticks, [f"$2^{{{e}}}$" for e in ticks], fontsize=SMALL)
    axes.tick_params(axis="y", labelsize=SMALL)
    wrong = ", ".join(dict.fromkeys(f.kind for f in one.findings if f.wrong))
    figure = decibels(one.used) if one.used is not None else "not judged"
    zeros = f", {zero:,} zeros" if zero else ""
    axes.set_title(
        f"{one.layer} {one.part.upper()}\nscale {_scale(one):.3g}: {figure}{zeros}\n{wrong or 'nothing wrong'}",
        loc="left", fontsize=SMALL, color=RED if wrong else "black",
    )  # fmt: skip
