"""The census of numbers in IEEE's layouts, 16 to 64 bits wide: a few passes of simple operations over each piece.

A piece stays in a core's cache, magnitudes are integers (the code without its sign), and what most tensors have not
(NaN, infinity, zero, values beyond a destination) costs a pass only where the largest or the least magnitude says that
the piece has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
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

    def __init__(
        self, fmt: Format, into: Iterable[str], longest: int, signs: bool = True, exactness: bool = False
    ) -> None:
        self.fmt = fmt
        self.exactness = exactness
        self.counts: dict[str, Any] = dict.fromkeys(counted.TOTALS, 0)
        self.most, self.least = 0, special_code(fmt)  # codes of magnitudes, the latter of infinity if there is none
        self.seen: dict[str, Seen] = {}
        # Compares of signed integers are faster, and operands that are arrays spare a conversion in each call.
        self._signed = np.dtype(f"<i{fmt.storage.itemsize}")
        self._zero, self._unsigned = (np.array(code, self._signed) for code in (0, fmt.sign_bit - 1))
        self._into = [_Into(landing(fmt, destination(to)), self._signed) for to in into if to != fmt.name]
        self._one, self._lowest = np.array(1, self._signed), int(np.iinfo(self._signed).min)
        self._magnitudes, self._above = np.empty(longest, self._signed), np.empty(longest, self._signed)
        self._is_zero = np.empty(longest, np.bool_)
        self._signs, self._others = Masks(1, longest) if signs else None, 0  # the latter: of zeros and NaN
        self._subnormal = Masks(len(self._into), longest)

    def add(self, piece: npt.NDArray[np.uint8], first: int) -> None:
        """One piece: its bytes, and the place of its first element among all of the tensor."""
        codes = piece.view(self._signed)
        magnitudes = self._magnitudes[: codes.size]
        np.bitwise_and(codes, self._unsigned, magnitudes)
        run = Run(codes, magnitudes, first, int(magnitudes.max()), int(magnitudes.min()))
        if self._signs:
            np.less(codes, self._zero, self._signs.of(codes.size)[0])
            self._signs.count(codes.size)
        if run.least == 0:
            self._zeros(run)
        if run.most >= special_code(self.fmt):
            self._special(run)
        self.most, self.least = max(self.most, run.most), min(self.least, run.least)
        for there, mask in zip(self._into, self._subnormal.of(codes.size), strict=True):
            self._lands(there, run, mask)
        self._subnormal.count(codes.size)
        self.counts["elements"] += codes.size

    def _zeros(self, run: Run) -> None:
        """Count zeros, and find the least magnitude that is none."""
        zero = np.equal(run.magnitudes, self._zero, self._is_zero[: run.magnitudes.size])
        run.zeros = int(np.count_nonzero(zero))
        if int(run.codes.min()) == self._lowest:  # that of -0: every other negative number is above
            negative = int(np.count_nonzero(run.codes == self._lowest))
            self.counts["negative_zeros"] += negative
            self._others += negative
        self.counts["zeros"] += run.zeros
        above = np.subtract(run.magnitudes, self._one, self._above[: run.magnitudes.size])
        run.least = min(int(above.view(self.fmt.storage).min()) + 1, special_code(self.fmt))  # zero became the largest

    def _special(self, run: Run) -> None:
        """Count NaN and infinities, and find the largest magnitude that is finite."""
        infinity = special_code(self.fmt)
        nan, infinite = run.magnitudes > infinity, run.magnitudes == infinity
        for name, kind, mask in (
            ("nan", counted.NAN, nan),
            ("plus_infinite", counted.PLUS_INFINITE, infinite & ~(run.codes < 0)),
            ("minus_infinite", counted.MINUS_INFINITE, infinite & (run.codes < 0)),
        ):
            self.counts[name] += counted.number(mask)
            self._see(kind, run, mask)
        self._others += counted.number(nan & (run.codes < 0))
        run.most = int(run.magnitudes.max(initial=0, where=run.magnitudes < infinity))

    def _lands(self, into: _Into, run: Run, subnormal: Mask) -> None:
        """What one destination makes of a piece. The mask is for its subnormal numbers, and all that is smaller."""
        there, flushed = into.landing, 0
        if run.most >= there.beyond:
            beyond = (run.magnitudes >= there.beyond) & (run.magnitudes < special_code(self.fmt))
            into.beyond += counted.number(beyond)
            self._see(counted.beyond(there.to.name), run, beyond)
        if run.least < there.some:
            smallest = run.magnitudes < into.some
            if run.zeros:
                smallest &= run.magnitudes > 0
            flushed = counted.number(smallest)
            into.flushed += flushed
            self._see(counted.flushed(there.to.name), run, smallest)
        if run.least < there.normal:
            np.less(run.magnitudes, into.normal, subnormal)
            into.smaller += run.zeros + flushed
        else:
            subnormal.fill(False)
        if there.dropped or run.most >= there.beyond or run.least < there.whole:
            into.sure = False
            if self.exactness:
                into.inexact += self._inexact(there, run)

    def _inexact(self, there: Landing, run: Run) -> int:
        """How many finite values become others, among them those that become zero or lie beyond."""
        total, magnitudes = 0, run.magnitudes
        if there.dropped:
            lost = magnitudes & ((1 << there.dropped) - 1) != 0
            total = counted.number(lost & (magnitudes >= there.whole) & (magnitudes < there.beyond))
        if run.most >= there.beyond:
            total += counted.number((magnitudes >= there.beyond) & (magnitudes < special_code(self.fmt)))
        if run.least < there.whole:
            small = magnitudes[(magnitudes > 0) & (magnitudes < there.whole)]
            total += counted.number(changes(decode(small.view(self.fmt.storage), self.fmt), there.to))
        return total

    def _see(self, kind: str, run: Run, mask: Mask) -> None:
        """Keep the first places of a kind of trouble."""
        if len(self.seen.get(kind, ())) == FIRST:
            return
        found = np.flatnonzero(mask)[:FIRST]
        codes = run.magnitudes[found].view(self.fmt.storage)
        codes[run.codes[found] < 0] |= self.fmt.storage.type(self.fmt.sign_bit)
        new = tuple(zip((found + run.first).tolist(), codes.tolist(), strict=True))
        if new:
            self.seen = counted.merged(self.seen, {kind: new})

    def result(self, shape: tuple[int, ...]) -> Census:
        """What has been counted. To be asked for once."""
        negative = None if self._signs is None else self._signs.totals()[0] - self._others
        into = {
            there.landing.to.name: there.result(small, self.exactness)
            for there, small in zip(self._into, self._subnormal.totals(), strict=True)
        }
        most, least = decode(np.array([self.most, self.least], self.fmt.storage), self.fmt).tolist()
        return Census(
            self.fmt.name, shape, **self.counts, negative=negative, amax=most, least=least, into=into, seen=self.seen
        )


@dataclass
class Run:
    """A piece as the steps of a census see it."""

    codes: Codes  #: as signed integers: those of negative numbers are below zero
    magnitudes: Codes  #: codes without their signs
    first: int  #: the place of the first element among all of the tensor
    most: int  #: the largest magnitude, later the largest that is finite
    least: int  #: the smallest magnitude, later the smallest that is not zero
    zeros: int = 0


class _Into:
    """One destination: its thresholds, and what has been counted so far."""

    def __init__(self, there: Landing, signed: np.dtype[Any]) -> None:
        self.landing = there
        self.some, self.normal = (np.array(code, signed) for code in (there.some, there.normal))
        self.beyond = self.flushed = self.inexact = 0
        self.smaller = 0  # zeros, and what becomes zero, where they are in the mask of subnormal numbers
        self.sure = True  # whether no number can have become another

    def result(self, small: int, exactness: bool) -> Landed:
        inexact = self.inexact if exactness or self.sure else None
        return Landed(self.beyond, self.flushed, small - self.smaller, inexact)


def changes(values: npt.NDArray[np.float64], to: Format) -> Mask:
    """Whether each value, which is not zero and not beyond the destination's largest, is none of its values."""
    _, exponent = np.frexp(values)  # a value is at least 2^(exponent - 1)
    last = np.maximum(exponent - 1, 1 - to.bias) - to.mantissa  # of the destination's last place, as a power of two
    places = np.ldexp(values, -last)
    changed: Mask = places != np.rint(places)
    return changed


class Masks:
    """Several masks of a piece, and how often each was true: sums stand in bytes, one for each place of a piece.

    Adding a mask costs half of what counting it does. The sums are counted once in 255 pieces, before a byte overflows.
    """

    def __init__(self, count: int, longest: int) -> None:
        self._masks = np.zeros((count, longest), np.bool_)
        self._sums = np.zeros((count, longest), np.uint8)
        self._pieces, self._counted = 0, np.zeros(count, np.int64)

    def of(self, size: int) -> npt.NDArray[np.bool_]:
        """The masks [count, size] of a piece of so many elements, to be filled."""
        return self._masks[:, :size]

    def count(self, size: int) -> None:
        """Count what is true in the masks of a piece."""
        if self._pieces == 255:
            self._counted += self._sums.sum(axis=1, dtype=np.int64)
            self._sums.fill(0)
            self._pieces = 0
        sums = self._sums[:, :size]
        np.add(sums, self._masks[:, :size].view(np.uint8), sums)
        self._pieces += 1

    def totals(self) -> list[int]:
        """How often each was true."""
        return [int(total) for total in self._counted + self._sums.sum(axis=1, dtype=np.int64)]
