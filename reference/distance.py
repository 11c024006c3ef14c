"""How far wrong codes are off, and how many codes are at the end of their range: the figures of a nightly report."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import Format, format_named
from narrowgauge.reference.compare import CLASS, Difference
from narrowgauge.reference.interval import Expected
from narrowgauge.reference.landmarks import top_code

#: formats of at most so many bits are narrow: that they saturate is worth counting
NARROW = 8
#: the widest whose codes, and their distances, int64 holds
WIDEST = 32


def figures(got: Mapping[str, Coded], want: Expected, difference: Difference) -> dict[str, int]:
    """``saturated``: codes of narrow outputs at the largest or lowest value of their format, right or wrong.
    ``ulp``: of the elements that differ by value, scales apart, the largest number of codes between what came and what
    may come; left out where none does."""
    found = {"saturated": sum(saturated(output) for output in got.values())}
    apart = [_farthest(name, got[name], want, difference) for name in want]
    if known := [steps for steps in apart if steps is not None]:
        found["ulp"] = max(known)
    return found


def saturated(output: Coded) -> int:
    """Elements of a narrow output that are its format's largest or lowest finite value; of a wide one, 0. A format of
    scales alone (E8M0) has no largest that anything is clipped to."""
    fmt = format_named(output.format)
    if fmt.bits > NARROW or fmt.family == "exponent":
        return 0
    top = top_code(fmt)
    lowest = fmt.sign_bit if fmt.family == "integer" else top | fmt.sign_bit
    return int(np.count_nonzero((output.data == top) | (output.data == lowest)))


def _farthest(name: str, got: Coded, want: Expected, difference: Difference) -> int | None:
    """The most codes between an element and the nearer end of what may come; None where none differs by value."""
    fmt = format_named(got.format)
    places = difference.classes[name] == CLASS["value"]
    if fmt.bits > WIDEST or not got.well_formed or not places.any():
        return None
    mine, low, high = (codes.data[places] for codes in (got, want[name].low, want[name].high))
    at, down, up = (rank(codes, fmt) for codes in (mine, low, high))
    return int(np.maximum(down - at, at - up).max(initial=0))


def is_finite(codes: npt.NDArray[np.unsignedinteger], fmt: Format) -> npt.NDArray[np.bool_]:
    """Whether each code is a finite number, by the code of the largest; an integer always is."""
    if fmt.family == "integer":
        return np.ones(codes.shape, np.bool_)
    if fmt.family == "fnuz":
        return np.asarray(codes != fmt.sign_bit)
    magnitude = codes.astype(np.int64) & ~fmt.sign_bit
    return np.asarray(magnitude <= top_code(fmt))


def rank(codes: npt.NDArray[np.unsignedinteger], fmt: Format) -> npt.NDArray[np.int64]:
    """The place of each finite code in the order of values; neighbours are one apart, and both zeros are at 0."""
    code = codes.astype(np.int64)
    if fmt.family == "integer":
        return np.where(code & fmt.sign_bit, code - fmt.code_count, code)
    magnitude = code & ~fmt.sign_bit
    return np.where(code & fmt.sign_bit, -magnitude, magnitude)
