"""The elements of a call that differ: as a table of codes, and as a page."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jinja2
import numpy as np

from narrowgauge import command
from narrowgauge.ci.ledger import Row
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.operations import Cast
from narrowgauge.reference.compare import Difference, compare
from narrowgauge.reference.interval import Expected
from narrowgauge.suites.judging import Judged

TEMPLATES, PAGE = Path(command.__file__).parent / "templates", "mismatches.html.jinja"
#: rows of a table of codes
ROWS = 1000


@dataclass(frozen=True, eq=False)
class Differing:
    """What a kernel was given, what came, what may come, and where the two part."""

    x: Coded
    got: dict[str, Coded]
    want: Expected
    difference: Difference
    elementwise: bool  #: each output element comes of the input element in its place

    @classmethod
    def of(cls, judged: Judged) -> Differing | None:
        """None where nothing differs, or what came has another form than what is wanted."""
        if judged.x is None or judged.outputs is None or judged.want is None or not judged.row.mismatches:
            return None
        difference = compare(judged.outputs, judged.want)
        return cls(judged.x, judged.outputs, judged.want, difference, judged.row.operation == Cast.operation)

    def csv(self) -> str:
        """The first ``ROWS`` elements that differ, in hexadecimal codes."""
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(("output", "index", "kind", "input", "got", "want", "or up to"))
        left = ROWS
        for name in self.want:
            places = np.argwhere(self.difference.mask(name))[:left]
            left -= len(places)
            for place in places:
                writer.writerow(self._line(name, tuple(int(i) for i in place)))
        return text.getvalue()

    def _line(self, name: str, index: tuple[int, ...]) -> Sequence[str]:
        low, high = (_hex(end, index) for end in (self.want[name].low, self.want[name].high))
        given = _hex(self.x, index) if self.elementwise else ""
        kind = self.difference.kind(name, index)
        return (name, " ".join(map(str, index)), kind, given, _hex(self.got[name], index), low, high)


def _hex(tensor: Coded, index: tuple[int, ...]) -> str:
    digits = -(-format_named(tensor.format).bits // 4)
    return f"0x{int(tensor.data[index]):0{digits}x}"


def page(row: Row, left_out: Sequence[str]) -> str:
    """The listed mismatches as a page of HTML, with what could not be attached."""
    return _template().render(row=row, total=sum(row.differences.values()), left_out=left_out)


@cache
def _template() -> jinja2.Template:
    loader = jinja2.FileSystemLoader(TEMPLATES)
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.get_template(PAGE)
