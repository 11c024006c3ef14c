"""How large the numbers of each tensor are, by layer, against what formats hold: what the audit's picture shows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf, log2

import numpy as np

from narrowgauge.checkpoints.codes import top
from narrowgauge.checkpoints.counted import Census
from narrowgauge.checkpoints.histograms import codes_of
from narrowgauge.checkpoints.passports import Passport
from narrowgauge.contracts.formats import FORMATS, format_named
from narrowgauge.reference.codec import values
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
    bound: bool = False  #: of codes and scales apart: no weight is larger, and perhaps none is as small

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
        return () if self.bound else tuple(name for name in SHOWN if self.least <= held_by(name).flushed)


def allowed(passport: Passport, censuses: Mapping[str, Census]) -> Range | None:
    """Between what magnitudes codes and scales of a weight allow it to be; None where they were not counted."""
    scale = _numbers(passport, "scale", censuses)
    second = _numbers(passport, "second", censuses) if "second" in passport.tensors else (1.0, 1.0)
    census = censuses.get(passport.weight.name)
    if scale is None or second is None or census is None or passport.element not in FORMATS:
        return None
    # in the order in which values.combined computes: each rounding is monotone, so no weight comes out beyond the ends
    least, amax = (
        code * (one / passport.scheme.divisor) for code, one in zip(_codes(passport, census), scale, strict=True)
    )
    part = passport.scheme.part("second")
    if part is not None and part.divides:
        least, amax = least / second[1], amax / second[0]
    else:
        least, amax = least * second[0], amax * second[1]
    return Range(passport.weight.name, amax, least, bound=True) if 0 < least <= amax < inf else None


def _numbers(passport: Passport, role: str, censuses: Mapping[str, Census]) -> tuple[float, float] | None:
    """The least and the largest scale that is neither 0 nor infinite."""
    tensor, part = passport.tensors.get(role), passport.scheme.part(role)
    census = None if tensor is None else censuses.get(tensor.name)
    if census is None or part is None:
        return None
    if part.format == "float8_e8m0fnu" and census.codes is not None:
        there = np.flatnonzero(census.codes[:-1])
        return (2.0 ** (int(there[0]) - 127), 2.0 ** (int(there[-1]) - 127)) if there.size else None
    return (float(census.least), float(census.amax)) if census.amax else None


def _codes(passport: Passport, census: Census) -> tuple[float, float]:
    """The least and the largest magnitude of a code that is there; of integers with zero points, that can be."""
    fmt = FORMATS[passport.element]
    if passport.scheme.zeros:  # one that is stored can be any code, and one more where it is stored less 1
        return 1.0, float(fmt.code_count) if "zeros" in passport.tensors else top(passport)
    counts = codes_of(passport, census)
    magnitudes = np.abs(values(fmt))
    there = (magnitudes > 0) & np.isfinite(magnitudes) & (True if counts is None else counts > 0)
    return (float(magnitudes[there].min()), float(magnitudes[there].max())) if there.any() else (1.0, top(passport))


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
