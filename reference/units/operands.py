"""Operands of matrix units: codes as numbers and exponents, k first, so that rows and columns meet by broadcasting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import Format, format_named
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.units.rounding import F64, Bools, Exponents, exponent_of, power

#: exponent of what has none (zero, infinity, NaN): any sum with it stays below every exponent of a product
NOTHING = -8192


@dataclass(frozen=True, eq=False)
class Side:
    """One operand, [K, …]: two sides of shapes [K, M, 1] and [K, 1, N] have the products [K, M, N].

    ``exponent`` is that of the format's field, at least the least one, also of subnormals, which are not normalised.
    """

    value: F64
    exponent: Exponents

    @cached_property
    def special(self) -> Bools:
        """Where the value is infinite or NaN."""
        return ~np.isfinite(self.value)

    @cached_property
    def finite(self) -> F64:
        """The values, zero for those that are not finite."""
        return np.where(self.special, 0.0, self.value) if self.special.any() else self.value

    def cut(self, start: int, stop: int) -> Side:
        """Positions of k from ``start`` to before ``stop``; zeros beyond the last."""
        value, exponent = self.value[start:stop], self.exponent[start:stop]
        missing = stop - start - len(value)
        if missing > 0:
            rest = (missing, *value.shape[1:])
            value = np.concatenate([value, np.zeros(rest)])
            exponent = np.concatenate([exponent, np.full(rest, NOTHING, np.int16)])
        return Side(value, exponent)

    def take(self, positions: Sequence[int] | npt.NDArray[np.intp]) -> Side:
        """Those positions of k, in that order."""
        at = np.asarray(positions, np.intp)
        return Side(self.value[at], self.exponent[at])


def least_exponent(fmt: Format) -> int:
    """Exponent of the least normal number, and of all below; of a format of exponents alone that of the least."""
    return -fmt.bias if fmt.family == "exponent" else 1 - fmt.bias


def side_of(x: Coded, through: str = "") -> Side:
    """A side [K, n] of codes [n, K]. ``through``: the format to which they are converted first, exactly.

    float32 becomes tfloat32 as in the units, which do not look at the lower 13 bits.
    """
    fmt = format_named(through or x.format)
    if (x.format, through) == ("float32", "tfloat32"):
        x = Coded("tfloat32", x.codes >> np.uint32(13))
    value = np.ascontiguousarray(decode_values(x).T)
    return Side(value, exponents(value, least_exponent(fmt)))


def exponents(value: F64, least: int) -> Exponents:
    """Exponents of values in a format whose least normal exponent is ``least``; ``NOTHING`` where there is none."""
    found = np.maximum(exponent_of(value), least)
    return np.where((value == 0) | ~np.isfinite(value), NOTHING, found).astype(np.int16)


def scaled(side: Side, scale: Coded, block: int) -> Side:
    """A side times scales [n, K / block] that are powers of two: exponents are added, nothing is rounded."""
    factor = np.repeat(decode_values(scale).T, block, axis=0)[: len(side.value)]
    there = np.where((side.exponent == NOTHING) | np.isnan(factor), 0, exponent_of(factor))
    return Side(side.value * factor, (side.exponent + there).astype(np.int16))


def scaled_apart(side: Side, scale: Coded, block: int) -> Side:
    """A side times the significands of its scales [n, K / block], whose exponents stand in place of its own.

    The sign bit of a scale is ignored.
    """
    fmt = format_named(scale.format)
    value = np.abs(decode_values(scale).T)
    exponent = exponents(value, least_exponent(fmt))
    significand = np.where(exponent == NOTHING, value, value / power(np.where(exponent == NOTHING, 0, exponent)))
    each = len(side.value)
    return Side(side.value * np.repeat(significand, block, axis=0)[:each], np.repeat(exponent, block, axis=0)[:each])
