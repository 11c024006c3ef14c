"""Where a format holds numbers under a scale."""

from __future__ import annotations

from dataclasses import dataclass

from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.landmarks import has_subnormals, smallest_normal
from narrowgauge.reference.number_line import value_of


@dataclass(frozen=True)
class Window:
    """Magnitudes: ``flushed`` at most become 0; below ``normal`` precision is lost; above ``largest`` they are clipped
    or lost."""

    flushed: float
    normal: float
    largest: float


def window(format_name: str, bound: float, scale: float) -> Window:
    """The window of a format whose largest value in use is ``bound``. A tie with 0 goes to 0."""
    fmt = format_named(format_name)
    smallest, normal = value_of(1, fmt), value_of(smallest_normal(fmt), fmt)
    return Window(smallest / 2 * scale, (normal if has_subnormals(fmt) else smallest) * scale, bound * scale)
