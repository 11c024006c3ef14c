"""What a picture of a format shows, as numbers: its values, what each policy gives near the top, and the same bytes
read as the format's sibling."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import FORMATS, Format
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.reference.codec import Values, decode, unrestricted, values
from narrowgauge.reference.fast_codec import cast, decode_values
from narrowgauge.reference.landmarks import top_code
from narrowgauge.reference.policies import POLICIES

#: codes of each binade that are shown where a format has too many for a picture
PER_BINADE = 8
MOST_CODES = 1024


def shown_codes(fmt: Format) -> npt.NDArray[np.int64]:
    """Codes of positive finite values in ascending order: all of them, or where there are too many, evenly spread ones
    of each binade, the powers of two among the subnormals, and the largest."""
    first, top = 0 if fmt.family == "exponent" else 1, top_code(fmt)
    if top < MOST_CODES:
        return np.arange(first, top + 1, dtype=np.int64)
    stride = (1 << fmt.mantissa) // PER_BINADE
    spread = np.arange(stride, top, stride, dtype=np.int64)
    small = np.int64(1) << np.arange(fmt.mantissa, dtype=np.int64)
    return np.unique(np.concatenate([small, spread, [top]]))


def magnitudes(codes: npt.NDArray[np.int64], fmt: Format) -> Values:
    """The values of codes without a sign; of the grid beyond the largest, for codes beyond it."""
    return unrestricted(codes, fmt)


def spacings(fmt: Format) -> tuple[Values, Values]:
    """The values that are shown, and the distance of each to the next one; of the largest, to the one before it."""
    codes = shown_codes(fmt)
    x = magnitudes(codes, fmt)
    apart = magnitudes(codes + 1, fmt) - x
    apart[-1] = x[-1] - float(magnitudes(codes[-1:] - 1, fmt)[0])
    return x, apart


@dataclass(frozen=True)
class Stretch:
    """An interval of inputs that all become ``gives``. ``tie`` is what the input at its upper end becomes."""

    low: float
    high: float
    gives: float  #: a value, an infinity, or NaN
    tie: float


@dataclass(frozen=True)
class AtTheTop:
    """What named policies give around the largest value, and for infinity and NaN."""

    names: tuple[str, ...]
    stretches: tuple[Stretch, ...]
    of_infinity: float
    of_nan: float


def top_points(fmt: Format) -> list[float]:
    """The last two values, the one that would come next, and the midpoints between and around them, in order."""
    top = top_code(fmt)
    grid = unrestricted(np.arange(top - 2, top + 3, dtype=np.int64), fmt)
    middles = (grid[1:] + grid[:-1]) / 2
    return [float(v) for v in np.sort(np.concatenate([grid[1:-1], middles]))]


def at_the_top(fmt: Format) -> list[AtTheTop]:
    """What each named policy of this format gives, those that agree here together, in the order of the table."""
    groups: dict[str, AtTheTop] = {}
    for name, named in POLICIES.items():
        if fmt.name in named.by_format:
            lane = _at_the_top(fmt, named.by_format[fmt.name])
            same = groups.setdefault(repr(lane), lane)  # a NaN is not equal to itself
            groups[repr(lane)] = replace(same, names=(*same.names, name))
    return list(groups.values())


def _at_the_top(fmt: Format, policy: CastPolicy) -> AtTheTop:
    points = top_points(fmt)
    inside = [(a + b) / 2 for a, b in pairwise(points)]
    given = _cast(inside, fmt, policy)
    ends = _cast(points[1:], fmt, policy)
    found: list[Stretch] = []
    for (low, high), gives, tie in zip(pairwise(points), given, ends, strict=True):
        if found and (found[-1].gives == gives or (np.isnan(found[-1].gives) and np.isnan(gives))):
            low = found.pop().low
        found.append(Stretch(low, high, gives, tie))
    infinity, nan = _cast([np.inf, np.nan], fmt, policy)
    return AtTheTop((), tuple(found), infinity, nan)


def _cast(reals: list[float], fmt: Format, policy: CastPolicy) -> list[float]:
    x = Coded("float64", np.array(reals, np.float64).view(np.uint64))
    return [float(v) for v in decode_values(cast(x, fmt.name, policy))]


def sibling(fmt: Format) -> Format | None:
    """The OCP format of an FNUZ one with the same fields, or the other way round."""
    other = {"ocp": "fnuz", "fnuz": "ocp"}
    for marker in fmt.markers:
        for candidate in FORMATS.values():
            same = (candidate.exponent, candidate.mantissa) == (fmt.exponent, fmt.mantissa)
            if same and other.get(marker) in candidate.markers:
                return candidate
    return None


def parting_codes(one: Format, other: Format) -> tuple[float, npt.NDArray[np.intp]]:
    """The ratio of most values of the two for one code, and the codes for which it does not hold. Zero fits any."""
    mine, its = values(one), values(other)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = mine / its
    usual = float(np.median(ratios[np.isfinite(ratios) & (its != 0)]))
    alike = (mine == usual * its) & (np.signbit(mine) == np.signbit(its))
    return usual, np.flatnonzero(~alike)


def value_of(code: int, fmt: Format) -> float:
    return float(decode(np.array([code], fmt.storage), fmt)[0])
