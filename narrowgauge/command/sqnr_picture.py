"""The picture of ``narrowgauge sqnr``: decibels of each layer under each recipe, and what the errors are made of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from narrowgauge.command import pictures
from narrowgauge.command.pictures import BLUE, GREY, ORANGE, PALE, RED, SKY
from narrowgauge.reference.layers import OfLayer

#: layers that are drawn, of the worst
LAYERS = 40
COLOURS, MARKERS = (BLUE, RED, ORANGE, SKY, "black", GREY), ("o", "x", "s", "^", "D", "v")
KINDS = (("clipped", RED), ("flushed", ORANGE), ("rounded", PALE))


def draw(ranked: Sequence[tuple[OfLayer, ...]], path: Path) -> None:
    """The worst layer stands at the top."""
    drawn = list(ranked[:LAYERS])[::-1]

    def make(figure: Any) -> None:
        grid = figure.add_gridspec(1, 2, width_ratios=[1.7, 1])
        left = figure.add_subplot(grid[0])
        _decibels(left, drawn)
        _errors(figure.add_subplot(grid[1], sharey=left), drawn)

    pictures.save(path, "--picture", max(3.4, 0.24 * len(drawn) + 1.8 + 0.2 * len(drawn[0])), make)


def _decibels(axes: Any, drawn: Sequence[tuple[OfLayer, ...]]) -> None:
    for number, recipe in enumerate(one.recipe for one in drawn[0]):
        outputs = [each[number].output for each in drawn]
        decibels = [np.nan if out is None or not np.isfinite(out.sqnr) else out.sqnr for out in outputs]
        axes.plot(
            decibels, np.arange(len(drawn)), MARKERS[number % len(MARKERS)], color=COLOURS[number % len(COLOURS)],
            linestyle="none", markersize=6, label=recipe,
        )  # fmt: skip
    axes.set_yticks(np.arange(len(drawn)), [each[0].layer for each in drawn], fontsize=8)
    axes.set_ylim(-0.6, len(drawn) - 0.4)
    axes.grid(axis="y", color=PALE)
    axes.set_xlabel("SQNR of the output, dB; a layer without a mark is exact or was refused")
    axes.set_title("layers, the worst at the top", loc="left", fontsize=11)
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.6 / len(drawn) - 0.12), fontsize=8, frameon=False)


def _errors(axes: Any, drawn: Sequence[tuple[OfLayer, ...]]) -> None:
    """Of the first recipe: of the input, or of the weight where the input stays as it is."""
    places, left = np.arange(len(drawn)), np.zeros(len(drawn))
    measured = [each[0].input or each[0].weight for each in drawn]
    for kind, colour in KINDS:
        shares = np.array([0.0 if m is None else m.share(kind) for m in measured])
        axes.barh(places, shares, 0.7, left=left, color=colour, label=kind)
        left += shares
    what = "input" if any(each[0].input for each in drawn) else "weight"
    axes.set_title(f"squared error of the {what}\n{drawn[0][0].recipe}", loc="left", fontsize=11)
    axes.tick_params(labelleft=False)
    axes.set_xlim(0, 1.001)
    axes.set_xlabel("share")
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.6 / len(drawn) - 0.12), ncols=3, fontsize=8, frameon=False)
