"""Where the marks of the audit's pictures stand, in the units of their SVG; the template draws them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, floor, log2
from typing import Any

from narrowgauge.checkpoints.histograms import Histogram, by_pattern
from narrowgauge.checkpoints.ranges import SHOWN, Range, ends, held_by
from narrowgauge.checkpoints.report import Report, pattern_of
from narrowgauge.command.audit_words import plain

#: the picture of ranges: its size, where its plot begins and ends, and bars of the windows at its right
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 1000, 520, 62, 820, 16, 460
BAR, GAP = 22, 12
#: numbers along the axes, at most; marks of a layer; names that are written beside marks
TICKS, LAYERS, NAMED = 12, 24, 8
#: digits and a sign as an exponent
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
#: histograms of codes, at most
HISTOGRAMS = 24
#: letters of a name beside a mark, and the height of its line
LETTERS, LINE = 44, 15


def ranges(report: Report) -> dict[str, Any] | None:
    """Magnitudes of the model's tensors by layer. None where nothing was counted."""
    found = _by_layer(report.ranges)
    if not found:
        return None
    low, high = _axis(report.ranges)
    scale = (BOTTOM - TOP) / (high - low)

    def y(exponent: float) -> float:
        return round(BOTTOM - (min(max(exponent, low), high) - low) * scale, 1)

    asked = _asked(report)
    layers = sorted({key for key, _ in found}, key=lambda n: (n is not None, n or 0))
    slot = (RIGHT - LEFT - 16) / len(layers)
    marks: list[dict[str, Any]] = []
    for place, layer in enumerate(layers):
        mine = [one for (key, _), one in found.items() if key == layer]
        each = slot / (len(mine) + 1)
        width = max(0.8, min(6.0, each * 0.6))
        for number, one in enumerate(mine):
            marks.append(_mark(one, LEFT + 8 + place * slot + (number + 1) * each - width / 2, width, y, asked))
    step = next(s for s in (1, 2, 4, 8, 16, 32, 64) if (high - low) / s <= TICKS)
    every = max(1, ceil(len(layers) / LAYERS))
    return {
        "width": WIDTH, "height": HEIGHT, "left": LEFT, "right": RIGHT, "bottom": BOTTOM,
        "ticks": [
            {"y": y(e), "text": f"2{str(e).translate(RAISED)}"}
            for e in range(ceil(low / step) * step, floor(high) + 1, step)
        ],
        "layers": [
            {"x": round(LEFT + 8 + (n + 0.5) * slot, 1), "text": "–" if layer is None else str(layer)}
            for n, layer in enumerate(layers) if n % every == 0
        ],
        "windows": [_window(n, name, y, name in asked) for n, name in enumerate(SHOWN)],
        "marks": marks, "labels": _labels(marks), "caption": _caption(asked, any(one.bound for one in found.values())),
    }  # fmt: skip


def _by_layer(found: Iterable[Range]) -> dict[tuple[int | None, str], Range]:
    """One for all tensors of a layer whose names differ by numbers alone: the experts of a layer."""
    same: dict[tuple[int | None, str], Range] = {}
    for one in found:
        key = (one.layer, pattern_of(one.tensor))
        other = same.get(key)
        if other is None:
            same[key] = one
        else:
            largest = one.tensor if one.amax > other.amax else other.tensor
            ends_of = (max(one.amax, other.amax), min(one.least, other.least))
            same[key] = Range(largest, *ends_of, one.bound or other.bound)
    return same


def _axis(found: Sequence[Range]) -> tuple[float, float]:
    low, high = ends(found)
    return floor(low) - 1, ceil(high) + 1


def _asked(report: Report) -> tuple[str, ...]:
    """The formats whose windows count: those of casts that were asked for, else float16's."""
    formats = [d.format for d in report.asked.to if d.how == "cast"]
    return tuple(f for f in formats if f in SHOWN) or (() if report.asked.to else ("float16",))


def _mark(one: Range, x: float, width: float, y: Any, asked: Sequence[str]) -> dict[str, Any]:
    beyond = [f for f in one.beyond if f in asked]
    below = [f for f in one.below if f in asked]
    top, bottom = y(log2(one.amax)), y(log2(one.least))
    said = f"{plain(one.tensor)}: {one.least:.3g} to {one.amax:.6g}"
    said += f"; beyond {', '.join(beyond)}" if beyond else ""
    said += f"; the least becomes 0 in {', '.join(below)}" if below else ""
    return {
        "x": round(x, 1), "width": round(width, 1), "top": top, "height": round(max(1.0, bottom - top), 1),
        "css": "beyond" if beyond else "below" if below else "", "title": said, "name": plain(one.tensor),
        "reach": log2(one.amax),
    }  # fmt: skip


