"""Float32 arithmetic on intervals: every number that a kernel may have after a step, however it orders its operations.

u = 2^-24 is the relative error of one float32 operation that rounds to nearest. A step takes the exact result at the
ends of what it is given, which is monotone, and moves both outward by the errors that are counted where it is used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from narrowgauge.reference.kv.arithmetic import F64, MORE, TINY, U, in_format

__all__ = ["F64", "TINY", "Ends", "U", "exactly", "held_in", "in_order", "overflowed", "product", "quotient", "widened"]

#: from here on float32 rounds to infinity
_OVERFLOW = 2.0**128 - 2.0**103


@dataclass(frozen=True, eq=False)
class Ends:
    """The least and the greatest number, element by element. NaN at both ends is NaN; an infinity is one."""

    low: F64
    high: F64

    @property
    def shape(self) -> tuple[int, ...]:
        return self.low.shape


def exactly(value: F64) -> Ends:
    """One number each."""
    return Ends(value, value)


def widened(ends: Ends, relative: F64 | float, lost: F64 | float = TINY) -> Ends:
    """Both ends moved outward: by a relative error, and by what flushing may take away. No rounding changes a sign, and
    what is 0 is a sum or product of zeros, and exact. ``MORE`` covers products of errors, and what float64 leaves."""

    def moved(end: F64, way: float) -> F64:
        there = end + way * (np.abs(end) * relative * MORE + lost)
        crossed = np.where(np.signbit(end) == np.signbit(there), there, np.copysign(0.0, end))
        return np.where((end == 0) | ~np.isfinite(end), end, crossed)

    return overflowed(Ends(moved(ends.low, -1.0), moved(ends.high, 1.0)))


def overflowed(ends: Ends) -> Ends:
    """Ends beyond float32 as the infinities that they round to."""
    low, high = (np.where(np.abs(end) >= _OVERFLOW, np.copysign(np.inf, end), end) for end in (ends.low, ends.high))
    return Ends(low, high)


def held_in(ends: Ends, format_name: str) -> Ends:
    """Both ends rounded to a format, to nearest: rounding is monotone. float32 holds what is in it already."""
    return (
        ends if format_name == "float32" else Ends(in_format(ends.low, format_name), in_format(ends.high, format_name))
    )


def in_order(corners: list[F64]) -> Ends:
    """Least and greatest of corners; NaN where one is NaN."""
    return Ends(np.minimum.reduce(corners), np.maximum.reduce(corners))


def product(one: Ends, other: Ends) -> Ends:
    """Exact products: at the corners, which are one where both are."""
    return in_order([a * b for a in (one.low, one.high) for b in (other.low, other.high)])


def quotient(one: Ends, other: Ends) -> Ends:
    """Exact quotients by what does not cross 0."""
    return in_order([a / b for a in (one.low, one.high) for b in (other.low, other.high)])
