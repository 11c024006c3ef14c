"""Pictures of a format: ``narrowgauge explain float8_e4m3fnuz --plot``. Drawn by matplotlib, which is optional."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path
from typing import Any

from narrowgauge.command import panels
from narrowgauge.contracts.errors import BadInput, Infrastructure
from narrowgauge.contracts.files import write_whole
from narrowgauge.contracts.formats import Format
from narrowgauge.reference.number_line import sibling

KINDS = ("png", "svg")
#: inches; at ``DPI`` the picture is 1,200 pixels wide
WIDTH, DPI = 12.0, 100
LINE, MIDDLE, SIBLING = 2.6, 4.4, 3.8
#: the same picture on every machine: no date, no random ids, and nothing of the user's own settings
STYLE = {"svg.hashsalt": "narrowgauge", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
METADATA: dict[str, dict[str, None]] = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}

#: a format's largest value, and what would come after it, must be ordinary numbers to whoever draws them
WIDEST = 32


def plot(fmt: Format, path: Path, bits: str) -> None:
    """Draw a format into a .png or .svg file. ``bits`` says how its code is laid out.

    Raises ``BadInput`` for another kind of file or too wide a format, and ``Infrastructure`` without matplotlib.
    """
    kind = path.suffix.lower().removeprefix(".")
    if kind not in KINDS:
        raise BadInput(f"--plot {path}: expected a file that ends in .png or .svg")
    if fmt.bits > WIDEST:
        raise BadInput(f"--plot draws formats of at most {WIDEST} bits; {fmt.name} has {fmt.bits}")
    if importlib.util.find_spec("matplotlib") is None:
        raise Infrastructure(
            "--plot needs matplotlib, which is not installed; it comes with the extra 'plot': "
            "pip install '.[plot]' in a checkout of narrowgauge, or pip install matplotlib"
        )
    import matplotlib.style

    content = io.BytesIO()
    with matplotlib.style.context(STYLE, after_reset=True):
        _figure(fmt, bits).savefig(content, format=kind, dpi=DPI, metadata=METADATA[kind])
    write_whole(path, _smaller(content) if kind == "png" else content.getvalue())


def _smaller(content: io.BytesIO) -> bytes:
    """A PNG in 256 colours, which are plenty here: a third of the size. Pillow comes with matplotlib."""
    from PIL import Image

    found = io.BytesIO()
    Image.open(content).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(found, "png", optimize=True)
    return found.getvalue()


def _figure(fmt: Format, bits: str) -> Any:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    other = sibling(fmt)
    heights = [LINE, MIDDLE, *([SIBLING] if other else [])]
    layout = ConstrainedLayoutEngine(h_pad=0.12, w_pad=0.12)
    figure = Figure(figsize=(WIDTH, sum(heights) + 0.7), layout=layout)
    figure.suptitle(f"{fmt.name}: {bits}\n{fmt.authority}", fontsize=13)
    grid = figure.add_gridspec(len(heights), 2, height_ratios=heights, width_ratios=[1, 1.15])
    panels.number_line(figure.add_subplot(grid[0, :]), fmt)
    panels.spacing(figure.add_subplot(grid[1, 0]), fmt)
    panels.top(figure.add_subplot(grid[1, 1]), fmt)
    if other:
        inner = grid[2, :].subgridspec(1, 2, width_ratios=[3, 1])
        panels.siblings(figure.add_subplot(inner[0]), figure.add_subplot(inner[1]), fmt, other)
    return figure
