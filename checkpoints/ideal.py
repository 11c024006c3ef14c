"""What the nearest quantization of the original would keep: the measure of what a correct one may lose.

Each group is scaled so that its largest magnitude is the largest code, and each number goes to the nearest code. That
is no recipe of any tool: scales are not rounded, but where they are exponents. Tools that search for scales come out up
to some decibels better or worse; no mistake in how bytes are read does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from narrowgauge.checkpoints.passports import Passport
from narrowgauge.contracts.formats import FORMATS, Format
from narrowgauge.reference.codec import values

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Grid:
    """Numbers that a code can be, and how a group is scaled to them."""

    numbers: tuple[float, ...]  #: ascending
    powers: bool = False  #: scales are powers of two
    between: bool = False  #: from the least to the largest of a group, with a zero point


def _integers(bits: int, between: bool = False) -> Grid:
    half = 1 << (bits - 1)
    return Grid(tuple(map(float, range(-half, half))), between=between)


#: bits, whether there is a minimum, columns of a scale
_GGUF = {
    "gguf_q8_0": (8, False, 32), "gguf_q4_0": (4, False, 32), "gguf_q4_1": (4, True, 32), "gguf_q5_0": (5, False, 32),
    "gguf_q5_1": (5, True, 32), "gguf_q2_k": (2, True, 16), "gguf_q3_k": (3, False, 16), "gguf_q4_k": (4, True, 32),
    "gguf_q5_k": (5, True, 32), "gguf_q6_k": (6, False, 16),
}  # fmt: skip


@cache
def _of_format(fmt: Format, powers: bool) -> Grid:
    every = values(fmt)
    return Grid(tuple(np.unique(every[np.isfinite(every)]).tolist()), powers)


def grid_of(passport: Passport) -> tuple[Grid, int, int]:
    """What codes can be, and rows and columns of a scale (0 for all)."""
    scheme = passport.scheme
    if scheme.name in _GGUF:
        bits, between, columns = _GGUF[scheme.name]
        return _integers(bits, between), 1, columns
    cutting = passport.cutting
    rows, columns = (cutting.rows, cutting.columns) if cutting else (0, 0)
    if passport.element in ("uint4", "uint8", "int4", "int8"):
        return _integers(FORMATS[passport.element].bits, "zeros" in passport.tensors), rows, columns
    scale = scheme.part("scale")
    powers = scale is None or scale.format == "float8_e8m0fnu"
    return _of_format(FORMATS[passport.element], powers), rows, columns


def nearest(x: Values, passport: Passport, amax: float) -> Values:
    """x [rows, K] quantized and back. ``amax``: the largest magnitude of the matrix, for one scale over all of it."""
    grid, rows, columns = grid_of(passport)
    numbers = np.asarray(grid.numbers)
    top = (numbers[-1] - numbers[0]) / 2  # of integers half a step beyond the largest: the lowest has one more
    if (rows, columns) == (0, 0):
        low, high = np.full((1, 1), -amax), np.full((1, 1), amax)
    else:
        low, high = _extremes(x, rows, columns)
    with np.errstate(divide="ignore", invalid="ignore"):
        if grid.between:
            low, high = np.minimum(low, 0), np.maximum(high, 0)
            scale = (high - low) / (numbers[-1] - numbers[0])
            zero = np.round(numbers[0] - low / scale)
        else:
            scale, zero = np.maximum(high, -low) / top, np.zeros((1, 1))
        if grid.powers:  # the exponent of the largest magnitude is that of the largest code
            scale = np.exp2(np.floor(np.log2(scale * top)) - np.floor(np.log2(top)))
        code = x / scale + zero
        at = np.searchsorted((numbers[1:] + numbers[:-1]) / 2, np.nan_to_num(code))
        return np.where(scale > 0, (numbers[at] - zero) * scale, 0.0)


def _extremes(x: Values, rows: int, columns: int) -> tuple[Values, Values]:
    """Least and largest of each group, spread over x again."""
    down = range(0, x.shape[0], rows or x.shape[0])
    across = range(0, x.shape[1], columns or x.shape[1])
    found = []
    for how in (np.minimum, np.maximum):
        each = how.reduceat(how.reduceat(x, down, axis=0), across, axis=1)
        each = each.repeat(rows or x.shape[0], axis=0)[: x.shape[0]]
        found.append(each.repeat(columns or x.shape[1], axis=1)[:, : x.shape[1]])
    return found[0], found[1]
