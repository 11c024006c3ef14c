"""Pictures of a format: ``narrowgauge explain float8_e4m3fnuz --plot``. Drawn by matplotlib, which is optional."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from narrowgauge.command import panels, pictures
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import Format
from narrowgauge.reference.format_words import bits
from narrowgauge.reference.number_line import sibling

#: inches
LINE, MIDDLE, SIBLING = 2.6, 4.4, 3.8
#: a format's largest value, and what would come after it, must be ordinary numbers to whoever draws them
WIDEST = 32


def plot(fmt: Format, path: Path) -> None:
    """Draw a format into a .png or .svg file.

    Raises ``BadInput`` for another kind of file or too wide a format, and ``Infrastructure`` without matplotlib.
    """
    if fmt.bits > WIDEST:
        raise BadInput(f"--plot draws formats of at most {WIDEST} bits; {fmt.name} has {fmt.bits}")
    pictures.save(path, "--plot", height(fmt), lambda figure: draw(figure, fmt))


def height(fmt: Format) -> float:
    """Of the picture, in inches."""
    return sum(_heights(fmt)) + 0.7


def _heights(fmt: Format) -> list[float]:
    return [LINE, MIDDLE, *([SIBLING] if sibling(fmt) else [])]


def draw(figure: Any, fmt: Format) -> None:
    """All panels of a format."""
    heights = _heights(fmt)
    laid_out = f"{fmt.bits} bits" if fmt.family == "integer" else bits(fmt)
    figure.suptitle(f"{fmt.name}: {laid_out}\n{fmt.authority}", fontsize=13)
    grid = figure.add_gridspec(len(heights), 2, height_ratios=heights, width_ratios=[1, 1.15])
    panels.number_line(figure.add_subplot(grid[0, :]), fmt)
    panels.spacing(figure.add_subplot(grid[1, 0]), fmt)
    panels.top(figure.add_subplot(grid[1, 1]), fmt)
    other = sibling(fmt)
    if other:
        inner = grid[2, :].subgridspec(1, 2, width_ratios=[3, 1])
        panels.siblings(figure.add_subplot(inner[0]), figure.add_subplot(inner[1]), fmt, other)
