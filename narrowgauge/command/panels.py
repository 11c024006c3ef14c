"""The panels of a format's picture. Every number comes from the reference; colours can be told apart by everybody."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from narrowgauge.command.pictures import BLUE, GREY, ORANGE, PALE, RED, SKY
from narrowgauge.contracts.formats import Format
from narrowgauge.reference.codec import values
from narrowgauge.reference.landmarks import has_subnormals, smallest_normal, top_code
from narrowgauge.reference.number_line import (
    AtTheTop,
    at_the_top,
    magnitudes,
    parting_codes,
    shown_codes,
    spacings,
    top_points,
    value_of,
)

#: in ``top_points`` the place of the largest value; and where, in the same units, what infinity and NaN become stands
LARGEST, OF_SPECIALS = 3, (6.6, 7.5)
#: letters of policy names in one line of a lane, and values that are all labelled where there are no more
NAMES_WIDE, ALL_LABELLED = 62, 8
#: so many values have a mark each
MARKED = 64
#: letters of a number beside which there is room for another
WIDE = 10
#: below it a whole number is written with all its digits
WHOLE = 2**32
#: how far below its neighbours a number stands that has no room beside them: a part of the panel's height, which is
#: that of two lines of text
LOWER = 0.15
SMALL = 9
#: powers of two between two ticks
STEPS = (1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 512)


def number(value: float) -> str:
    """A value in few letters, powers as matplotlib sets them: 448, 2 to the -9, 1.5 times 2 to the 127, NaN."""
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "inf" if value > 0 else "-inf"
    fraction, exponent = np.frexp(value)
    plain = f"{value:.6g}"
    if value == 0 or (1e-3 <= abs(value) < 1e6 and float(plain) == value and (fraction != 0.5 or exponent >= 0)):
        return plain
    lead = "" if fraction == 0.5 else f"{2 * fraction:.5g}·"
    exact = not lead or float(lead[:-1]) == 2 * fraction
    if exact:
        return f"{lead}$2^{{{exponent - 1}}}$"
    return f"{value:.0f}" if float(value).is_integer() and abs(value) < WHOLE else f"{value:.9g}"


def _wide(text: str) -> bool:
    """Whether a number is too long to stand beside another; how powers are set takes no room."""
    return len(re.sub(r"[$^{}]", "", text)) > WIDE


def number_line(axes: Any, fmt: Format) -> None:
    """Every positive value on a logarithmic axis, subnormals apart, with the ends named."""
    codes = shown_codes(fmt)
    x, subnormal = magnitudes(codes, fmt), codes < smallest_normal(fmt)
    starts = np.frexp(x)[0] == 0.5
    for chosen, colour, name in ((subnormal, ORANGE, "subnormal"), (~subnormal, BLUE, "normal")):
        if chosen.any():
            heights = np.where(starts, 1.0, 0.62)[chosen]
            axes.vlines(x[chosen], 0, heights, color=colour, linewidth=1.2, label=name)
    if subnormal.any():
        axes.legend(loc="upper right", fontsize=SMALL, frameon=False, ncols=2)
        _flag(axes, fmt, 1, "smallest subnormal", 1.55)
        _flag(axes, fmt, smallest_normal(fmt), "smallest normal", 2.15)
    else:
        _flag(axes, fmt, int(codes[0]), "smallest", 1.55)
    _flag(axes, fmt, top_code(fmt), "largest", 1.55)
    if codes.size <= ALL_LABELLED:
        for value in x:
            axes.annotate(number(value), (value, 1.05), xytext=(4, 0), textcoords="offset points", fontsize=SMALL)
    every = codes.size == top_code(fmt) + (codes[0] == 0)
    kind = "every positive value" if every else "positive values, a few of each binade"
    tall = "" if starts.all() else "; the first of each binade is tall"
    twos_complement = fmt.family == "integer" and fmt.signed
    least = f"; two's complement reaches one further below zero, to {value_of(fmt.sign_bit, fmt):.0f}"
    axes.set_title(f"{kind}{tall}{least if twos_complement else ''}", loc="left", fontsize=11)
    axes.set_ylim(0, 2.6)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    _powers(axes.xaxis, axes, x, most=16)


def _flag(axes: Any, fmt: Format, code: int, name: str, height: float) -> None:
    """The name of a code on a pole, which stands left of the largest and right of any other."""
    x = float(magnitudes(np.array([code]), fmt)[0])
    side = -1 if code == top_code(fmt) else 1
    axes.vlines(x, 0, height, color="black", linewidth=0.8, zorder=0)
    axes.annotate(
        f"{name} {number(x)} (0x{code:0{-(-fmt.bits // 4)}x})", (x, height), xytext=(4 * side, 0),
        textcoords="offset points", fontsize=SMALL, ha="right" if side < 0 else "left", va="center",
        bbox={"facecolor": "white", "linewidth": 0, "pad": 1},
    )  # fmt: skip


def _powers(axis: Any, axes: Any, x: Any, most: int) -> None:
    """A logarithmic axis with ticks at powers of two, so many at most."""
    (axes.set_xscale if axis is axes.xaxis else axes.set_yscale)("log", base=2)
    low, high = int(np.floor(np.log2(x.min()))), int(np.ceil(np.log2(x.max())))
    step = next(step for step in STEPS if (high - low) // step < most)
    ticks = [e for e in range(low, high + 1) if e % step == 0]
    axis.set_ticks([2.0**e for e in ticks], [f"$2^{{{e}}}$" for e in ticks])
    axis.set_ticks([], minor=True)


def spacing(axes: Any, fmt: Format) -> None:
    """The distance to the next value, and the same relative to the value."""
    x, apart = spacings(fmt)
    marker = "." if x.size <= MARKED else ""
    axes.step(x, apart, where="post", color=BLUE, label="spacing: to the next value", marker=marker)
    axes.plot(x, apart / x, color=RED, linestyle="--", linewidth=1.2, label="spacing / value", marker=marker)
    if has_subnormals(fmt):
        normal = float(magnitudes(np.array([smallest_normal(fmt)]), fmt)[0])
        axes.axvspan(x.min(), normal, color=ORANGE, alpha=0.15, linewidth=0, label="subnormal range")
    _powers(axes.xaxis, axes, x, most=8)
    _powers(axes.yaxis, axes, np.concatenate([apart, apart / x]), most=9)
    axes.set_title("spacing", loc="left", fontsize=11)
    axes.set_xlabel("value")
    axes.legend(loc="best", fontsize=SMALL, framealpha=0.9)


def top(axes: Any, fmt: Format) -> None:
    """What policies give around the largest value, a lane for those that agree; infinity and NaN at the right."""
    lanes, points = at_the_top(fmt), top_points(fmt)
    axes.set_title("around the largest value: what an input becomes (dot: the point itself)", loc="left", fontsize=11)
    axes.set_axis_off()
    if not lanes:
        axes.text(0.5, 0.5, "no named cast policy has this destination", ha="center", transform=axes.transAxes)
        return
    for row, lane in enumerate(reversed(lanes)):
        _lane(axes, lane, row, points)
    lower = LOWER * (len(lanes) + 1) * any(_wide(number(x)) for x in points)
    for place, x in enumerate(points):
        is_value = place % 2 == 1
        axes.axvline(place, color=GREY, linewidth=0.8, linestyle="-" if is_value else ":", zorder=0)
        word = "largest" if place == LARGEST else "beyond" if place > LARGEST else "value"
        if 0 < place < len(points) - 1:
            _below(axes, place, f"{number(x)}\n{word if is_value else 'tie'}", 0.0 if is_value else lower)
    for middle, word in zip(OF_SPECIALS, ("inf", "NaN"), strict=True):
        _below(axes, middle, f"{word}\ninput")
    axes.set_xlim(-0.05, OF_SPECIALS[-1] + 0.5)
    axes.set_ylim(-1.15 - 1.2 * lower, len(lanes) - 0.2)


def _below(axes: Any, place: float, said: str, lower: float = 0.0) -> None:
    style = {"facecolor": "white", "linewidth": 0, "pad": 1}
    axes.text(place, -0.6 - lower, said, ha="center", va="top", fontsize=SMALL, bbox=style)


def _lane(axes: Any, lane: AtTheTop, row: int, points: list[float]) -> None:
    """One set of policies: a bar for each stretch, and at its end a dot in the colour of what the end itself becomes.

    Points stand at equal distances: what changes at them matters here, not how far they are.
    """
    bars = [(float(points.index(s.low)), float(points.index(s.high)), s.gives) for s in lane.stretches]
    for middle, gives in zip(OF_SPECIALS, (lane.of_infinity, lane.of_nan), strict=True):
        bars.append((middle - 0.4, middle + 0.4, gives))
    for left, right, gives in bars:
        colour, hatch = _colour(gives, points[LARGEST]), "///" if np.isnan(gives) else ""
        axes.barh(row - 0.2, right - left, left=left, height=0.5, color=colour, edgecolor="white", hatch=hatch)
        axes.text(
            (left + right) / 2, row - 0.2, _given(gives, points), ha="center", va="center", fontsize=SMALL,
            bbox={"facecolor": "white", "alpha": 0.85, "linewidth": 0, "pad": 1.2},
        )  # fmt: skip
    for stretch in lane.stretches[:-1]:
        colour = _colour(stretch.tie, points[LARGEST])
        axes.plot(points.index(stretch.high), row - 0.2, "o", color=colour, markeredgecolor="black", markersize=7)
    axes.text(
        0, row + 0.1, _names(lane.names), fontsize=8, va="bottom", ha="left",
        bbox={"facecolor": "white", "linewidth": 0, "pad": 0.5},
    )  # fmt: skip


def _given(gives: float, points: list[float]) -> str:
    """What a bar says: the number, or where that has no room, which number it is; the axis has its digits."""
    said = number(gives)
    if not _wide(said):
        return said
    top, one = points[LARGEST], points[LARGEST - 2]
    return {top: "largest", one: "before", 2 * one - top: "2 before"}.get(abs(gives), said)


def _colour(gives: float, largest: float) -> str:
    """By kind; the words and the hatch say it too."""
    if np.isnan(gives):
        return RED
    if np.isinf(gives):
        return ORANGE
    return SKY if abs(gives) == largest else PALE


def _names(names: tuple[str, ...]) -> str:
    """As many names as a line takes; each is whole."""
    for count in range(len(names), 0, -1):
        more = f" and {len(names) - count} more" if count < len(names) else ""
        said = ", ".join(names[:count]) + more
        if len(said) <= NAMES_WIDE:
            return said
    return names[0]


def siblings(axes: Any, beside: Any, fmt: Format, other: Format) -> None:
    """The magnitude of every byte in both formats; ``beside`` it the bytes where their ratio is not the usual one."""
    codes = np.arange(fmt.code_count)
    ratio, parting = parting_codes(fmt, other)
    for one, colour, style, width in ((fmt, BLUE, "-", 2.2), (other, RED, "--", 1.6)):
        magnitude = np.abs(values(one))
        shown = np.where(np.isfinite(magnitude) & (magnitude > 0), magnitude, np.nan)
        axes.plot(codes, shown, color=colour, linestyle=style, linewidth=width, label=one.name)
    for code in parting:
        axes.axvline(code, color=GREY, linewidth=0.8, linestyle=":", zorder=0)
    finite = np.abs(np.concatenate([values(fmt), values(other)]))
    _powers(axes.yaxis, axes, finite[np.isfinite(finite) & (finite > 0)], most=8)
    ticks = [*range(0, fmt.code_count, fmt.code_count // 8), fmt.code_count - 1]
    axes.set_xticks(ticks, [f"0x{code:02x}" for code in ticks])
    axes.set_xlim(-4, fmt.code_count + 4)
    axes.set_xlabel("code; the right half is negative, and its magnitude is drawn")
    axes.set_title(f"one byte, two formats: {fmt.name} reads {number(ratio)} × {other.name}", loc="left", fontsize=11)
    axes.legend(loc="lower right", fontsize=SMALL, framealpha=0.9)
    _table(beside, fmt, other, parting)


def _table(axes: Any, fmt: Format, other: Format, parting: Any) -> None:
    rows = [[f"0x{c:02x}", number(value_of(int(c), fmt)), number(value_of(int(c), other))] for c in parting]
    heads = ["code", *(f.name.removeprefix("float8_") for f in (fmt, other))]
    axes.set_axis_off()
    axes.set_title("where they part (dotted lines)", loc="left", fontsize=11)
    table = axes.table(rows, colLabels=heads, cellLoc="center", loc="upper center")
    table.auto_set_font_size(False)
    table.set_fontsize(SMALL)
    table.scale(1, 1.25)
