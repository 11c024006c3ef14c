"""The codes of a format that people name, and where a value lies between them."""

from __future__ import annotations

from functools import cache
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.formats import Format
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.reference.codec import WIDEST_TABLE, Values, encode, largest, special_code, unrestricted

#: where an input lies, seen from the destination. A value of the format, a midpoint, or what lies between them; below
#: the smallest normal it is "subnormal range", below the smallest value "below the smallest"
Place = Literal[
    "zero",
    "below the smallest",
    "subnormal range",
    "between values",
    "values of the format",
    "ties",
    "beyond the largest",
    "infinity",
    "NaN",
]
PLACES: tuple[Place, ...] = get_args(Place)
#: to the nearest value; beyond the largest, and of infinity, infinity
EXACT = CastPolicy(overflow="special", infinity="special")


@cache
def top_code(fmt: Format) -> int:
    """The code of the largest finite value, in a format of any width."""
    return special_code(fmt) - 1 if fmt.family == "ieee" else largest(fmt)


def has_subnormals(fmt: Format) -> bool:
    return fmt.family not in ("integer", "exponent") and fmt.mantissa > 0


def smallest_normal(fmt: Format) -> int:
    """The code of the smallest positive value that is not subnormal: of 1 in an integer."""
    if has_subnormals(fmt):
        return 1 << fmt.mantissa
    return 1 if fmt.family == "integer" else 0


def boundaries(fmt: Format) -> npt.NDArray[np.float64]:
    """Every non-negative value of a format, every midpoint, and those of the two places beyond the largest."""
    grid = unrestricted(np.arange(largest(fmt) + 3, dtype=np.int64), fmt)
    return np.unique(np.concatenate([grid, (grid[1:] + grid[:-1]) / 2, [1000.0]]))  # 1000 overflows all of them


def codes_near(reals: Values, fmt: Format, reach: int = 1) -> npt.NDArray[np.uint64]:
    """Codes of non-negative values in a format that has infinities: of the nearest, and so many on either side.

    In ascending order, each once.
    """
    if fmt.bits >= 32:
        with np.errstate(over="ignore"):
            middle = reals.astype(fmt.name).view(fmt.storage).astype(np.int64)
    else:
        middle = encode(reals, fmt, EXACT).astype(np.int64)
    near = middle[:, None] + np.arange(-reach, reach + 1)
    return np.unique(near[(near >= 0) & (near < fmt.code_count)]).astype(np.uint64)


def places(x: Values, fmt: Format) -> npt.NDArray[np.uint8]:
    """Index into ``PLACES`` of each real value, same shape. A destination of more than 19 bits has no table of ties:
    its finite values are "between values" all of them."""
    magnitude = np.abs(x)
    found = np.full(x.shape, PLACES.index("between values"), np.uint8)
    if fmt.bits <= WIDEST_TABLE:
        _among(x, magnitude, fmt, found)
    found[magnitude == 0] = PLACES.index("zero")
    found[np.isinf(x)] = PLACES.index("infinity")
    found[np.isnan(x)] = PLACES.index("NaN")
    return found


def _among(x: Values, magnitude: Values, fmt: Format, found: npt.NDArray[np.uint8]) -> None:
    """Fill in what the table of values and midpoints says."""
    grid = _magnitudes(fmt)
    top = np.full(x.shape, grid[-2])
    if fmt.family == "integer" and fmt.signed:
        top[x < 0] = grid[-1]  # two's complement reaches one further below zero
    below = np.clip(np.searchsorted(grid, magnitude, side="right") - 1, 0, grid.size - 2)
    smallest = grid[1] if grid[0] == 0 else grid[0]
    if has_subnormals(fmt):
        found[magnitude < grid[smallest_normal(fmt)]] = PLACES.index("subnormal range")
    found[magnitude < smallest] = PLACES.index("below the smallest")
    found[magnitude == (grid[below] + grid[below + 1]) / 2] = PLACES.index("ties")
    found[(magnitude == grid[below]) | (magnitude == grid[below + 1])] = PLACES.index("values of the format")
    found[(magnitude > top)] = PLACES.index("beyond the largest")


@cache
def _magnitudes(fmt: Format) -> Values:
    """Every non-negative finite value in ascending order, and the one that would come next."""
    return unrestricted(np.arange(top_code(fmt) + 2, dtype=np.int64), fmt)
