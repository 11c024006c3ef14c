"""The census of formats of at most 8 bits: how often each code stands in a tensor. All else follows from that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from math import inf

import numpy as np
import numpy.typing as npt

from narrowgauge.checkpoints import counted
from narrowgauge.checkpoints.counted import FIRST, Census, Landed, Seen
from narrowgauge.checkpoints.landing import DESTINATIONS, destination
from narrowgauge.contracts.formats import Format, format_named
from narrowgauge.reference.codec import decode, encode, values
from narrowgauge.reference.landmarks import EXACT, smallest_normal, top_code

Histogram = npt.NDArray[np.int64]
#: bytes that are counted at once: places of their pairs, as 64-bit integers, stay in a core's cache
_BLOCK = 1 << 16
#: pairs that a count in the table of pairs can hold
FULL = 1 << 32
#: bytes whose first places are kept whatever the format: extremes of some flavour of it
_ALWAYS = (0x00, 0x7F, 0x80, 0xFE, 0xFF)


class CodeTally:
    """Counts pairs of bytes, for there is a fast operation that adds one at given places of a table.

    Two bytes at once take one step, and a table of pairs still fits into a core's cache. Pieces come in order.
    """

    def __init__(self, fmt: Format, into: Iterable[str]) -> None:
        self.fmt = fmt
        self.into = tuple(into)
        self.seen: dict[str, Seen] = {}
        self._pairs = np.zeros(1 << 16, np.uint32)
        self._single = np.zeros(256, np.int64)  # bytes that are in no pair of the table
        self._waiting = 0  # pairs in the table
        self._places = np.empty(_BLOCK // 2, np.int64)
        self._watched = watched(fmt)
        self._had = np.zeros(len(self._watched), np.int64)

    def add(self, piece: npt.NDArray[np.uint8], first: int) -> None:
        """One piece: its bytes, and the place of its first element among all of the tensor."""
        even = piece[: piece.size // 2 * 2].view("<u2")
        if self._waiting + even.size >= FULL:
            self._single, self._waiting = self._bytes(), 0
            self._pairs.fill(0)
        for start in range(0, even.size, self._places.size):
            block = even[start : start + self._places.size]
            places = self._places[: block.size]
            places[:] = block
            np.add.at(self._pairs, places, np.uint32(1))
        self._waiting += even.size
        self._single[piece[2 * even.size :]] += 1
        if self._watched:
            self._watch(piece, first)

    def _bytes(self) -> Histogram:
        table = self._pairs.reshape(256, 256)  # [second byte, first byte]
        counts: Histogram = self._single + table.sum(axis=0, dtype=np.int64) + table.sum(axis=1, dtype=np.int64)
        return counts

    def _watch(self, piece: npt.NDArray[np.uint8], first: int) -> None:
        """Keep the first places of codes of which the table has more than before this piece."""
        table, codes = self._pairs.reshape(256, 256), list(self._watched)
        pairs = table[codes].sum(axis=1, dtype=np.int64) + table[:, codes].sum(axis=0, dtype=np.int64)
        have = self._single[codes] + pairs
        for code in (c for c, now, had in zip(codes, have, self._had, strict=True) if now != had):
            places = np.flatnonzero(piece == code)[:FIRST] + first
            kind = counted.code(code)
            self.seen = counted.merged(self.seen, {kind: tuple((place, code) for place in places.tolist())})
        self._had = have

    def result(self, shape: tuple[int, ...]) -> Census:
        """What has been counted."""
        codes = self._bytes()
        if self.fmt.bits == 4:
            both = codes.reshape(16, 16)  # [high nibble, low nibble]
            codes = both.sum(axis=0) + both.sum(axis=1)
        return of_codes(codes, self.fmt, shape, self.into, self.seen)


@cache
def watched(fmt: Format) -> tuple[int, ...]:
    """Codes of a format of 8 bits whose first places are kept: of NaN and infinity, and the extremes of any flavour."""
    if fmt.bits != 8:
        return ()
    return tuple(sorted({*_ALWAYS, *np.flatnonzero(~np.isfinite(values(fmt))).tolist()}))


def of_codes(
    codes: Histogram, fmt: Format, shape: tuple[int, ...], into: Iterable[str], seen: Mapping[str, Seen]
) -> Census:
    """The census that follows from how often each code stands in a tensor."""
    value = values(fmt)
    nan, finite, zero = np.isnan(value), np.isfinite(value), value == 0

    def count(where: npt.NDArray[np.bool_]) -> int:
        return int(codes[where].sum())

    there = np.abs(value[finite & (codes > 0)])
    least = there[there > 0]
    to = () if fmt.family == "integer" else [destination(name) for name in into if name != fmt.name]
    return Census(
        fmt.name,
        shape,
        elements=int(codes.sum()),
        nan=count(nan),
        plus_infinite=count(value == inf),
        minus_infinite=count(value == -inf),
        zeros=count(zero),
        negative_zeros=count(zero & np.signbit(value)),
        negative=count(value < 0),
        amax=float(there.max(initial=0.0)),
        least=float(least.min()) if least.size else inf,
        into={t.name: _landed(codes, value, t) for t in to},
        codes=codes,
        seen=_with_specials(value, seen),
    )


def _with_specials(value: npt.NDArray[np.float64], seen: Mapping[str, Seen]) -> dict[str, Seen]:
    """The first places of NaN and of infinities besides those of their codes."""
    found = dict(seen)
    for kind, where in (
        (counted.NAN, np.isnan(value)),
        (counted.PLUS_INFINITE, value == inf),
        (counted.MINUS_INFINITE, value == -inf),
    ):
        for code in np.flatnonzero(where).tolist():
            found = counted.merged(found, {kind: seen.get(counted.code(code), ())})
    return {kind: places for kind, places in found.items() if places}


def _landed(codes: Histogram, value: npt.NDArray[np.float64], to: Format) -> Landed:
    """What becomes of each finite code, as often as it stands there."""
    there = np.isfinite(value) & (codes > 0)
    often, real = codes[there], value[there]
    magnitude = encode(np.abs(real), to, EXACT).astype(np.int64)
    beyond = magnitude > top_code(to)
    back = decode(np.where(beyond, 0, magnitude).astype(to.storage), to)
    nonzero = real != 0
    return Landed(
        beyond=int(often[beyond].sum()),
        flushed=int(often[nonzero & (magnitude == 0)].sum()),
        subnormal=int(often[(magnitude > 0) & (magnitude < smallest_normal(to))].sum()),
        inexact=int(often[beyond | (back != np.abs(real))].sum()),
    )


def read_as(census: Census, name: str, into: Iterable[str] = DESTINATIONS) -> Census:
    """The same codes read as another format of as many bits: what follows from them then."""
    assert census.codes is not None
    seen = {kind: places for kind, places in census.seen.items() if kind.startswith("code")}
    return of_codes(census.codes, format_named(name), census.shape, into, seen)