def _window(number: int, name: str, y: Any, asked: bool) -> dict[str, Any]:
    held = held_by(name)
    low, high = log2(held.flushed), log2(held.largest)
    top, bottom = y(high), y(low)
    inside = [end for end in (high, low) if y(end) not in (TOP, BOTTOM)]
    return {
        "x": RIGHT + 14 + number * (BAR + GAP), "width": BAR, "top": top, "bottom": bottom,
        "ends": [y(end) for end in inside], "name": name.removeprefix("float8_"), "asked": asked,
        "text_y": round(max((top + bottom) / 2 + 30, top + 62), 1),
        "title": f"{name}: largest {held.largest:.6g}; at most {held.flushed:.3g} becomes 0",
    }  # fmt: skip


def _labels(marks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Names of the marks that lie outside, the largest first, none over another."""
    outside = sorted((m for m in marks if m["css"]), key=lambda m: (m["css"] != "beyond", -m["reach"]))[:NAMED]
    taken: list[float] = []
    labels = []
    for mark in outside:
        at = mark["top"] + 4 if mark["css"] == "beyond" else mark["top"] + mark["height"] - 4
        right = mark["x"] < (LEFT + RIGHT) / 2
        while any(abs(at - other) < LINE for other in taken):
            at += LINE if mark["css"] == "beyond" else -LINE
        taken.append(at)
        edge = mark["x"] + mark["width"] + 2 if right else mark["x"] - 2
        name = mark["name"] if len(mark["name"]) <= LETTERS else f"…{mark['name'][1 - LETTERS :]}"
        labels.append(
            {
                "x": edge + (14 if right else -14),
                "y": round(at, 1),
                "anchor": "start" if right else "end",
                "text": name,
                "css": mark["css"],
                "x0": edge,
                "y0": mark["top"] if mark["css"] == "beyond" else mark["top"] + mark["height"],
            }
        )
    return labels


def _caption(asked: Sequence[str], bounds: bool) -> str:
    what = (
        "Each bar is a tensor, from its least magnitude that is not 0 to its largest; experts of a layer are one bar."
    )
    allowed = " Of quantized weights it is what their codes and scales allow." if bounds else ""
    held = "At the right, what each format holds without a scale; the line of its ends goes across."
    against = f" Red reaches beyond {' or '.join(asked)}; amber has numbers that become 0 there." if asked else ""
    return f"{what}{allowed} {held}{against}"


def histograms(report: Report) -> list[dict[str, Any]]:
    """How often each code occurs, of quantized tensors whose names differ by numbers alone."""
    pattern = {p.module: pattern_of(p.module) for p in report.taken}
    found = by_pattern(report.taken, report.censuses, pattern)
    return [_histogram(name, one) for (name, _), one in list(found.items())[:HISTOGRAMS]]


def _histogram(name: str, one: Histogram) -> dict[str, Any]:
    shown = list(zip(one.codes, one.numbers, one.counts, strict=True))
    most = log2(1 + max([*one.counts, one.nan]))
    width = 320 / (len(shown) + (8 if one.nan else 0))
    last = max(abs(n) for n in one.numbers)
    bars = []
    for place, (code, number, count) in enumerate(shown):
        if count:
            title = f"{number:g} ({code:#04x}): {count:,}"
            bars.append(_bar(place * width, width, count, most, "last" if abs(number) == last else "", title))
    if one.nan:
        bars.append(_bar(320 - 6 * width, 6 * width, one.nan, most, "nan", f"NaN: {one.nan:,}"))
    said = f"{one.format}: {one.total:,} codes, {_part(one.at_the_ends, one.total)} at the ends"
    if one.nan:
        said += f", {one.nan:,} NaN"
    return {
        "name": plain(name), "said": said, "bars": bars, "first": f"{one.numbers[0]:g}", "last": f"{one.numbers[-1]:g}",
    }  # fmt: skip


def _bar(x: float, width: float, count: int, most: float, css: str, title: str) -> dict[str, Any]:
    height = round(100 * log2(1 + count) / most, 1)
    sizes = {"x": round(x, 2), "width": round(width * 0.9, 2), "y": round(110 - height, 1), "height": height}
    return {**sizes, "css": css, "title": title}


def _part(count: int, total: int) -> str:
    return f"{100 * count / total:.2g} %" if count else "none"
