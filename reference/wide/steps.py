"""What each step of an operation gives: the exact result, widened by what float32 may be off. Counts are proofs.

A step is given the work so far and the names of its operands. Functions are off by what documents allow them
(reference/kv/arithmetic.py has those, and where they stand). A product's factors, and a sum's terms, come in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from narrowgauge.reference.kv.arithmetic import (
    DIVISION,
    EXP,
    LOG,
    LOG_ABSOLUTE,
    TANH,
    TANH_ABSOLUTE,
    TO_BASE_2,
)
from narrowgauge.reference.wide.choosing import Choice, chosen_of
from narrowgauge.reference.wide.ends import (
    F64,
    TINY,
    Ends,
    U,
    exactly,
    held_in,
    in_order,
    overflowed,
    product,
    quotient,
    widened,
)

#: rsqrt is off by 2 ulp, which is 4 u, and the product with it by u; sqrt and a division of 1 and 2 ulp by 6 u
ROOT = 5 * U
#: in how many stretches a row may be read at most: with each the sum so far may be rescaled to a new largest
STRETCHES = 16


@dataclass(frozen=True, eq=False)
class Work:
    """The matrices so far, by name, and the claim's formats."""

    held: Mapping[str, Ends]
    source: str
    format: str


Step = Callable[..., dict[str, Ends]]


def copy(work: Work, out: str, name: str) -> dict[str, Ends]:
    """The same under another name."""
    return {out: work.held[name]}


def part(work: Work, out: str, name: str, number: float) -> dict[str, Ends]:
    """One of two matrices that stand side by side."""
    ends, place = work.held[name], int(number)
    return {out: Ends(np.hsplit(ends.low, 2)[place], np.hsplit(ends.high, 2)[place])}


def rounded(work: Work, out: str, name: str, format_name: str = "") -> dict[str, Ends]:
    """Rounded to a format, the claim's source if none is named."""
    return {out: held_in(work.held[name], format_name or work.source)}


# --- sums and products -----------------------------------------------------------------------------------------------


def square_mean(work: Work, out: str, name: str) -> dict[str, Ends]:
    """The mean of the squares of a row of n: a square, n - 1 additions in any order (each term passes through at most
    so many) and a division, or a reciprocal and a product with it: n + 2 operations. Squares that are flushed take away
    at most TINY of the mean, it itself one more."""
    ends = work.held[name]
    squares = in_order([ends.low**2, ends.high**2])
    low = np.where((ends.low < 0) & (ends.high > 0), 0.0, squares.low).mean(axis=1, keepdims=True)
    high = squares.high.mean(axis=1, keepdims=True)
    return {out: widened(Ends(low, high), (ends.shape[1] + 2) * U, 2 * TINY)}


def plus(work: Work, out: str, name: str, number: float) -> dict[str, Ends]:
    """A constant is added, as float32 has it or as it is: one rounding."""
    ends, constants = work.held[name], sorted((number, float(np.float32(number))))
    return {out: widened(Ends(ends.low + constants[0], ends.high + constants[1]), U)}


def rsqrt(work: Work, out: str, name: str) -> dict[str, Ends]:
    """1 over the root of a positive number."""
    ends = work.held[name]
    return {out: widened(Ends(1 / np.sqrt(ends.high), 1 / np.sqrt(ends.low)), ROOT)}


def times(work: Work, out: str, name: str, other: str | float) -> dict[str, Ends]:
    """A product, with another matrix or with a constant: one rounding."""
    factor = work.held[other] if isinstance(other, str) else exactly(np.full((1, 1), other))
    return {out: widened(product(work.held[name], factor), U)}


def over(work: Work, out: str, name: str, other: str) -> dict[str, Ends]:
    """A quotient by positive numbers; by one that may be 0 of which no more is known, as by the least above it."""
    by = work.held[other]
    least = np.where((by.low == 0) & (by.high > 0), 2.0**-149, by.low)
    return {out: widened(quotient(work.held[name], Ends(least, by.high)), DIVISION)}


def add(work: Work, out: str, name: str, other: str) -> dict[str, Ends]:
    """The sum of two float32 numbers, rounded once, and so exactly known; subnormals may be flushed."""
    one, two = work.held[name], work.held[other]
    low, high = ((a.astype(np.float32) + b.astype(np.float32)).astype(np.float64) for a, b in _ends_of(one, two))
    return {out: Ends(np.where((low > 0) & (low < TINY), 0.0, low), np.where((high < 0) & (high > -TINY), -0.0, high))}


