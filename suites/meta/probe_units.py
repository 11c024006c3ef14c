"""Matrix units in exact integers, for probes: written from the descriptions of MMA-Sim (arXiv 2511.10909) and of
Khattak and Mikaitis (arXiv 2512.07004), without a look at reference/units.

A number is a whole number of 2^-UNIT. A term is a place of K and a product. Only terms that are not zero are added,
which in all these units changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

#: half of it are the places of each factor
UNIT = 800
Term = tuple[int, int]
#: terms of one step, and the sum before it, become the sum after it
Step = Callable[[Sequence[Term], int], int]


@cache
def factor(x: float) -> int:
    """One factor of a product as a whole number of 2^-(UNIT / 2)."""
    over, under = x.as_integer_ratio()
    assert under.bit_length() <= UNIT // 2, x
    return over << (UNIT // 2 - under.bit_length() + 1)


def value(x: int) -> float:
    """Back to a float, exactly or not at all."""
    found = x / (1 << UNIT)
    assert factor(found) << UNIT // 2 == x
    return found


def top(x: int) -> int:
    """The place of the leading bit."""
    return abs(x).bit_length() - 1


def cut(x: int, place: int) -> int:
    """Toward zero, to a multiple of 2^place."""
    if place <= 0:
        return x
    return abs(x) >> place << place if x >= 0 else -(abs(x) >> place << place)


def nearest(x: int, place: int) -> int:
    """To a multiple of 2^place, ties to even."""
    if place <= 0:
        return x
    whole, rest = x >> place, x & ((1 << place) - 1)
    half = 1 << (place - 1)
    return (whole + (rest > half or (rest == half and whole & 1))) << place


def last(x: int, bits: int, least: int = -126) -> int:
    """The place of the last of so many bits below the leading one, of normal numbers from 2^least."""
    return max(top(x), least + UNIT) - bits


def truncating(fraction: int, kept: int, to: Callable[[int, int], int] = cut) -> Step:
    """NVIDIA: terms and the sum before are cut to a common grid, added exactly, and cut (or rounded)."""

    def step(terms: Sequence[Term], c: int) -> int:
        parts = [p for _, p in terms] + [c] * (c != 0)
        # a product of two numbers from 1 to below 2 has the sum of their exponents, even where it is 2 or more
        grid = max(map(top, parts)) - fraction
        total = sum(cut(part, grid) for part in parts)
        return to(total, last(total, kept))

    return step


def halves(terms: Sequence[Term], c: int) -> int:
    """mma.sync of fp8 on Hopper and B200: two steps of 16 from zero, k % 4 below 2 first, and one float32 addition."""
    inner = truncating(25, 23)
    total = 0
    for first in (True, False):
        part = [t for t in terms if (t[0] % 4 < 2) == first]
        total = inner(part, total) if part else total
    return nearest(total + c, last(total + c, 23))


def exactly(terms: Sequence[Term], c: int) -> int:
    """CDNA1: products and the sum before are added exactly and rounded once; and a chain of fused multiply-adds."""
    total = sum(p for _, p in terms) + c
    return nearest(total, last(total, 23))


def pairs(terms: Sequence[Term], c: int) -> int:
    """CDNA2: (p0 + p1) + (p2 + p3) in float32, then to the sum before; results that are subnormal are zero."""

    def flushed(x: int) -> int:
        x = nearest(x, last(x, 23))
        return x if top(x) >= UNIT - 126 else 0

    p = [0] * 4
    for k, product in terms:
        p[k % 4] = flushed(product)
    return flushed(c + flushed(flushed(p[0] + p[1]) + flushed(p[2] + p[3])))


def floored(terms: Sequence[Term], c: int) -> int:
    """CDNA3, 16-bit operands: products are cut to 24 bits, their sum to 32 and c to 24 go down, then to nearest."""
    high = max(top(p) for _, p in terms)
    total = sum(cut(p, high - 24) for _, p in terms)
    high = max(high, top(c)) if c else high
    summed = (total >> (high - 31) << (high - 31)) + (c >> (high - 24) << (high - 24))
    lowest = top(summed) - 31
    summed = summed >> lowest << lowest if lowest > 0 else summed
    return nearest(summed, last(summed, 23))


@dataclass(frozen=True)
class Toy:
    """A unit: how many products a step has, what it does, and whether it takes subnormal operands for zero."""

    length: int
    step: Step
    flushes: bool = False

    def total(self, terms: Iterable[Term], c: int = 0) -> int:
        """The sum, k ascending."""
        steps: dict[int, list[Term]] = {}
        for term in terms:
            steps.setdefault(term[0] // self.length, []).append(term)
        for _, each in sorted(steps.items()):
            c = self.step(each, c)
        return c


TOYS = {
    "volta": Toy(4, truncating(23, 23)),
    "ampere": Toy(8, truncating(24, 23)),
    "hopper": Toy(16, truncating(25, 23)),
    "ada fp8": Toy(16, truncating(13, 13)),
    "qgmma": Toy(32, truncating(13, 13)),
    "tcgen05": Toy(32, truncating(25, 23)),
    "mma.sync fp8": Toy(32, halves),
    "fma": Toy(1, exactly),
    "mi100": Toy(4, exactly),
    "mi250": Toy(4, pairs, flushes=True),
    "mi300": Toy(8, floored),
    "ampere to float16": Toy(8, truncating(24, 10, nearest)),
}


@dataclass(frozen=True)
class Plan:
    """How a toy kernel uses its unit: sums of so many products are added up in float32; K is cut into parts."""

    toy: Toy
    promote: int = 0
    split: int = 0

    def total(self, terms: Sequence[tuple[int, float, float]], k: int) -> int:
        """One element of the result, before it is rounded to its format."""
        if self.toy.flushes:  # bfloat16 and float32 have the same exponents
            terms = [t for t in terms if min(abs(t[1]), abs(t[2])) >= 2.0**-126]
        products = [(at, factor(x) * factor(y)) for at, x, y in terms]
        length = k // self.split if self.split else self.promote
        if not length:
            return self.toy.total(products)
        total = 0
        for start in range(0, k, length):
            part = [t for t in products if start <= t[0] < start + length]
            total += self.toy.total(part)
            total = nearest(total, last(total, 23))
        return total
