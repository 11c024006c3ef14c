"""The picture of ``narrowgauge diff``: where two recipes part, by data set and by input."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from narrowgauge.command import pictures
from narrowgauge.command.pictures import BLUE, GREY, RED
from narrowgauge.reference.recipe_diff import Compared, OfData, Side

#: data sets that are drawn, of those that part most; points of one
BARS, POINTS = 24, 4000


def draw(found: Compared, sides: Sequence[Side], path: Path) -> None:
    """A bar for each data set that parts, and the errors of both recipes in the one that parts most."""
    apart = sorted((row for row in found.rows if row.values or row.codes or row.scales), key=_share)[-BARS:]
    height = max(3.2, 0.24 * len(apart) + 1.6)

    def make(figure: Any) -> None:
        names = " and ".join(f"{s.recipe.name} to {s.format}" for s in sides)
        figure.suptitle(names, fontsize=12)
        if not apart:
            axes = figure.add_subplot()
            axes.set_axis_off()
            axes.text(0.5, 0.5, "they agree on all of the data", ha="center", transform=axes.transAxes)
            return
        grid = figure.add_gridspec(1, 2, width_ratios=[1, 1.3])
        _bars(figure.add_subplot(grid[0]), apart)
        _errors(figure.add_subplot(grid[1]), apart[-1], found, sides)

    pictures.save(path, "--picture", height, make)


def _share(row: OfData) -> float:
    return row.values / row.elements


def _bars(axes: Any, rows: Sequence[OfData]) -> None:
    places = np.arange(len(rows))
    axes.barh(places + 0.2, [_share(r) for r in rows], 0.38, color=BLUE, label="values: code times scale")
    if all(row.scales is not None for row in rows):
        axes.barh(places - 0.2, [r.scales / r.blocks for r in rows], 0.38, color=GREY, label="scales")  # type: ignore[operator]
    axes.set_yticks(places, [row.name for row in rows], fontsize=8)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlim(0, 1.02)
    axes.set_xlabel("share that parts")
    axes.set_title("by data set", loc="left", fontsize=11)
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.5 / len(rows) - 0.12), ncols=2, fontsize=8, frameon=False)


def _errors(axes: Any, row: OfData, found: Compared, sides: Sequence[Side]) -> None:
    """What each recipe makes of the elements that part, less x, relative to x."""
    apart = found.apart[row.name]
    kept = np.isfinite(apart).all(axis=0) & (apart[0] != 0)
    x, *values = apart[:, kept][:, :POINTS]
    axes.set_title(f"{row.name}: relative errors where the two part", loc="left", fontsize=11)
    if not x.size:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "every element that parts is 0, NaN or infinite", ha="center", transform=axes.transAxes)
        return
    for side, value, colour, marker in zip(sides, values, (BLUE, RED), ("o", "x"), strict=True):
        axes.plot(
            x, (value - x) / x, marker, color=colour, markersize=4, alpha=0.7, linestyle="none", label=side.recipe.name
        )
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set_xlabel("x")
    axes.set_ylabel("(what comes back - x) / x")
    axes.legend(loc="best", fontsize=8, framealpha=0.9)
