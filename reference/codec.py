"""Decode and encode by definition: the value of every code, and a search in that table.

This is the form to read and to check against a specification. ``fast_codec`` computes the same by integer
operations and tables and is proved equal to this one (suites/meta/test_reference.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import Codes, Format
from narrowgauge.contracts.policy import CastPolicy

Values = npt.NDArray[np.float64]
#: float64 holds every value and every midpoint of these formats exactly; a wider table would not fit in memory
WIDEST_TABLE = 19


# --- values ----------------------------------------------------------------------------------------------------------


def decode(codes: Codes, fmt: Format) -> Values:
    """float64 value of each code, same shape. Exact: no format here is wider than float64."""
    if fmt.bits == 64:
        return np.asarray(codes, "<u8").view(np.float64)
    code = codes.astype(np.int64)
    match fmt.family:
        case "integer":
            return unrestricted(np.where(code & fmt.sign_bit, code - fmt.code_count, code), fmt)
        case "exponent":
            return np.where(code == fmt.code_count - 1, np.nan, unrestricted(code, fmt))
    field = (code >> fmt.mantissa) & ((1 << fmt.exponent) - 1)
    fraction = code & ((1 << fmt.mantissa) - 1)
    value = unrestricted(code & (fmt.sign_bit - 1), fmt)
    value = np.where(code & fmt.sign_bit, -value, value)
    top = field == (1 << fmt.exponent) - 1
    match fmt.family:
        case "ieee":
            value = np.where(top, np.copysign(np.where(fraction == 0, np.inf, np.nan), value), value)
        case "fn":
            value = np.where(top & (fraction == (1 << fmt.mantissa) - 1), np.copysign(np.nan, value), value)
        case "fnuz":
            value = np.where(code == fmt.sign_bit, np.nan, value)
    return value


def unrestricted(magnitude: npt.NDArray[np.int64], fmt: Format) -> Values:
    """The value of a code without its sign, if no code were special: the grid goes on beyond the largest finite."""
    if fmt.family == "exponent":
        return np.ldexp(1.0, magnitude - fmt.bias)
    if fmt.family == "integer":
        return magnitude.astype(np.float64)
    field = magnitude >> fmt.mantissa
    fraction = magnitude & ((1 << fmt.mantissa) - 1)
    normal = np.ldexp((1 << fmt.mantissa) + fraction, field - fmt.bias - fmt.mantissa)
    subnormal = np.ldexp(fraction.astype(np.float64), 1 - fmt.bias - fmt.mantissa)
    return np.where(field > 0, normal, subnormal)


@cache
def values(fmt: Format) -> Values:
    """float64 value of every code of a format of at most 19 bits, indexed by code."""
    if fmt.bits > WIDEST_TABLE:
        raise BadInput(f"{fmt.name} has 2^{fmt.bits} codes; a table is made for at most 2^{WIDEST_TABLE}")
    table = decode(np.arange(fmt.code_count, dtype=fmt.storage), fmt)
    table.flags.writeable = False
    return table


@cache
def largest(fmt: Format) -> int:
    """The code of the largest finite value. Codes of non-negative finite values are 0 to this, in ascending order."""
    if fmt.family == "integer":
        return (fmt.sign_bit or fmt.code_count) - 1
    return int(np.flatnonzero(np.isfinite(values(fmt)[: fmt.sign_bit or fmt.code_count]))[-1])


@cache
def nan_code(fmt: Format) -> int:
    """The format's NaN: the quiet one without a payload in IEEE layouts, else the first. -1 where there is none."""
    if fmt.family == "ieee":
        return (((1 << fmt.exponent) - 1) << fmt.mantissa) | (1 << (fmt.mantissa - 1))
    if fmt.family == "integer":
        return -1
    found = np.flatnonzero(np.isnan(values(fmt)))
    return int(found[0]) if found.size else -1


