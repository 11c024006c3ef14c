# SPDX-License-Identifier: Apache-2.0
"""Sums of products as machines may make them: any order and tree of float32, and the fused units that truncate.

Written from the facts on matrix units (sections 2 and 6); it shares nothing with reference/units. Numbers are whole
multiples of 2^-unit, so every sum is exact until a machine rounds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from random import Random

#: bits of a float32's significand, and the exponents of its least subnormal and normal number
BITS, FINEST, NORMAL = 24, -149, -126
#: the exponent that a zero counts with inside a fused add: below it nothing is aligned away
FAR_BELOW = -133


@dataclass(frozen=True)
class Term:
    """A product: exactly, and the exponent that a matrix unit gives it, the sum of both operands'."""

    value: Fraction
    exponent: int


@dataclass(frozen=True)
class Way:
    """One machine's way to a sum, and to what is made of it.

    ``adder``: ``nearest`` is float32, term by term; ``chopped`` and ``floored`` fuse ``length`` products, of which each
    keeps ``fraction`` bits below the largest; ``exact`` fuses and rounds once.
    """

    adder: str = "nearest"
    length: int = 1
    fraction: int = 24
    bits: int = BITS  #: of what a chopped sum is stored with: 14 on Ada and Hopper's fp8
    fused: bool = False  #: of ``nearest``: the product is not rounded before it is added
    tree: bool = False  #: of ``nearest``: a random binary tree, not a chain
    shuffled: bool = False
    parts: int = 1  #: K is split in so many, added up in float32
    window: int = 0  #: so many of K are summed from zero and promoted to float32; 0: all of them
    piece: int = 0  #: where scales belong to stretches, so many of K are scaled at once; 0: the stretch
    association: int = 0  #: (D·a)·b, (D·b)·a or D·(a·b)
    contracted: bool = False  #: the last multiplication and the addition after it round once


FUSED = tuple(Way("chopped", length, fraction) for length, fraction in ((4, 23), (8, 24), (16, 25), (32, 25), (4, 24)))
#: of fp8 on Ada and Hopper
NARROW = tuple(Way("chopped", length, 13, 14) for length in (16, 32))
NEAREST = (Way(), Way(fused=True), Way(tree=True))
GROUPS = (Way("exact", 4), Way("exact", 2), Way("floored", 8), Way("floored", 16))


def drawn(rng: Random, narrow: bool = False, promoted: int = 0) -> Way:
    """A way at random: of float32's class; or 13 bits, all along or up to ``promoted``."""
    base = rng.choice(NARROW if narrow else (*FUSED, *NEAREST, *GROUPS))
    return replace(
        base,
        shuffled=rng.random() < 0.5,
        parts=rng.choice((1, 1, 2, 3)),
        window=promoted or (0 if narrow else rng.choice((0, 0, 32, 128))),
        piece=rng.choice((0, 0, 16, 64)),
        association=rng.randrange(3),
        contracted=rng.random() < 0.5,
    )


def nearest(x: int, unit: int, bits: int = BITS, finest: int = FINEST) -> int:
    """To so many bits, ties to even; never finer than 2^finest."""
    size = abs(x)
    drop = max(size.bit_length() - bits, unit + finest)
    if drop <= 0 or not x:
        return x
    kept, rest = size >> drop, size & ((1 << drop) - 1)
    kept += 2 * rest > 1 << drop or (2 * rest == 1 << drop and kept & 1)
    return (kept << drop) * (1 if x > 0 else -1)


def chopped(x: int, drop: int) -> int:
    """Toward zero, to a multiple of 2^drop."""
    if drop <= 0:
        return x
    return (abs(x) >> drop << drop) * (1 if x > 0 else -1)


def floored(x: int, drop: int) -> int:
    """Down, to a multiple of 2^drop."""
    return x if drop <= 0 else x >> drop << drop


