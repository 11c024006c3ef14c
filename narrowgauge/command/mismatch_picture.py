"""The picture of a mismatch: number lines for a cast, a map of where elements differ for everything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from narrowgauge.command import pictures
from narrowgauge.command.panels import number
from narrowgauge.command.pictures import BLUE, GREY, ORANGE, RED, SKY
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.verdict import DIFFERENCES
from narrowgauge.plugin.mismatches import Differing
from narrowgauge.reference.compare import CLASS
from narrowgauge.reference.pictured import Lane, Overview, as_matrix, lanes, overview, shrunk
from narrowgauge.suites.judging import Judged

#: colours of the classes of difference
COLOURS = dict(zip(DIFFERENCES, (RED, SKY, ORANGE, "black", BLUE, "#CC79A7"), strict=True))
#: maps side by side; inches of a lane, of the overview, of a map, and of a title
MAPS, LANE, OVERVIEW, MAP, TITLE = 3, 0.95, 3.0, 4.6, 0.9
#: of the overview: the highest place, of 2^(OFF-1) codes off and more; binades beside those with mistakes, and in all
OFF, MARGIN, WIDEST = 6, 4, 40
#: rows or columns that have a mark each
FEW = 8


def png(judged: Judged, differing: Differing) -> bytes:
    """The picture of a mismatch."""
    height, make = _lines(judged, differing) if differing.elementwise else _maps(judged, differing)
    return pictures.rendered(height, make, "png")


Made = tuple[float, Callable[[Any], None]]


def _title(figure: Any, judged: Judged, said: str) -> None:
    row = judged.row
    wrong = sum(row.differences.values())
    figure.suptitle(
        f"{row.kernel} on {row.target}, case {row.case}: {wrong:,} of {row.elements:,} elements differ\n{said}",
        fontsize=12, x=0.01, ha="left",
    )  # fmt: skip


# --- casts -----------------------------------------------------------------------------------------------------------


def _lines(judged: Judged, differing: Differing) -> Made:
    x, got, want = differing.x, differing.got["codes"], differing.want["codes"]
    shown = lanes(x, got, want, differing.difference)
    every = overview(x, got, want, differing.difference)

    def make(figure: Any) -> None:
        _title(figure, judged, f"{x.format} to {got.format}; neighbours on a line are neighbouring codes")
        top, bottom = figure.subfigures(2, 1, height_ratios=[LANE * len(shown), OVERVIEW])
        for axes, lane in zip(top.subplots(len(shown), 1, squeeze=False)[:, 0], shown, strict=True):
            _lane(axes, lane, len(f"{format_named(got.format).code_count - 1:x}"))
        _overview(bottom.subplots(), every)

    return TITLE + LANE * len(shown) + OVERVIEW, make


def _lane(axes: Any, lane: Lane, digits: int) -> None:
    """The input as a black wedge above the line, what should have come as a blue dot, what came as a red cross."""
    first, last = lane.ticks[0].place, lane.ticks[-1].place
    axes.set_axis_off()
    axes.set_xlim(first - 1.0, last + 1.0 + 0.55 * (last - first + 2))
    axes.set_ylim(-1.5, 1.3)
    axes.hlines(0, first - 0.8, last + 0.8, color=GREY, linewidth=1)
    for tick in lane.ticks:
        axes.vlines(tick.place, -0.16, 0.16, color=GREY, linewidth=1)
        sign = "-" if tick.value < 0 else ""
        label = f"{sign}{number(abs(tick.value))}\n0x{tick.code:0{digits}x}"
        axes.text(tick.place, -0.42, label, ha="center", va="top", fontsize=8, color="#444444")
    axes.plot(lane.at, 0.5, marker="v", color="black", markersize=9, clip_on=False)
    if lane.want_at is not None:
        axes.plot(lane.want_at, 0, "o", color=BLUE, markersize=10, clip_on=False)
    if lane.got_at is not None:
        axes.plot(lane.got_at, 0, "X", color=RED, markersize=10, markeredgecolor="white", clip_on=False)
    words = (
        (0.75, "black", f"▼ x    {lane.given}"),
        (0.0, BLUE, f"● want {lane.want}"),
        (-0.75, RED, f"✖ got  {lane.got}"),
    )
    for height, colour, text in words:
        axes.text(last + 1.3, height, text, color=colour, fontsize=10, family="monospace", va="center")


def _overview(axes: Any, every: Overview) -> None:
    """Every input and by how many codes it is off, on logarithmic axes with both signs."""
    least, most = _reach(every)
    place = _places(every.inputs, least, most)
    off = _heights(every.apart)
    for chosen, height, colour, word in (
        (~every.wrong, np.zeros(off.shape), SKY, "right"),
        (every.wrong, off, RED, "wrong"),
    ):
        axes.plot(place[chosen], height[chosen], ".", color=colour, markersize=6, label=word)
    reach = most - least
    step = max(1, -(-reach // 8))
    powers = np.arange(least + step, most + 1, step)
    axes.set_xticks(
        [*(-(powers[::-1] - least)), 0, *(powers - least), reach + 1.5],
        [*(f"$-2^{{{p}}}$" for p in powers[::-1]), "0", *(f"$2^{{{p}}}$" for p in powers), "NaN"],
    )
    axes.set_xlim(-reach - 0.5, reach + 2)
    axes.set_yticks(
        [*range(-OFF, OFF + 1), OFF + 2],
        [*(f"-{2**n}" for n in range(OFF - 1, -1, -1)), "right", *(f"+{2**n}" for n in range(OFF)), "NaN, inf"],
    )
    axes.set_ylim(-OFF - 1, OFF + 3)
    axes.grid(axis="y", color="#EEEEEE")
    axes.set_xlabel("input; beyond the marks at both ends stand all larger ones")
    axes.set_ylabel("codes off")
    axes.legend(loc="upper left", bbox_to_anchor=(0, 1.12), fontsize=9, frameon=False, ncols=2)


def _reach(every: Overview) -> tuple[int, int]:
    """The binades that are shown: those of the mistakes, and some on either side."""
    shown = every.inputs[every.wrong & np.isfinite(every.inputs) & (every.inputs != 0)]
    if not shown.size:
        return -8, 8
    binades = np.floor(np.log2(np.abs(shown)))
    least = int(binades.min()) - MARGIN
    return least, min(int(binades.max()) + MARGIN, least + WIDEST)


def _heights(apart: Any) -> Any:
    """1 for one code off, 2 for two, 3 for four; above all others what is no number."""
    with np.errstate(divide="ignore", invalid="ignore"):
        height = np.minimum(1 + np.log2(np.abs(apart)), OFF)
    return np.where(np.isnan(apart), OFF + 2, np.where(apart == 0, 0, np.copysign(height, apart)))


def _places(values: Any, least: int, most: int) -> Any:
    """Signed logarithm: 0 and what is smaller than 2^least in the middle, infinity at the ends, NaN beyond."""
    with np.errstate(divide="ignore", invalid="ignore"):
        binades = np.clip(np.log2(np.abs(values)) - least, 0, most - least)
    return np.where(np.isnan(values), most - least + 1.5, np.copysign(binades, values))


# --- matrices --------------------------------------------------------------------------------------------------------


def _maps(judged: Judged, differing: Differing) -> Made:
    classes = differing.difference.classes
    names = sorted(classes, key=lambda name: (not classes[name].any(), -classes[name].size, name))[:MAPS]

    def make(figure: Any) -> None:
        row = judged.row
        _title(figure, judged, f"{row.source} to {row.format}, {row.rule}; where in each output elements differ")
        ratios = [2.0 if as_matrix(classes[name].shape)[1] > 8 else 0.7 for name in names]
        every = figure.subplots(1, len(names), squeeze=False, width_ratios=ratios)[0]
        for axes, name in zip(every, names, strict=True):
            _map(axes, name, classes[name], differing.got[name].format)
        _legend(figure, row.differences)

    return TITLE + MAP, make


def _map(axes: Any, name: str, classes: Any, format_name: str) -> None:
    from matplotlib.colors import ListedColormap
    from matplotlib.ticker import MaxNLocator

    found, each = shrunk(classes)
    rows, columns = as_matrix(classes.shape)
    colours = ListedColormap(["#E8EEF2", *COLOURS.values()])
    extent = (-0.5, found.shape[1] * each[1] - 0.5, found.shape[0] * each[0] - 0.5, -0.5)
    axes.imshow(
        found, cmap=colours, vmin=-0.5, vmax=len(CLASS) - 0.5, aspect="auto", interpolation="nearest", extent=extent
    )
    wrong = int(np.count_nonzero(classes))
    joined = "" if each == (1, 1) else f"; a point is {each[0]} × {each[1]}"
    axes.set_title(f"{name} ({format_name}), {rows:,} × {columns:,}\n{wrong:,} differ{joined}", loc="left", fontsize=10)
    axes.set_xlabel("column")
    axes.set_ylabel("row" if classes.ndim <= 2 else "row (the first axes as one)")
    for axis, count in ((axes.xaxis, columns), (axes.yaxis, rows)):
        if count <= FEW:
            axis.set_ticks(range(count))
        else:
            axis.set_major_locator(MaxNLocator(6, integer=True))
    for side in ("top", "right"):
        axes.spines[side].set_visible(True)


def _legend(figure: Any, differences: dict[str, int]) -> None:
    from matplotlib.patches import Patch

    patches = [Patch(color=COLOURS[kind], label=f"{kind.replace('_', ' ')} ({n:,})") for kind, n in differences.items()]
    figure.legend(handles=[Patch(color="#E8EEF2", label="right"), *patches], loc="outside lower left", ncols=7,
                  frameon=False, fontsize=10)  # fmt: skip