def add_near(work: Work, out: str, name: str, other: str) -> dict[str, Ends]:
    """The sum of two numbers of which one is not exactly known: one rounding."""
    (low, below), (high, above) = _ends_of(work.held[name], work.held[other])
    return {out: widened(Ends(low + below, high + above), U)}


def _ends_of(one: Ends, two: Ends) -> tuple[tuple[F64, F64], tuple[F64, F64]]:
    return (one.low, two.low), (one.high, two.high)


def minus(work: Work, out: str, name: str, other: str, largest: str) -> dict[str, Ends]:
    """A difference: one rounding. Or what is taken off is first added to the largest of a row of ``largest``, which was
    taken off before: one rounding of that sum more."""
    one, two, row = work.held[name], work.held[other], work.held[largest]
    top = np.maximum(np.abs(row.low.max(axis=1, keepdims=True)), np.abs(row.high.max(axis=1, keepdims=True)))
    size = np.where(np.isfinite(top), top, 0.0) + np.where(np.isfinite(two.high), np.abs(two.high), 0.0)
    return {out: widened(Ends(one.low - two.high - U * size, one.high - two.low + U * size), U)}


def total(work: Work, out: str, name: str) -> dict[str, Ends]:
    """The sum of a row of n positive numbers in any order: n - 1 roundings; and one more, that of a kernel that guards
    the sum by adding something below it. What is flushed on the way is a term's own affair."""
    ends = work.held[name]
    sums = Ends(ends.low.sum(axis=1, keepdims=True), ends.high.sum(axis=1, keepdims=True))
    return {out: widened(sums, ends.shape[1] * U, 0.0)}


# --- functions -------------------------------------------------------------------------------------------------------


def below_largest(work: Work, out: str, name: str) -> dict[str, Ends]:
    """A row less its largest, which is found without error. In base e one rounding, of the difference; in base 2 both
    were multiplied by log2 e first, each with the error of that. An infinity stays one, and one less itself is NaN."""
    ends = work.held[name]
    top = Ends(ends.low.max(axis=1, keepdims=True), ends.high.max(axis=1, keepdims=True))
    low, high = ends.low - top.high, np.minimum(ends.high - top.low, 0.0)
    size = np.maximum(np.abs(ends.low), np.abs(ends.high)) + np.maximum(np.abs(top.low), np.abs(top.high))
    reach = U * np.abs(low) + TO_BASE_2 * size
    reach = np.where(np.isfinite(reach), reach, 0.0)
    return {out: Ends(low - reach, high + reach)}


def exp(work: Work, out: str, name: str) -> dict[str, Ends]:
    """exp, in base e or 2; then products with exp of what the largest rose by, one for each stretch of the row."""
    ends = work.held[name]
    exponent = np.where(np.isfinite(ends.low), np.abs(ends.low), 0.0)
    each = EXP + TO_BASE_2 * exponent + STRETCHES * (EXP + U)
    return {out: widened(overflowed(Ends(np.exp(ends.low), np.exp(ends.high))), each)}


def log(work: Work, out: str, name: str) -> dict[str, Ends]:
    """The natural logarithm: relative, or absolute where it is near 0."""
    ends = work.held[name]
    return {out: widened(Ends(np.log(ends.low) - LOG_ABSOLUTE, np.log(ends.high) + LOG_ABSOLUTE), LOG)}


def sigmoid(work: Work, out: str, name: str) -> dict[str, Ends]:
    """1 / (1 + exp(-x)). The exp counts with weight exp(-x) / (1 + exp(-x)) < 1; then a sum and a division. Where exp
    overflows the result is 0, and below TINY. Or (1 + tanh(x / 2)) / 2: half of what a function tanh may be off, at
    most 2 u, and half a u of the sum, which is at most 1: absolute."""
    ends = work.held[name]
    found = Ends(1 / (1 + np.exp(-ends.low)), 1 / (1 + np.exp(-ends.high)))
    near = widened(found, _of_sigmoid(ends))
    return {
        out: Ends(np.minimum(near.low, np.maximum(found.low - 3 * U, 0.0)), np.maximum(near.high, found.high + 3 * U))
    }


