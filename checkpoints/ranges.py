"""How large the numbers of each tensor are, by layer, against what formats hold: what the audit's picture shows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import log2

from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.kv.window import Window, window
from narrowgauge.reference.landmarks import top_code
from narrowgauge.reference.number_line import value_of

#: windows that are drawn, from the widest to the narrowest
SHOWN = ("bfloat16", "float16", "float8_e5m2", "float8_e4m3fn", "float8_e4m3fnuz")
#: a number of a layer; longer ones are none
_NUMBER = re.compile(r"(?<!\d)\d{1,6}(?!\d)", re.ASCII)


@dataclass(frozen=True)
class Range:
    """Magnitudes of one tensor that are neither 0 nor infinite."""

    tensor: str
    amax: float
    least: float

    @property
    def layer(self) -> int | None:
        """The first number in the name: that of the layer, where a model has layers."""
        return layer_of(self.tensor)

    @property
    def beyond(self) -> tuple[str, ...]:
        """Formats whose largest value lies below ``amax``."""
        return tuple(name for name in SHOWN if self.amax > held_by(name).largest)

    @property
    def below(self) -> tuple[str, ...]:
        """Formats in which ``least`` becomes 0."""
        return tuple(name for name in SHOWN if self.least <= held_by(name).flushed)


def held_by(format_name: str) -> Window:
    """The window of a format without a scale."""
    fmt = format_named(format_name)
    return window(fmt.name, value_of(top_code(fmt), fmt), 1.0)


def layer_of(name: str) -> int | None:
    """The number of a tensor's layer: a part of the name that is a number, else the first digits in one of its parts;
    None without any."""
    parts = name.split(".")
    whole = [part for part in parts if _NUMBER.fullmatch(part)]
    inner = [m.group() for part in parts[:-1] if (m := _NUMBER.search(part))]
    found = next(iter([*whole, *inner]), None)
    return None if found is None else int(found)


def ends(ranges: Iterable[Range]) -> tuple[float, float]:
    """Exponents between which everything lies, and the windows of the 16-bit float and of the 8-bit ones."""
    low, high = log2(held_by("float16").flushed), log2(held_by("float16").largest)
    for one in ranges:
        low, high = min(low, log2(one.least)), max(high, log2(one.amax))
    return low, high
