"""What a picture of a mismatch shows, as numbers: for casts the number line around single inputs, and how far each is
off; for matrices where in them elements differ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import Format, format_named
from narrowgauge.reference.compare import Difference
from narrowgauge.reference.distance import is_finite, rank
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.interval import Interval
from narrowgauge.reference.landmarks import top_code
from narrowgauge.reference.showing import show

#: inputs that have a number line of their own; codes on either side of what should have come; and codes between that
#: and what came, beyond which the latter stands at the end of the line
LANES, AROUND, FAR = 5, 2, 5
#: a matrix with more elements than this on a side is shown in so many stretches; one is wrong where an element is
SIDE = 256


@dataclass(frozen=True)
class Tick:
    """A value of the format on a lane; neighbours are one apart."""

    place: int
    value: float
    code: int


@dataclass(frozen=True)
class Lane:
    """One input on the number line of the destination."""

    given: str  #: the input, its result and what it should be, as value and bits
    got: str
    want: str
    ticks: tuple[Tick, ...]
    at: float  #: place of the input; beyond the ends of the line where it has none
    got_at: float | None  #: None for NaN, infinity, and what is no code
    want_at: float | None


def lanes(x: Coded, got: Coded, want: Interval, difference: Difference) -> list[Lane]:
    """Number lines of some inputs that differ, of each class of difference and sign, the smallest inputs first."""
    mask = difference.mask("codes").ravel()
    places = np.flatnonzero(mask)
    values = decode_values(Coded(x.format, x.data.ravel()[places]))
    classes = difference.classes["codes"].ravel()[places]
    order = np.lexsort((np.abs(values), np.isnan(values)))
    kinds: dict[tuple[int, bool], list[int]] = {}
    for at in order:
        kinds.setdefault((int(classes[at]), bool(np.signbit(values[at]))), []).append(int(places[at]))
    chosen: list[int] = []
    while kinds and len(chosen) < LANES:  # one of each kind in turn, spread over its inputs
        for kind in list(kinds):
            own = kinds[kind]
            chosen.append(own.pop(0 if len(chosen) % 2 == 0 else len(own) // 2))
            if not own:
                del kinds[kind]
    return [_lane(x, got, want, place) for place in chosen[:LANES]]


def _lane(x: Coded, got: Coded, want: Interval, place: int) -> Lane:
    fmt = format_named(got.format)
    given, mine, low, high = (Coded(t.format, t.data.ravel()[place]) for t in (x, got, want.low, want.high))
    value = float(decode_values(Coded(x.format, x.data.ravel()[place : place + 1]))[0])
    ends = [show(low), show(high)]
    there, right = _place(mine, fmt), _place(low, fmt)
    middle = right if right is not None else there if there is not None else _edge(value, fmt)
    other = there if there is not None and abs(there - middle) <= FAR else middle
    lowest = 0 if fmt.sign_bit == 0 else -top_code(fmt) - (fmt.family == "integer")
    ranks = np.arange(max(min(middle, other) - AROUND, lowest), min(max(middle, other) + AROUND, top_code(fmt)) + 1)
    codes = code_of_rank(ranks, fmt)
    reals = decode_values(Coded(fmt.name, codes))
    at = float(np.interp(value, reals, ranks, left=ranks[0] - 0.7, right=ranks[-1] + 0.7))
    return Lane(
        given=show(given),
        got=show(mine),
        want=ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}",
        ticks=tuple(Tick(int(r), float(v), int(c)) for r, v, c in zip(ranks, reals, codes, strict=True)),
        at=at,
        got_at=None if there is None else float(np.clip(there, ranks[0] - 0.7, ranks[-1] + 0.7)),
        want_at=None if right is None else float(right),
    )


def _place(code: Coded, fmt: Format) -> int | None:
    if not 0 <= int(code.data) < fmt.code_count:
        return None
    one = np.array([int(code.data)], fmt.storage)
    return int(rank(one, fmt)[0]) if is_finite(one, fmt)[0] else None


def _edge(value: float, fmt: Format) -> int:
    """Where an input belongs that becomes no number on either side: at the end of its sign; NaN at the upper one."""
    return -top_code(fmt) if value < 0 and fmt.sign_bit else top_code(fmt)


def code_of_rank(ranks: npt.NDArray[np.int64], fmt: Format) -> npt.NDArray[np.unsignedinteger]:
    """The code at each place in the order of values, the opposite of ``rank``; at 0 that of positive zero."""
    below = ranks + fmt.code_count if fmt.family == "integer" else fmt.sign_bit | -ranks
    return np.where(ranks < 0, below, ranks).astype(fmt.storage)


@dataclass(frozen=True, eq=False)
class Overview:
    """Every input of a cast, and by how many codes its result is off; NaN where either is no number."""

    inputs: npt.NDArray[np.float64]
    apart: npt.NDArray[np.float64]
    wrong: npt.NDArray[np.bool_]


def overview(x: Coded, got: Coded, want: Interval, difference: Difference) -> Overview:
    """``apart`` is to the nearer end of what may come, and 0 within it."""
    fmt = format_named(got.format)
    inside = (got.data >= 0) & (got.data < fmt.code_count)
    mine = np.where(inside, got.data, 0).astype(fmt.storage).ravel()
    low, high = want.low.data.ravel(), want.high.data.ravel()
    at, down, up = (rank(codes, fmt) for codes in (mine, low, high))
    apart = np.where(at < down, at - down, np.maximum(at - up, 0)).astype(np.float64)
    numbers = is_finite(mine, fmt) & is_finite(low, fmt) & is_finite(high, fmt) & inside.ravel()
    apart[~numbers] = np.nan
    return Overview(decode_values(Coded(x.format, x.data.ravel())), apart, difference.mask("codes").ravel())


def as_matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    """A tensor of any shape as rows and columns: its last axis are the columns."""
    columns = shape[-1] if shape else 1
    return (int(np.prod(shape[:-1], dtype=np.int64)) if shape else 1, columns)


def shrunk(classes: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.uint8], tuple[int, int]]:
    """Classes of difference as rows and columns, at most ``SIDE`` of each, and how many elements one stands for. Where
    several do, the rarest class of their difference is kept."""
    rows, columns = as_matrix(classes.shape)
    each = (-(-rows // SIDE), -(-columns // SIDE))
    padded = np.zeros((-(-rows // each[0]) * each[0], -(-columns // each[1]) * each[1]), np.uint8)
    padded[:rows, :columns] = classes.reshape(rows, columns)
    blocks = padded.reshape(padded.shape[0] // each[0], each[0], padded.shape[1] // each[1], each[1])
    counts = np.bincount(classes.ravel(), minlength=1)
    by_rarity = sorted(np.flatnonzero(counts[1:]) + 1, key=lambda number: -counts[number])
    found = np.zeros((blocks.shape[0], blocks.shape[2]), np.uint8)
    for number in by_rarity:
        found[(blocks == number).any(axis=(1, 3))] = number
    return found, each
