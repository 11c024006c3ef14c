"""How smooth the density of numbers is if codes are read with a format's spacing."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.formats import FORMATS
from narrowgauge.reference.codec import values
from narrowgauge.reference.landmarks import top_code

Histogram = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

#: a code tells something if it stands there so often
OFTEN = 16
#: a density may leave the straight line between its neighbours by so much, as a logarithm: bell curves do, and sources
#: of few bits that meet a power of two for scale
BENT = 0.1


def roughness(codes: Histogram, name: str) -> tuple[float, int]:
    """The sum of squares by which the logarithm of the density leaves straight lines between next neighbours.

    Each is divided by the variance that counting gives it (1 / n of a count n) and ``BENT`` squared. Second: how many.
    """
    total, count = 0.0, 0
    for line, real in _lines(name):
        often = codes[line].astype(np.float64)
        density = np.log(np.maximum(often[1:-1], 1) / ((real[2:] - real[:-2]) / 2))
        squares = _squares(real[1:-1], density, often[1:-1])
        total, count = total + float(squares.sum()), count + squares.size
    return total, count


def _squares(real: Reals, density: Reals, often: Reals) -> Reals:
    """Of each code that stands there often, as do its neighbours."""
    enough = often >= OFTEN
    at = np.flatnonzero(enough[1:-1] & enough[:-2] & enough[2:]) + 1
    part = (real[at + 1] - real[at]) / (real[at + 1] - real[at - 1])  # of the neighbour below
    off = density[at] - part * density[at - 1] - (1 - part) * density[at + 1]
    variance = 1 / often[at] + part**2 / often[at - 1] + (1 - part) ** 2 / often[at + 1] + BENT**2
    squares: Reals = off**2 / variance
    return squares


@cache
def _lines(name: str) -> list[tuple[npt.NDArray[np.int64], Reals]]:
    """Codes in the order of their values, and these, of each sign.

    Without zero, of which data may have any number, and without the largest, to which what lies beyond is held.
    """
    fmt = FORMATS[name]
    real = values(fmt)
    order = np.argsort(real, kind="stable").astype(np.int64)
    top = real[top_code(fmt)]
    signs = (order[(real[order] > 0) & (real[order] < top)], order[(real[order] < 0) & (real[order] > -top)])
    return [(codes, real[codes]) for codes in signs]
