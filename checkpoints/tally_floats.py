"""The census of numbers in IEEE's layouts, 16 to 64 bits wide: a few passes of simple operations over each piece.

A piece stays in a core's cache, magnitudes are integers (the code without its sign), and what most tensors have not
(NaN, infinity, zero, values beyond a destination) costs a pass only where the largest or the least magnitude says that
the piece has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.checkpoints import counted
from narrowgauge.checkpoints.counted import FIRST, Census, Landed, Seen
from narrowgauge.checkpoints.landing import Landing, destination, landing
from narrowgauge.contracts.formats import Format
from narrowgauge.reference.codec import decode, special_code

Codes = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]


class FloatTally:
    """Counts what it is shown of a tensor. Pieces come in order, none longer than ``longest`` elements."""

    def __init__(self, fmt: Format, into: Iterable[str], longest: int, exactness: bool = False) -> None:
        self.fmt = fmt
        self.landings = {to: landing(fmt, destination(to)) for to in into if to != fmt.name}
        self.landed = {to: Landed(inexact=0) for to in self.landings}
        self.exactness = exactness
        self.counts: dict[str, Any] = dict.fromkeys(counted.TOTALS, 0)
        self.most, self.least = 0, special_code(fmt)  # codes of magnitudes, the latter of infinity if there is none
        self.seen: dict[str, Seen] = {}
        self._signed = np.dtype(f"<i{fmt.storage.itemsize}")
        self._magnitudes = np.empty(longest, fmt.storage)
        self._mask = np.empty(longest, np.bool_)
        self._negative = Adder(longest)
        self._subnormal = {to: Adder(longest) for to in self.landings}

    def add(self, piece: npt.NDArray[np.uint8], first: int) -> None:
        """One piece: its bytes, and the place of its first element among all of the tensor."""
        codes = piece.view(self.fmt.storage)
        magnitudes = np.bitwise_and(codes, self.fmt.sign_bit - 1, out=self._magnitudes[: codes.size])
        signed = magnitudes.view(self._signed)  # compares and counts faster than unsigned
        mask = self._mask[: codes.size]
        most, least = int(signed.max()), int(signed.min())
        self.counts["elements"] += codes.size
        self._negative.add(np.less(codes.view(self._signed), 0, out=mask))
        zeros = 0
        if least == 0:
            zeros, least = self._zeros(codes, magnitudes)
        special = 0
        if most >= special_code(self.fmt):
            special, most = self._special(codes, magnitudes, first)
        self.most, self.least = max(self.most, most), min(self.least, least)
        for to, there in self.landings.items():
            self._lands(to, there, codes, signed, first, (most, least, zeros, special))

    def _zeros(self, codes: Codes, magnitudes: Codes) -> tuple[int, int]:
        """How many zeros, and the least magnitude that is none."""
        zeros = codes.size - counted.number(magnitudes)
        negative = counted.number(np.equal(codes, self.fmt.sign_bit, out=self._mask[: codes.size]))
        self.counts["zeros"] += zeros
        self.counts["negative_zeros"] += negative
        self.counts["negative"] -= negative
        above = np.subtract(magnitudes, 1)  # zero becomes the largest of all
        return zeros, min(int(above.min()) + 1, special_code(self.fmt))

    def _special(self, codes: Codes, magnitudes: Codes, first: int) -> tuple[int, int]:
        """NaN and infinities: how many, and the largest magnitude that is finite."""
        infinity = special_code(self.fmt)
        nan, plus, minus = magnitudes > infinity, codes == infinity, codes == infinity | self.fmt.sign_bit
        for name, kind, mask in (
            ("nan", counted.NAN, nan),
            ("plus_infinite", counted.PLUS_INFINITE, plus),
            ("minus_infinite", counted.MINUS_INFINITE, minus),
        ):
            self.counts[name] += counted.number(mask)
            self._see(kind, codes, mask, first)
        self.counts["negative"] -= counted.number(nan & (codes > infinity | self.fmt.sign_bit))
        finite = magnitudes < infinity
        return codes.size - counted.number(finite), int(magnitudes.max(initial=0, where=finite))

    def _lands(
        self, to: str, there: Landing, codes: Codes, signed: Codes, first: int, facts: tuple[int, int, int, int]
    ) -> None:
        """What one destination makes of a piece."""
        most, least, zeros, special = facts
        mask = self._mask[: codes.size]
        beyond = flushed = 0
        if most >= there.beyond:
            found = np.greater_equal(signed, there.beyond, out=mask)
            if special:
                found &= signed < special_code(self.fmt)
            beyond = counted.number(found)
            self._see(counted.beyond(to), codes, found, first)
        if least < there.some:
            found = np.less(signed, there.some, out=mask)
            if zeros:
                found &= signed > 0
            flushed = counted.number(found)
            self._see(counted.flushed(to), codes, found, first)
        small = 0
        if least < there.normal:
            self._subnormal[to].add(np.less(signed, there.normal, out=mask))
            small = zeros + flushed  # which are no subnormal numbers there
        inexact = self._inexact(there, signed, (most, least)) if self.exactness else None
        if not there.dropped and most < there.beyond and least >= there.whole:
            inexact = 0
        self.landed[to] += Landed(beyond, flushed, -small, inexact)

    def _inexact(self, there: Landing, signed: Codes, facts: tuple[int, int]) -> int:
        """How many finite values become others, among them those that become zero or lie beyond."""
        most, least = facts
        infinity, lost = special_code(self.fmt), (1 << there.dropped) - 1
        regular = self._regular(signed, there) & (signed & lost != 0) if lost else np.zeros(signed.size, np.bool_)
        total = counted.number(regular)
        if most >= there.beyond:
            total += counted.number((signed >= there.beyond) & (signed < infinity))
        if least < there.whole:
            small = signed[(signed < there.whole) & (signed > 0) & (signed < there.beyond)]
            total += counted.number(changes(decode(small.view(self.fmt.storage), self.fmt), there.to))
        return total

    @staticmethod
    def _regular(signed: Codes, there: Landing) -> Mask:
        """Magnitudes of which the lower bits are what is lost."""
        mask: Mask = (signed >= there.whole) & (signed < there.beyond)
        return mask

    def _see(self, kind: str, codes: Codes, mask: Mask, first: int) -> None:
        """Keep the first places of a kind of trouble."""
        if len(self.seen.get(kind, ())) == FIRST:
            return
        found = np.flatnonzero(mask)[:FIRST]
        new = tuple(zip((found + first).tolist(), codes[found].tolist(), strict=True))
        if new:
            self.seen = counted.merged(self.seen, {kind: new})

    def result(self, shape: tuple[int, ...]) -> Census:
        """What has been counted. To be asked for once."""
        self.counts["negative"] += self._negative.total()
        into = {to: landed + Landed(subnormal=self._subnormal[to].total()) for to, landed in self.landed.items()}
        most, least = decode(np.array([self.most, self.least], self.fmt.storage), self.fmt).tolist()
        return Census(self.fmt.name, shape, **self.counts, amax=most, least=least, into=into, seen=self.seen)


def changes(values: npt.NDArray[np.float64], to: Format) -> Mask:
    """Whether each value, which is not zero and not beyond the destination's largest, is none of its values."""
    _, exponent = np.frexp(values)  # a value is at least 2^(exponent - 1)
    last = np.maximum(exponent - 1, 1 - to.bias) - to.mantissa  # of the destination's last place, as a power of two
    places = np.ldexp(values, -last)
    changed: Mask = places != np.rint(places)
    return changed


class Adder:
    """Counts what is true in masks: sums stand in bytes, one for each place of a piece, until a byte could overflow.

    Adding a mask costs half of what counting it does; the sums are counted once in 255 pieces.
    """

    def __init__(self, longest: int) -> None:
        self._sums = np.zeros(longest, np.uint8)
        self._pieces = self._counted = 0

    def add(self, mask: Mask) -> None:
        if self._pieces == 255:
            self._counted, self._pieces = self.total(), 0
            self._sums.fill(0)
        sums = self._sums[: mask.size]
        np.add(sums, mask.view(np.uint8), out=sums)
        self._pieces += 1

    def total(self) -> int:
        return self._counted + int(self._sums.sum(dtype=np.int64))
