"""Tables and texts for a screen of any width, or for a file. What a user gave is printed as it is: no markup, and no
name, id or value is ever cut.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

#: columns of a file or a pipe
PIPED_WIDTH = 160
#: letters of a reason; an exception's text can be a megabyte
LONGEST = 120
GAP = "  "
INDENT = 4
#: a text beside a table needs that many columns, else it stands below its row
NARROWEST_TEXT = 36


def on_screen() -> bool:
    """Whether a width that was found is somebody's: that of a terminal, or one that they set."""
    return sys.stdout.isatty() or "COLUMNS" in os.environ


class _Screen(Console):
    """rich ends a program with 1 where "| head" has seen enough, and 1 says here that something is wrong."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def screen(file: TextIO | None = None, width: int | None = None, colour: bool | None = None) -> Console:
    """A console that prints texts as they are. A file or a pipe is ``PIPED_WIDTH`` wide."""
    if width is None and not on_screen():
        width = PIPED_WIDTH
    plain = None if colour is None else not colour
    return _Screen(
        file=file, width=width, force_terminal=colour, no_color=plain, highlight=False, markup=False, emoji=False
    )


def brief(text: str) -> str:
    """The first line of a reason, as much of it as fits into a line of a table."""
    first = next(iter(text[: 10 * LONGEST].strip().splitlines()), "")
    return first if len(first) <= LONGEST else f"{first[: LONGEST - 1].rstrip()}…"


@dataclass(frozen=True)
class Line:
    """A row of a ``Grid``: its cells, and a text that says more."""

    cells: Sequence[Text]
    note: str = ""


@dataclass
class Grid:
    """A table whose cells are never cut and never broken.

    What is too wide for the screen gives way in this order: the optional column, the notes, which then stand folded
    below their rows, the first column, which then stands above its rows, and the last columns, which join the notes.
    """

    title: str
    headings: Sequence[str]
    note: str = ""  #: heading of the notes
    optional: str = ""  #: the heading of a column that a narrow screen does without
    optional_from: int = 0  #: and the width from which it is shown
    beside_from: int = 0  #: the width from which notes may stand beside their rows
    lines: list[Line] = field(default_factory=list)

    def texts(self, width: int) -> list[Text]:
        """The table in lines of at most so many columns, a name that is wider than the screen apart."""
        if self.optional in self.headings and not self._all_fit(width):
            return self._without(self.optional).texts(width)
        widths = self._widths()
        above = _total(widths) > width
        shift = 2 if above else 0
        first = 1 if above else 0
        count = len(widths)
        while count > first + 1 and _total(widths[first:count]) + shift > width:
            count -= 1
        room = width - shift - _total(widths[first:count]) - len(GAP)
        beside = not above and width >= self.beside_from and room >= min(self._longest_note, NARROWEST_TEXT)
        texts = [Text(self.title, "italic")] if self.title else []
        texts += self._head(widths, first, count, beside)
        last = None
        for line in self.lines:
            if above and (name := line.cells[0]) != last:
                texts.append(name)
                last = name
            row = Text(" " * shift) + _row(line.cells[first:count], widths[first:count])
            notes = folded(line.note, room if beside else width - INDENT)
            if beside and notes:
                start = _total(widths[first:count]) + len(GAP)
                row.pad_right(start - row.cell_len)
                texts += [row + notes[0], *(Text(" " * start) + note for note in notes[1:])]
                continue
            rest = [f"{h}: {c.plain}" for h, c in zip(self.headings[count:], line.cells[count:], strict=True)]
            texts.append(row)
            texts += [Text(" " * INDENT) + t for t in (*folded(", ".join(rest), width - INDENT), *notes)]
        for text in texts:
            text.rstrip()
        return texts

    @property
    def width(self) -> int:
        """Columns that the table takes without its notes."""
        return _total(self._widths())

    @property
    def _longest_note(self) -> int:
        return max((cell_len(line.note) for line in self.lines), default=0)

    def _all_fit(self, width: int) -> bool:
        if width < self.optional_from:
            return False
        note = min(self._longest_note, NARROWEST_TEXT)
        return _total(self._widths()) + (note + len(GAP) if note else 0) <= width

    def _without(self, heading: str) -> Grid:
        place = list(self.headings).index(heading)

        def others(cells: Sequence[Text]) -> list[Text]:
            return [*cells[:place], *cells[place + 1 :]]

        headings = [h for h in self.headings if h != heading]
        lines = [Line(others(line.cells), line.note) for line in self.lines]
        return Grid(self.title, headings, self.note, "", 0, self.beside_from, lines)

    def _widths(self) -> list[int]:
        columns = zip(*(line.cells for line in self.lines), strict=True) if self.lines else ([] for _ in self.headings)
        return [
            max(cell_len(heading), *(cell.cell_len for cell in cells), 0)
            for heading, cells in zip(self.headings, columns, strict=True)
        ]

    def _head(self, widths: Sequence[int], first: int, count: int, beside: bool) -> list[Text]:
        heads = [Text(h, "bold") for h in self.headings]
        row = Text("  " if first else "") + _row(heads[first:count], widths[first:count])
        if beside and self.note and self._longest_note:
            row.pad_right(_total(widths[:count]) + len(GAP) - row.cell_len)
            row += Text(self.note, "bold")
        return [*heads[:first], row]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * max(len(widths) - 1, 0)


def _row(cells: Sequence[Text], widths: Sequence[int]) -> Text:
    row = Text()
    for place, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        row += Text(GAP if place else "") + cell + Text(" " * (width - cell.cell_len))
    return row


def facts(pairs: Iterable[tuple[str, str]], width: int, indent: int = 2) -> list[Text]:
    """Names and what is said of them, the longer ones folded beside their names."""
    kept = list(pairs)
    start = indent + max(cell_len(name) for name, _ in kept) + len(GAP)
    texts = []
    for name, said in kept:
        lines = folded(said, max(width - start, INDENT)) or [Text()]
        texts.append(Text(f"{' ' * indent}{name}".ljust(start)) + lines[0])
        texts += [Text(" " * start) + line for line in lines[1:]]
    return texts


def folded(text: str, width: int) -> list[Text]:
    """A text in lines, broken between words; a word that is wider than the screen is left to the terminal."""
    lines: list[str] = []
    for word in re.findall(r"\s*\S+", text):
        if lines and cell_len(lines[-1]) + cell_len(word) <= width:
            lines[-1] += word
        else:
            lines.append(word.lstrip())
    return [Text(line) for line in lines]


def show(console: Console, texts: Sequence[Text | str]) -> None:
    """Print lines as they are; what is too long is left to the terminal, which does not break a name that is copied."""
    for text in texts:
        console.print(text if isinstance(text, Text) else Text(text), soft_wrap=True)
