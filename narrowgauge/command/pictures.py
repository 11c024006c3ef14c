"""What all pictures share: kinds of files, a missing matplotlib, style, the same bytes on every machine."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from narrowgauge.contracts.errors import BadInput, Infrastructure
from narrowgauge.contracts.files import write_whole

#: colours of Okabe and Ito, which can be told apart by everybody
BLUE, SKY, ORANGE, RED, PALE, GREY = "#0072B2", "#56B4E9", "#E69F00", "#D55E00", "#D9E8F2", "#888888"
KINDS = ("png", "svg")
#: inches; at ``DPI`` a picture is 1,200 pixels wide
WIDTH, DPI = 12.0, 100
#: the same picture on every machine: no date, no random ids, and nothing of the user's own settings
STYLE = {"svg.hashsalt": "narrowgauge", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
METADATA: dict[str, dict[str, None]] = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}


def check(path: Path, option: str) -> str:
    """The kind of picture file that a path names, before anything is computed for it.

    Raises ``BadInput`` for another kind of file, and ``Infrastructure`` without matplotlib.
    """
    kind = path.suffix.lower().removeprefix(".")
    if kind not in KINDS:
        raise BadInput(f"{option} {path}: expected a file that ends in .png or .svg")
    if importlib.util.find_spec("matplotlib") is None:
        raise Infrastructure(
            f"{option} needs matplotlib, which is not installed; it comes with the extra 'plot': "
            "pip install '.[plot]' in a checkout of narrowgauge, or pip install matplotlib"
        )
    return kind


def figure_of(height: float, make: Callable[[Any], None]) -> Any:
    """A figure of ``WIDTH`` by ``height`` inches that ``make`` has drawn on, in our style."""
    import matplotlib.style
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with matplotlib.style.context(STYLE, after_reset=True):
        figure = Figure(figsize=(WIDTH, height), layout=ConstrainedLayoutEngine(h_pad=0.12, w_pad=0.12))
        make(figure)
    return figure


def save(path: Path, option: str, height: float, make: Callable[[Any], None]) -> None:
    """Draw into a .png or .svg file. Raises as ``check`` does."""
    kind = check(path, option)
    write_whole(path, rendered(height, make, kind))


def rendered(height: float, make: Callable[[Any], None], kind: str) -> bytes:
    """The bytes of a picture, "png" or "svg"; matplotlib must be there."""
    import matplotlib.style

    content = io.BytesIO()
    with matplotlib.style.context(STYLE, after_reset=True):
        figure_of(height, make).savefig(content, format=kind, dpi=DPI, metadata=METADATA[kind])
    return _smaller(content) if kind == "png" else content.getvalue()


def _smaller(content: io.BytesIO) -> bytes:
    """A PNG in 256 colours, which are plenty here: a third of the size. Pillow comes with matplotlib."""
    from PIL import Image

    found = io.BytesIO()
    Image.open(content).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(found, "png", optimize=True)
    return found.getvalue()
