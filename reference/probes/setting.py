"""What a kernel that multiplies matrices takes and gives, as probes see it: which numbers both operands can hold."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import Codes, format_named
from narrowgauge.contracts.product import Scaled
from narrowgauge.reference.codec import WIDEST_TABLE, values
from narrowgauge.reference.fast_codec import decode_values

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Side:
    """One operand. Its numbers are (value of a code - ``zero``) x ``unit`` x the scale of its block."""

    format: str
    zero: float = 0.0
    unit: float = 1.0
    rows: int = 0  #: rows of the operand ([M, K] or [N, K]) that share a scale; 0 for all
    along: int = 0  #: and how many steps of K; 0 for all
    scales: str = ""  #: the format of its scales; "" where it has none
    enters: str = ""  #: the format to which its dequantized numbers are rounded before the product

    def holds(self, number: float) -> bool:
        """Whether a number is one of the operand's, under a scale of 1."""
        return _holds(self, number)

    def is_normal(self, number: float) -> bool:
        """Whether it has all its bits: below the least normal number hardware may flush it."""
        fmt = format_named(self.format)
        return fmt.family == "integer" or abs(number) >= math.ldexp(1.0, 1 - fmt.bias) * self.unit

    def codes(self, numbers: F64) -> Coded:
        """The codes of numbers that it holds, same shape."""
        shifted = np.asarray(numbers, np.float64) / self.unit + self.zero
        fmt = format_named(self.format)
        if fmt.bits > WIDEST_TABLE:  # float32
            return Coded(fmt.name, shifted.astype(np.float32).view(np.uint32))
        return Coded(fmt.name, _nearest(fmt.name, shifted))

    @property
    def exponents(self) -> range:
        """Of the powers of two that it holds, subnormal ones included."""
        return _exponents(self)

    @property
    def least(self) -> float:
        """The smallest positive number."""
        return math.ldexp(1.0, self.exponents.start)


@dataclass(frozen=True)
class Setting:
    """Both operands, the format of the result, and the length of K."""

    a: Side
    b: Side
    out: str
    k: int
    scaled: Scaled = "sum"

    def of_length(self, k: int) -> Setting:
        """The same with another K."""
        return replace(self, k=k)

    def factors(self, number: float) -> tuple[float, float] | None:
        """Two numbers, of a and of b, whose product is this one; normal ones if there are any."""
        return _factors(self.a, self.b, number)

    def returns(self, number: float) -> bool:
        """Whether the result can be this number exactly, and as a normal one."""
        fmt = format_named(self.out)
        if fmt.family == "integer":
            return number == int(number) and abs(number) < fmt.sign_bit
        top = math.ldexp(1.0, (1 << fmt.exponent) - 1 - fmt.bias - (fmt.family == "ieee"))
        exact = math.frexp(number)[0] * 2.0 ** (fmt.mantissa + 1)
        return exact == int(exact) and (number == 0 or math.ldexp(1.0, 1 - fmt.bias) <= abs(number) <= top)


@lru_cache(maxsize=1 << 14)
def _holds(side: Side, number: float) -> bool:
    return bool((decode_values(side.codes(np.array([number])))[0] - side.zero) * side.unit == number)


@cache
def _exponents(side: Side) -> range:
    held = [e for e in range(-149, 128) if side.holds(math.ldexp(1.0, e))]
    return range(held[0], held[-1] + 1)


@cache
def _factors(a: Side, b: Side, number: float) -> tuple[float, float] | None:
    if number == 0:
        return 0.0, 0.0
    middle = math.frexp(number)[1] / 2
    found = None
    for exponent in sorted(a.exponents, key=lambda e: abs(e - middle)):
        x = math.ldexp(1.0, exponent)
        y = number / x
        if b.holds(y):
            if a.is_normal(x) and b.is_normal(y):
                return x, y
            found = found or (x, y)
    return found


def _nearest(format_name: str, numbers: F64) -> Codes:
    """Codes of numbers that a format of at most 19 bits holds; of others, some code."""
    table, order = _sorted(format_name)
    place = np.clip(np.searchsorted(table, numbers), 0, table.size - 1)
    return order[place].astype(format_named(format_name).storage)


@cache
def _sorted(format_name: str) -> tuple[F64, npt.NDArray[np.int64]]:
    """The finite values of a format in ascending order, each with its code; of zero the positive one."""
    all_values = values(format_named(format_name))
    codes = np.flatnonzero(np.isfinite(all_values) & ~((all_values == 0) & np.signbit(all_values)))
    order = codes[np.argsort(all_values[codes], kind="stable")]
    return all_values[order], order
