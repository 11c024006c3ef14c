"""What a model answers: one code per lane where the instruction set fixes it, else a set or an interval.

``first`` is the answer that an emulator goes on with; the others are what the same words allow. A NaN stands for every
NaN of its format: payload and sign of a NaN are open in both instruction sets, and are compared as a class.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Answers:
    """A finite set per lane: ``first`` and, each of the same shape, ``others``."""

    first: Bits
    others: tuple[Bits, ...] = ()

    def open(self) -> Mask:
        """Lanes where the words allow more than one code."""
        several = np.zeros(self.first.shape, bool)
        for other in self.others:
            several |= other != self.first
        return several

    def allows(self, codes: Bits) -> Mask:
        """Lanes where ``codes`` is one of the answers (as bits)."""
        allowed: Mask = codes == self.first
        for other in self.others:
            allowed = allowed | (codes == other)
        return allowed

    def end(self, high: bool) -> Bits:
        """The answer that is smallest or largest as a pattern; of packed elements, each one's."""
        ends: Bits = (np.maximum if high else np.minimum).reduce([self.first, *self.others])
        return ends

    def pick(self, random: npt.NDArray[np.uint64]) -> Bits:
        """The answer that 64 random bits in each lane point at."""
        return np.choose((random % np.uint64(1 + len(self.others))).astype(np.intp), [self.first, *self.others])


@dataclass(frozen=True)
class Band:
    """An interval of binary32 per lane, ends included; where ``first`` is NaN, NaN is the only answer."""

    first: Bits
    low: Bits
    high: Bits

    def open(self) -> Mask:
        several: Mask = self.low != self.high
        return several

    def allows(self, codes: Bits) -> Mask:
        """Lanes where the binary32 pattern lies within the band. -0 lies below +0."""
        inside = (_key(self.low) <= _key(codes)) & (_key(codes) <= _key(self.high))
        return np.where(_is_nan(self.first), _is_nan(codes), inside & ~_is_nan(codes))

    def end(self, high: bool) -> Bits:
        """The smallest or largest value, ``first`` where NaN is the only answer."""
        return np.where(_is_nan(self.first), self.first, self.high if high else self.low)

    def pick(self, random: npt.NDArray[np.uint64]) -> Bits:
        """The value that 64 random bits in each lane point at, evenly over the patterns from ``low`` to ``high``."""
        low, high = _key(self.low), _key(self.high)
        place = low + (random % (high - low + 1).astype(np.uint64)).astype(np.int64)
        return np.where(self.open() & ~_is_nan(self.first), _pattern(place), self.first)


@dataclass(frozen=True)
class Model:
    """One instruction.

    ``inputs`` and ``output`` name what the operands hold. Every operand and result is a uint32 array of bit patterns,
    one element a lane, zero-extended; two halves are one element as the register has them. ``clause`` cites what the
    model was written from, ``open`` says what that leaves open and what ``first`` does there.
    """

    name: str
    inputs: tuple[str, ...]
    output: str
    clause: str
    run: Callable[..., Answers | Band | tuple[Answers, ...]]
    open: str = ""

    @property
    def title(self) -> str:
        """The name with the edition that it was written from, as a verdict has it."""
        return f"{self.name} ({self.clause.partition(',')[0].replace(' ISA', '')})"


def packed(parts: Sequence[Answers], width: int) -> Answers:
    """One register of several elements, the first in the lowest bits; every combination of the answers."""
    choices = [(part.first, *part.others) for part in parts]
    words = [_word(combination, width) for combination in itertools.product(*choices)]
    return Answers(words[0], tuple(words[1:]))


def _word(fields: Sequence[Bits], width: int) -> Bits:
    word = fields[0].astype(np.uint32)
    for place, field in enumerate(fields[1:], start=1):
        word = word | (field.astype(np.uint32) << np.uint32(place * width))
    return word


def _key(bits: Bits) -> npt.NDArray[np.int64]:
    """A number that orders binary32 patterns as their values."""
    magnitude = (bits & np.uint32(0x7FFFFFFF)).astype(np.int64)
    return np.where(bits >> np.uint32(31) == 1, -1 - magnitude, magnitude)


def _pattern(key: npt.NDArray[np.int64]) -> Bits:
    """The binary32 pattern of a ``_key``."""
    return np.where(key < 0, -1 - key | 0x80000000, key).astype(np.uint32)


def _is_nan(bits: Bits) -> Mask:
    beyond: Mask = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return beyond
