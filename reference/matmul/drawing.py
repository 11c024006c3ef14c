"""Whole numbers for exact cases, drawn so that the sums of their products keep to a budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.errors import BadInput
from narrowgauge.reference.kv.arithmetic import Mask
from narrowgauge.reference.matmul.accumulators import Accumulator
from narrowgauge.reference.matmul.whole_numbers import Places, Whole, whole_numbers
from narrowgauge.reference.noise import scrambled

Signs = Literal["mixed", "one", "positive"]
Noise = npt.NDArray[np.uint64]
#: where K allows it, a row has so many terms at least, also at its largest numbers
_TERMS = 32
#: rows of x have their largest number 1, 1/4 or 1/16 of what the budget allows, and so more terms; but not below 3
_STYLES, _STEP, _FEWEST = 3, 4, 3
#: beyond the limit: what sums reach of it at most, and numbers of y as parts of the largest; 1.75 · 3/4 is above 1
_BEYOND, _NARROW = 1.75, 0.75


@dataclass(frozen=True)
class Budget:
    """What the magnitudes of one sum may add up to, in units, and the whole numbers of either side."""

    total: int  #: 2^p - 1, or what the accumulator's largest number allows
    a: Whole
    b: Whole


def budget(accumulator: Accumulator, a_format: str, b_format: str, zeros: tuple[int, int] = (0, 0)) -> Budget:
    """The budget of sums of these formats. Raises ``BadInput`` for a format that has no whole numbers of its own."""
    a, b = whole_numbers(a_format, zeros[0]), whole_numbers(b_format, zeros[1])
    return Budget(min(2**accumulator.exact_bits - 1, int(accumulator.largest / (a.unit * b.unit))), a, b)


def drawn_within(
    allowed: Budget, shape: tuple[int, int, int], total: int, signs: Signs, seed: int
) -> tuple[Places, Places]:
    """Whole numbers x [m, k], y [n, k]: for every pair of rows the sum of |x y| is at most ``total``.

    The budget of a row of x is what row 0 of y leaves it, which has the largest number in all places.
    """
    m, n, k = shape
    needed = -(-k // m)  # terms that a row must have, for every place of K to be in one
    largest = max(1, total // max(needed, min(k, _TERMS)))  # of a term
    most_y = allowed.b.at_most(largest**0.5)
    most_x = allowed.a.at_most(largest / most_y)
    most_y = allowed.b.at_most(largest / most_x)
    minus_x, minus_y = _signs(allowed, signs, (m, n, k), seed)
    level = np.maximum(min(most_x, _FEWEST), most_x // _STEP ** (np.arange(m) % _STYLES))
    x = np.stack([_drawn(allowed.a, int(level[i]), minus_x[i], _noise((k,), seed, 2, i)) for i in range(m)])
    y = _drawn(allowed.b, most_y, minus_y, _noise((n, k), seed, 3))
    y[0] = _drawn(allowed.b, most_y, minus_y[0], None)
    # Places that a row must fill come first, the others in any order; what goes beyond the budget is 0.
    order = _noise((m, k), seed, 4) >> np.uint64(1)
    mine = np.arange(k) % m == (np.arange(m)[:, None] + seed) % m
    order = np.where(mine, order, order | np.uint64(1 << 63))
    # One in eight of the other places is 0: where numbers are few, rows are no longer alike.
    y[1:][_noise((n - 1, k), seed, 5) >> np.uint64(61) == 0] = 0
    x[~mine & (_noise((m, k), seed, 6) >> np.uint64(61) == 0)] = 0
    return _kept(x, order, total // most_y, allowed.a), y


def _signs(allowed: Budget, signs: Signs, shape: tuple[int, int, int], seed: int) -> tuple[Mask, Mask]:
    """Which numbers are negative: x [m, k], y [n, k]."""
    m, n, k = shape
    sides = allowed.a, allowed.b
    if signs == "mixed":
        drawn = _noise((m + n, k), seed, 0) >> np.uint64(63) == 1
        of_x, of_y = (_possible(side, part) for side, part in zip(sides, (drawn[:m], drawn[m:]), strict=True))
        return of_x, of_y
    if any(not len(side.positive) for side in sides):
        raise BadInput(f"signs {signs!r}: {allowed.a.format} and {allowed.b.format} have no positive numbers here")
    both = signs == "one" and all(len(side.negative) for side in sides)
    shared = (_noise((k,), seed, 1) >> np.uint64(63) == 1) & both
    return np.broadcast_to(shared, (m, k)), np.broadcast_to(shared, (n, k))


def _possible(side: Whole, negative: Mask) -> Mask:
    return (negative | (not len(side.positive))) & bool(len(side.negative))


def _drawn(side: Whole, most: int, negative: Mask, noise: Noise | None) -> Places:
    """Numbers up to ``most`` of given signs; without noise the largest."""
    found = np.zeros(negative.shape, np.int64)
    for minus in (False, True):
        numbers = side.of_sign(minus, most)
        if not len(numbers):
            continue
        index = len(numbers) - 1 if noise is None else noise % np.uint64(len(numbers))
        found = np.where(negative == minus, (-numbers if minus else numbers)[index], found)
    return found


def _kept(x: Places, order: Noise, budget: int, side: Whole) -> Places:
    """Each row cut to magnitudes that sum to at most ``budget``, in an order; the first that is cut is made to fit."""
    place = np.argsort(order, axis=1)
    there = np.take_along_axis(x, place, axis=1)
    left = budget - np.cumsum(np.abs(there), axis=1)
    kept = np.where(left >= 0, there, 0)
    for row, first in enumerate((left >= 0).sum(axis=1)):
        if first < x.shape[1]:
            minus = bool(there[row, first] < 0)
            fitting = side.of_sign(minus, int(left[row, first] + abs(there[row, first])))
            kept[row, first] = (-1 if minus else 1) * fitting.max(initial=0)
    found = np.zeros_like(x)
    np.put_along_axis(found, place, kept, axis=1)
    return found


def drawn_beyond(allowed: Budget, shape: tuple[int, int, int], limit: int, seed: int) -> tuple[Places, Places]:
    """Positive x [m, k], y [n, k] whose sums of products are odd and between the limit and twice the limit.

    All of x is even, but for a 1 in one place, where y has a 1 too. Row by row the sum of x is fixed, and numbers of y
    are 3/4 to 1 of the largest, so sums of one row are 3/4 to 1 of 1.75 times the limit.
    """
    m, n, k = shape
    even = allowed.a.positive[allowed.a.positive % 2 == 0]
    goal = int(_BEYOND * limit)
    least_k = 1 + -(-goal // max(1, int(even.max(initial=0)) * int(allowed.b.positive.max(initial=0))))
    if k < max(2, least_k) or not len(even):
        raise BadInput(
            f"k {k}: sums of {allowed.a.format} and {allowed.b.format} do not reach {_BEYOND} times {limit} there; "
            f"expected at least {max(2, least_k)}"
        )
    ideal = (goal / min(k, _TERMS)) ** 0.5
    most_y = int(
        _at_least(allowed.b.positive, max(goal / ((k - 1) * even.max()), min(ideal, allowed.b.positive.max())))
    )
    y_numbers = allowed.b.positive[(allowed.b.positive >= _NARROW * most_y) & (allowed.b.positive <= most_y)]
    needed = goal // most_y
    most_x = int(_at_least(even, min(even.max(), max(2 * needed / (k - 1), ideal))))
    least_x = most_x / 2 if (k - 1) * (most_x / 2) >= needed else most_x
    x_numbers = even[(even >= least_x) & (even <= most_x)]
    x = x_numbers[_noise((m, k), seed, 0) % np.uint64(len(x_numbers))]
    y = y_numbers[_noise((n, k), seed, 1) % np.uint64(len(y_numbers))]
    odd = seed % k
    x[:, odd] = 0
    order = _noise((m, k), seed, 2)
    x = _kept(x, order, needed, Whole(allowed.a.format, allowed.a.unit, even, even[:0]))
    x[:, odd], y[:, odd] = 1, 1
    return x, y


def _at_least(numbers: Places, least: float) -> int:
    return int(numbers[min(int(np.searchsorted(numbers, least)), len(numbers) - 1)])


def _noise(shape: tuple[int, ...], seed: int, *stream: int) -> Noise:
    """Numbers without pattern, others for every stream."""
    number = seed
    for part in stream:
        number = number * 4099 + part
    return scrambled(int(np.prod(shape)), number % (1 << 31)).reshape(shape)
