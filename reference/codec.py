"""Decode and encode by definition: the value of every code, and a search in that table.

This is the form to read and to check against a specification. ``fast_codec`` computes the same by integer
operations and is proved equal to this one (suites/meta/test_reference.py).
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import Codes, Format
from narrowgauge.contracts.policy import CastPolicy

Values = npt.NDArray[np.float64]
#: float64 holds every value and every midpoint of these formats exactly; a wider table would not fit in memory
WIDEST_TABLE = 16


def decode(codes: Codes, fmt: Format) -> Values:
    """float64 value of each code, same shape. Exact: every format here is narrower than float64."""
    code = codes.astype(np.int64)
    field = (code >> fmt.mantissa) & ((1 << fmt.exponent) - 1)
    fraction = code & ((1 << fmt.mantissa) - 1)
    value = unrestricted(code & (fmt.sign_bit - 1), fmt)
    value = np.where(code & fmt.sign_bit, -value, value)
    top = field == (1 << fmt.exponent) - 1
    match fmt.family:
        case "ieee":
            value = np.where(top, np.where(fraction == 0, np.copysign(np.inf, value), np.nan), value)
        case "fn":
            value = np.where(top & (fraction == (1 << fmt.mantissa) - 1), np.nan, value)
        case "fnuz":
            value = np.where(code == fmt.sign_bit, np.nan, value)
    return value


def unrestricted(magnitude: npt.NDArray[np.int64], fmt: Format) -> Values:
    """The value of a code without its sign, if no code were special: the grid goes on beyond the largest finite."""
    field = magnitude >> fmt.mantissa
    fraction = magnitude & ((1 << fmt.mantissa) - 1)
    normal = np.ldexp((1 << fmt.mantissa) + fraction, field - fmt.bias - fmt.mantissa)
    subnormal = np.ldexp(fraction.astype(np.float64), 1 - fmt.bias - fmt.mantissa)
    return np.where(field > 0, normal, subnormal)


@cache
def values(fmt: Format) -> Values:
    """float64 value of every code of a format of at most 16 bits, indexed by code."""
    if fmt.bits > WIDEST_TABLE:
        raise BadInput(f"{fmt.name} has 2^{fmt.bits} codes; a table is made for at most 2^{WIDEST_TABLE}")
    table = decode(np.arange(fmt.code_count, dtype=fmt.storage), fmt)
    table.flags.writeable = False
    return table


@cache
def largest(fmt: Format) -> int:
    """The code of the largest finite value. Codes of non-negative finite values are 0 to this, in ascending order."""
    return int(np.flatnonzero(np.isfinite(values(fmt)[: fmt.sign_bit]))[-1])


@cache
def nan_code(fmt: Format) -> int:
    """The format's NaN: the quiet one without a payload in IEEE layouts, else the only one with the sign clear."""
    if fmt.family == "ieee":
        return (((1 << fmt.exponent) - 1) << fmt.mantissa) | (1 << (fmt.mantissa - 1))
    return int(np.flatnonzero(np.isnan(values(fmt)))[0])


@cache
def special_code(fmt: Format) -> int:
    """What overflow gives in a policy of ``special``: infinity, or NaN in a format without one."""
    infinite = np.flatnonzero(np.isinf(values(fmt)))
    return int(infinite[0]) if infinite.size else nan_code(fmt)


def has_negative_zero(fmt: Format) -> bool:
    """Whether the code of the sign alone is -0."""
    return fmt.family != "fnuz"


def allowed_top(fmt: Format, policy: CastPolicy) -> int:
    """The code of the largest magnitude that the policy allows."""
    if policy.limit is None:
        return largest(fmt)
    return int(np.flatnonzero(values(fmt)[: fmt.sign_bit] == policy.limit)[0])


def encode(x: npt.NDArray[np.floating], fmt: Format, policy: CastPolicy) -> Codes:
    """Codes of real values, same shape, for a destination of at most 16 bits. One rounding, from the exact value."""
    with np.errstate(invalid="ignore"):  # a signalling NaN is quieted on its way to float64; its class is all we need
        x = np.asarray(x, np.float64)
    magnitude, negative = np.abs(x), np.signbit(x)
    top = allowed_top(fmt, policy)
    # 1. The two neighbours on the grid, which has one value more than the policy allows.
    grid = unrestricted(np.arange(top + 2, dtype=np.int64), fmt)
    below = np.clip(np.searchsorted(grid, magnitude, side="right") - 1, 0, top)
    # 2. The rounded magnitude, as an index into the grid, which is its code.
    code = below + _rounds_up(magnitude, grid, below, negative, policy)
    # 3. Subnormal results, where the policy flushes them.
    if policy.subnormals == "flush":
        code = np.where(code < (1 << fmt.mantissa), 0, code)
    # 4. What lies beyond the largest allowed magnitude.
    special = special_code(fmt)
    overflowed = (code > top) | ((magnitude >= grid[-1]) & np.isfinite(magnitude))
    code = np.where(overflowed, special if policy.overflow == "special" else top, code)
    code = np.where(np.isinf(magnitude), special if policy.infinity == "special" else top, code)
    # 5. The sign: not on a zero that cannot have it or must lose it.
    signed_zero = has_negative_zero(fmt) and policy.negative_zero == "keep"
    code = np.where(negative & ((code > 0) | signed_zero), code | fmt.sign_bit, code)
    # 6. NaN.
    of_nan = {"nan": nan_code(fmt), "max": top, "zero": 0}[policy.nan]
    return np.where(np.isnan(x), of_nan, code).astype(fmt.storage)


def _rounds_up(
    magnitude: Values,
    grid: Values,
    below: npt.NDArray[np.intp],
    negative: npt.NDArray[np.bool_],
    policy: CastPolicy,
) -> npt.NDArray[np.bool_]:
    """Whether each magnitude goes to the upper of its two neighbours."""
    middle = (grid[below] + grid[below + 1]) / 2
    inexact = magnitude > grid[below]
    up: npt.NDArray[np.bool_]
    match policy.rounding:
        case "nearest_even":
            up = (magnitude > middle) | ((magnitude == middle) & (below % 2 == 1))
        case "nearest_away":
            up = magnitude >= middle
        case "nearest_zero":
            up = magnitude > middle
        case "toward_zero":
            up = np.zeros(magnitude.shape, np.bool_)
        case "up":
            up = inexact & ~negative
        case "down":
            up = inexact & negative
    return up