@cache
def special_code(fmt: Format) -> int:
    """What overflow gives in a policy of ``special``: infinity, or NaN in a format without one. -1 without either."""
    if fmt.family == "ieee":
        return ((1 << fmt.exponent) - 1) << fmt.mantissa
    return nan_code(fmt)


def has_negative_zero(fmt: Format) -> bool:
    """Whether the code of the sign alone is -0."""
    return fmt.signed and fmt.family not in ("fnuz", "integer")


def allowed_top(fmt: Format, policy: CastPolicy) -> int:
    """The code of the largest magnitude that the policy allows."""
    if policy.limit is None:
        return largest(fmt)
    return int(np.flatnonzero(values(fmt) == policy.limit)[0])


def of_nan(fmt: Format, policy: CastPolicy, negative: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """The code of a NaN, by its sign, in a format that is no integer."""
    top = allowed_top(fmt, policy)
    plus, minus = {
        "nan": (nan_code(fmt), nan_code(fmt)),
        "max": (top, top),
        "min": (top | fmt.sign_bit, top | fmt.sign_bit),
        "signed_max": (top, top | fmt.sign_bit),
        "zero": (0, 0),
        "opposite_zero": (fmt.sign_bit, 0),
    }[policy.nan]
    return np.where(negative, minus, plus)


# --- codes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RandomBits:
    """What stochastic rounding takes besides x: integers below 2^width, of x's shape or one for all.

    A magnitude goes up where the way from the value below, in units of 2^-width of the gap, plus its integer reaches
    2^width: a larger integer never rounds to a smaller magnitude.
    """

    bits: npt.NDArray[np.unsignedinteger]
    width: int

    def __post_init__(self) -> None:
        if not np.issubdtype(self.bits.dtype, np.integer):
            raise BadInput(f"random bits of {self.bits.dtype}; expected integers")
        if not 0 <= self.width <= 32 or (self.bits >> self.width).any():  # -1 stays -1
            raise BadInput(f"random bits of width {self.width}; expected 0 to 32, and integers from 0 to below 2^width")


def encode(x: npt.NDArray[np.floating], fmt: Format, policy: CastPolicy, random: RandomBits | None = None) -> Codes:
    """Codes of real values, same shape, for a destination of at most 19 bits. One rounding, from the exact value.

    Raises ``BadInput`` where the policy rounds stochastically and no random bits are given, or the other way round.
    """
    if (policy.rounding == "stochastic") != (random is not None):
        raise BadInput(f"rounding={policy.rounding!r}; random bits go with 'stochastic', and only with it")
    if random is not None and random.bits.shape not in ((), np.shape(x)):
        raise BadInput(
            f"random bits of shape {list(random.bits.shape)}; expected x's, {list(np.shape(x))}, or one for all"
        )
    with np.errstate(invalid="ignore"):  # a signalling NaN is quieted on its way to float64; its class is all we need
        exact: Values = np.asarray(x, np.float64)
    if policy.negative == "magnitude":
        exact = np.abs(exact)
    if fmt.family == "integer":
        return integer_codes(exact, fmt, policy)
    negative = np.signbit(exact)
    code = _magnitude(exact, fmt, policy, random)
    if fmt.signed:
        signed_zero = has_negative_zero(fmt) and policy.negative_zero == "keep"
        code = np.where(negative & ((code > 0) | signed_zero), code | fmt.sign_bit, code)
    else:
        code = _unsigned(exact, code, fmt, policy)
    return np.where(np.isnan(exact), of_nan(fmt, policy, negative), code).astype(fmt.storage)


def _magnitude(x: Values, fmt: Format, policy: CastPolicy, random: RandomBits | None) -> npt.NDArray[np.int64]:
    """The code of each magnitude; of no meaning for NaN."""
    magnitude = np.abs(x)
    top = allowed_top(fmt, policy)
    # 1. The two neighbours on the grid, which has one value more than the policy allows.
    grid = _grid(fmt, top + 2)
    below = np.clip(np.searchsorted(grid, magnitude, side="right") - 1, 0, top)
    # 2. The rounded magnitude, as an index into the grid, which is its code.
    code = below + _rounds_up(magnitude, grid, below, np.signbit(x), policy, random)
    # 3. Subnormal results, where the policy flushes them.
    if policy.subnormals == "flush":
        code = np.where(code < (1 << fmt.mantissa), 0, code)
    # 4. What lies beyond the largest allowed magnitude.
    special = special_code(fmt)
    overflowed = (code > top) | ((magnitude >= grid[-1]) & np.isfinite(magnitude))
    code = np.where(overflowed, special if policy.overflow == "special" else top, code)
    return np.where(np.isinf(magnitude), special if policy.infinity == "special" else top, code)


@cache
def _grid(fmt: Format, count: int) -> Values:
    """The first so many magnitudes, in ascending order, as though no code were special."""
    return unrestricted(np.arange(count, dtype=np.int64), fmt)


def _unsigned(x: Values, code: npt.NDArray[np.int64], fmt: Format, policy: CastPolicy) -> npt.NDArray[np.int64]:
    """What E8M0 makes of negative values and of zero."""
    nan = nan_code(fmt)
    code = np.where(x < 0, nan if policy.negative == "nan" else 0, code)
    return np.where(x == 0, nan, code) if policy.zero == "nan" else code


def integer_codes(x: npt.NDArray[np.floating], fmt: Format, policy: CastPolicy) -> Codes:
    """Rounded, the zero point added, then held to the range, which in two's complement is one longer below zero.

    In the precision of x, where every step is exact: float64, or float32 with a zero point of at most 16 bits and a
    format of at most 16.
    """
    low, high = (-fmt.sign_bit, fmt.sign_bit - 1) if fmt.signed else (0, fmt.code_count - 1)
    if policy.limit is not None:
        low, high = max(low, -int(policy.limit)), int(policy.limit)
    beyond = float(fmt.code_count + abs(policy.zero_point))  # as good as infinite: no zero point brings it back
    nan = np.isnan(x)
    near = np.clip(np.where(nan, 0, x) if nan.any() else x, -beyond, beyond)
    wide = np.dtype(f"<i{2 * fmt.storage.itemsize}")  # holds the codes of either sign
    rounded = np.clip(_to_whole(near, policy) + policy.zero_point, low, high).astype(wide)
    of = {"max": (high, high), "min": (low, low), "signed_max": (high, low)}
    if policy.nan in of and nan.any():  # a NaN of "zero" has been one all along
        plus, minus = of[policy.nan]
        rounded = np.where(nan, np.where(np.signbit(x), minus, plus), rounded)
    codes: Codes = np.bitwise_and(rounded, fmt.code_count - 1).astype(fmt.storage)
    return codes


def _to_whole(x: npt.NDArray[np.floating], policy: CastPolicy) -> npt.NDArray[np.floating]:
    """The whole numbers that finite values become. Adding a half would round once more."""
    whole: npt.NDArray[np.floating] = np.trunc(x)
    match policy.rounding:
        case "nearest_even":
            whole = np.rint(x)
        case "nearest_away":
            whole = np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(x.dtype.type(1), x), whole)
        case "nearest_zero":
            whole = np.where(np.abs(x - whole) > 0.5, whole + np.copysign(x.dtype.type(1), x), whole)
        case "up":
            whole = np.ceil(x)
        case "down":
            whole = np.floor(x)
    return whole


def _rounds_up(
    magnitude: Values,
    grid: Values,
    below: npt.NDArray[np.intp],
    negative: npt.NDArray[np.bool_],
    policy: CastPolicy,
    random: RandomBits | None,
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
        case "stochastic":
            assert random is not None
            # The way to the upper neighbour, cut to as many bits as come with x: what they carry out of goes up.
            way = np.floor(np.ldexp((magnitude - grid[below]) / (grid[below + 1] - grid[below]), random.width))
            up = way + random.bits >= np.ldexp(1.0, random.width)
    return up