def silu(work: Work, out: str, name: str) -> dict[str, Ends]:
    """x / (1 + exp(-x)), or x times a sigmoid, of numbers that are exactly known. Below -87 exp may be infinite, and
    the result 0."""
    ends = work.held[name]
    found = widened(exactly(ends.low / (1 + np.exp(-ends.low))), _of_sigmoid(ends) + U)
    return {out: Ends(found.low, np.where(ends.low < -87, np.maximum(found.high, -0.0), found.high))}


def _of_sigmoid(ends: Ends) -> F64:
    size = np.maximum(np.abs(ends.low), np.abs(ends.high))
    return EXP + TO_BASE_2 * np.where(np.isfinite(size), size, 0.0) + U + DIVISION


def soft_cap(work: Work, out: str, name: str, cap: float) -> dict[str, Ends]:
    """cap · tanh(x / cap). tanh is a function's, or made of one exp, where it cancels: an absolute error, which holds
    that of its argument; the product adds u, and what stands before or behind it 2 u more."""
    ends = work.held[name]
    found = [np.tanh(end / cap) for end in (ends.low, ends.high)]
    reach = [TANH_ABSOLUTE + (TANH["function"] + 3 * U) * np.abs(each) for each in found]
    same = [np.where(ends_ == 0, 0.0, r) for ends_, r in zip((ends.low, ends.high), reach, strict=True)]
    return {out: Ends(cap * (found[0] - same[0]), cap * (found[1] + same[1]))}


def masked(work: Work, out: str, name: str, lengths: str) -> dict[str, Ends]:
    """Columns from a row's length on are -infinity."""
    ends = work.held[name]
    beyond = np.arange(ends.shape[1]) >= work.held[lengths].low
    return {out: Ends(np.where(beyond, -np.inf, ends.low), np.where(beyond, -np.inf, ends.high))}


# --- places ----------------------------------------------------------------------------------------------------------


def pair_of(columns: int, pairs: str) -> tuple[slice, slice]:
    """Where the first and the second numbers of all pairs stand: in "halves" of a row, or side by side ("pairs")."""
    half = columns // 2
    return (slice(0, half), slice(half, None)) if pairs == "halves" else (slice(0, None, 2), slice(1, None, 2))


def rotated(work: Work, out: str, name: str, cos: str, sin: str, pairs: str) -> dict[str, Ends]:
    """Each pair (a, b) of a row becomes a cos - b sin and b cos + a sin: two products, one of them perhaps fused into
    the sum, u of each and u of the sum."""
    value, c, s = work.held[name].low, work.held[cos].low, work.held[sin].low
    one, two = pair_of(value.shape[1], pairs)
    low, high = np.empty_like(value), np.empty_like(value)
    for place, left, right in (
        (one, value[:, one] * c, -value[:, two] * s),
        (two, value[:, two] * c, value[:, one] * s),
    ):
        exact, size = left + right, np.abs(left) + np.abs(right)
        reach = np.where((size == 0) | ~np.isfinite(size), 0.0, 2.01 * U * size + 3 * TINY)
        low[:, place], high[:, place] = exact - reach, exact + reach
    return {out: Ends(low, high)}


def top(
    work: Work, columns: str, values: str, name: str, count: float, ties: str, taken: str = "", beside: str = ""
) -> dict[str, Ends]:
    """Columns of the largest, the largest first, and the numbers there: of ``taken``, if that is another matrix.

    Numbers that a kernel makes of equal elements of x (and ``beside``) are equal; ``ties`` says which is first then.
    """
    alike = [work.held["x"].low] + ([work.held[beside].low] if beside else [])
    choice = Choice(work.held[name], int(count), ties, tuple(alike))
    where, what = chosen_of(choice, work.held[taken or name])
    return {columns: where} | ({values: what} if values else {})


STEPS: dict[str, Step] = {
    "sum": total,
    **{
        step.__name__: step
        for step in (
            copy, part, rounded, square_mean, plus, rsqrt, times, over, add, add_near, minus, below_largest, exp, log,
            sigmoid, silu, soft_cap, masked, rotated, top,
        )
    },
}  # fmt: skip