def rounded(x: Fraction, bits: int = BITS, finest: int = FINEST) -> Fraction:
    """The nearest number of so many bits, ties to even, of any fraction."""
    above, under = abs(x.numerator), x.denominator
    if not above:
        return x
    binade = above.bit_length() - under.bit_length()
    if Fraction(above, under) < Fraction(2) ** binade:
        binade -= 1
    spacing = Fraction(2) ** max(binade - bits + 1, finest)
    return round(x / spacing) * spacing  # Python rounds halves to even


class Machine:
    """Sums terms in one way. ``unit``: numbers are multiples of 2^-unit."""

    def __init__(self, way: Way, unit: int, rng: Random) -> None:
        self.way, self.unit, self.rng = way, unit, rng

    def add(self, x: int, y: int) -> int:
        """In float32."""
        return nearest(x + y, self.unit)

    def sum(self, terms: Sequence[tuple[int, int]]) -> int:
        """Terms are (number, exponent)."""
        order = list(terms)
        if self.way.shuffled:
            self.rng.shuffle(order)
        each = -(-len(order) // self.way.parts) or 1
        total = 0
        for start in range(0, len(order), each):
            total = self.add(total, self._windows(order[start : start + each]))
        return total

    def _windows(self, terms: Sequence[tuple[int, int]]) -> int:
        each, total = self.way.window or len(terms), 0
        for start in range(0, len(terms), each):
            total = self.add(total, self._of_unit(terms[start : start + each]))
        return total

    def _of_unit(self, terms: Sequence[tuple[int, int]]) -> int:
        if self.way.adder == "nearest":
            return self._tree([x for x, _ in terms]) if self.way.tree else self._chain([x for x, _ in terms])
        step: Callable[[int, Sequence[tuple[int, int]]], int] = {
            "chopped": self._chopped, "floored": self._floored, "exact": self._exact,
        }[self.way.adder]  # fmt: skip
        total = 0
        for start in range(0, len(terms), self.way.length):
            total = step(total, [t for t in terms[start : start + self.way.length] if t[0]])
        return total

    def _chain(self, products: Sequence[int]) -> int:
        total = 0
        for x in products:
            total = self.add(total, x if self.way.fused else nearest(x, self.unit))
        return total

    def _tree(self, products: Sequence[int]) -> int:
        found = [nearest(x, self.unit) for x in products]
        while len(found) > 1:
            at = self.rng.randrange(len(found) - 1)
            found[at : at + 2] = [self.add(found[at], found[at + 1])]
        return found[0] if found else 0

    def exponent(self, x: int) -> int:
        """Of a stored sum."""
        return max(abs(x).bit_length() - 1 - self.unit, NORMAL) if x else FAR_BELOW

    def _chopped(self, c: int, terms: Sequence[tuple[int, int]]) -> int:
        largest = max([self.exponent(c), *(e for _, e in terms)])
        drop = largest - self.way.fraction + self.unit
        total = sum(chopped(x, drop) for x in (c, *(x for x, _ in terms)))
        bits = self.way.bits
        return chopped(total, max(abs(total).bit_length() - bits, NORMAL - bits + 1 + self.unit))

    def _floored(self, c: int, terms: Sequence[tuple[int, int]]) -> int:
        """CDNA3: products toward zero to 24 bits, the dot and c down to a common exponent, one rounding."""
        if not terms:
            return c
        own = max(e for _, e in terms)
        dot = sum(chopped(x, own - 24 + self.unit) for x, _ in terms)
        both = max(own, self.exponent(c))
        total = floored(dot, both - 31 + self.unit) + floored(c, both - 24 + self.unit)
        return nearest(floored(total, abs(total).bit_length() - 32), self.unit)

    def _exact(self, c: int, terms: Sequence[tuple[int, int]]) -> int:
        return nearest(c + sum(x for x, _ in terms), self.unit)


def summed(terms: Sequence[Term], way: Way, rng: Random) -> Fraction:
    """What a machine makes of the sum of terms."""
    unit = max([-FINEST, *(t.value.denominator.bit_length() - 1 for t in terms)])
    whole = [(t.value.numerator << (unit + 1 - t.value.denominator.bit_length()), t.exponent) for t in terms]
    return Fraction(Machine(way, unit, rng).sum(whole), 1 << unit)
