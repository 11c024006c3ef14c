"""Writes the second half of docs/layouts.md, from the declarations."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from narrowgauge.contracts.layout import Layout
from narrowgauge.reference.layouts import LAYOUTS, ZERO_POINTS
from narrowgauge.reference.layouts.mapping import in_memory_order
from narrowgauge.suites.meta.pages import Page

#: characters of a picture's line
WIDTH = 120


def fields(layout: Layout, rows: int, columns: int) -> Iterator[list[str]]:
    """Per element of memory, the codes in it, the highest bits first: ``row,column``, and [high:low] of a part."""
    index = np.arange(rows * columns).reshape(rows, columns)
    for word in in_memory_order(index, layout):
        at = {bit: (int(code), i) for code, slot in zip(word, layout.word, strict=True) for i, bit in enumerate(slot)}
        for start in range(0, 8 * layout.word_bytes, 8 * layout.element_bytes):
            found: list[list[int]] = []  # code, high, low
            for bit in reversed(range(start, start + 8 * layout.element_bytes)):
                code, i = at[bit]
                if found and found[-1][0] == code and found[-1][2] == i + 1:
                    found[-1][2] = i
                else:
                    found.append([code, i, i])
            yield [f"{code // columns},{code % columns}{_part(high, low, layout.bits)}" for code, high, low in found]


def _part(high: int, low: int, bits: int) -> str:
    if high - low == bits - 1:
        return ""
    return f"[{high}]" if high == low else f"[{high}:{low}]"


def picture(layout: Layout) -> str:
    """The first elements of memory, as many on a line as fit."""
    several = len(layout.word) > 1
    shown = 32 if not several else 16 if layout.element_bytes == 1 else 4
    elements = [" ".join(codes) for codes in fields(layout, *_two_tiles(layout))][:shown]
    width, joint = max(len(text) for text in elements), " | " if several else "  "
    line = max(n for n in (1, 2, 4, 8, 16) if n * (width + len(joint)) <= WIDTH or n == 1)
    cut = [elements[i : i + line] for i in range(0, len(elements), line)]
    return "\n".join(joint.join(text.ljust(width) for text in group).rstrip() for group in cut)


def _two_tiles(layout: Layout) -> tuple[int, int]:
    rows, columns = _multiple(layout)
    return 2 * rows, 2 * columns


def section(layout: Layout) -> str:
    """One layout: who uses it, its declaration, its padding, the picture."""
    padded = [f"{what} to {n}" for what, n in zip(("rows", "columns"), _multiple(layout), strict=True) if n > 1]
    padding = {
        "zero": f"{' and '.join(padded)}, with 0",
        "unwritten": f"{' and '.join(padded)}, left unwritten",
        "refused": "none; " + (f"must divide: {' and '.join(padded)}" if padded else "any size"),
    }[layout.padding]
    return "\n".join(
        [
            f"### {layout.name}",
            "",
            f"{layout.holds} of {layout.bits} bits in {layout.storage_dtype}. Padding: {padding}.",
            "",
            *(f"* used by {user}" for user in layout.users),
            f"* source: {layout.source}",
            f"* row = `{layout.rows}`, column = `{layout.columns}`, memory = `{', '.join(layout.storage)}`"
            + (f", in a word `{layout.slots}`" if layout.slots else ""),
            "",
            "```text",
            picture(layout),
            "```",
            "",
        ]
    )


def _multiple(layout: Layout) -> tuple[int, int]:
    found = [math.prod(digit.size or 1 for digit in of) for of in (layout.row_digits, layout.column_digits)]
    return math.lcm(found[0], layout.align[0]), math.lcm(found[1], layout.align[1])


def zero_points() -> str:
    """The table of zero-point conventions."""
    lines = ["## Zero points", "", "| convention | stored for a zero point z | z | source |", "|---|---|---|---|"]
    for z in ZERO_POINTS.values():
        stored = f"z {'+' if z.offset >= 0 else '-'} {abs(z.offset)}" if z.offset else "z"
        span = f"{z.lowest} to {z.highest}"
        if z.constant is not None:
            stored, span = "nothing", str(z.constant)
        lines.append(f"| {z.name} | {stored} | {span} | {z.source} |")
    return "\n".join(lines) + "\n"


def below() -> str:
    """All that stands below the mark."""
    return "\n" + "\n".join(section(layout) for layout in LAYOUTS.values()) + "\n" + zero_points()


PAGE = Page("layouts.md", "layout_pages", below)

if __name__ == "__main__":
    PAGE.write()
