"""Wrong writers and readers of caches: the right outputs but for a mistake that a kernel could make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.operations import Claim
from narrowgauge.reference.behaviour import paged_behaviour
from narrowgauge.reference.expected import expected
from narrowgauge.reference.interval import Expected
from narrowgauge.reference.kv.call import places_of
from narrowgauge.reference.kv.outputs import stored_rows

Array = npt.NDArray[np.unsignedinteger]
F64 = npt.NDArray[np.float64]
Buffers = dict[str, Coded]
Wrong = Callable[[Claim, Input], Buffers]


@lru_cache(maxsize=128)
def right_outputs(claim: Claim, x: Input) -> Expected:
    """What is expected; of one call it is asked for several times."""
    return expected(claim, x)


@dataclass(frozen=True)
class Call:
    """A call, and its right outputs, which may be changed."""

    claim: Claim
    x: Input
    out: dict[str, Array]

    def numbers(self, name: str) -> npt.NDArray[np.int64]:
        return self.x.given[name].data.view(np.int32).astype(np.int64)

    @property
    def heads(self) -> int:
        return int(self.numbers("sizes").ravel()[0])

    @property
    def block(self) -> int:
        return int(self.numbers("sizes").ravel()[1])

    @property
    def slots(self) -> npt.NDArray[np.int64]:
        """Of a writer's tokens that are no padding."""
        slots = self.numbers("slots").ravel()
        return slots[slots >= 0]

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """Rows of outputs that hold what the call is about: written slots, or all."""
        return np.unique(self.slots) if "slots" in self.x.given else np.arange(len(next(iter(self.out.values()))))

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        return self.numbers("lengths").ravel()

    @property
    def sequence(self) -> npt.NDArray[np.int64]:
        """Of each row of outputs: that of its token, or its own number."""
        per_row = np.ones_like(self.lengths) if "query" in self.x.given else self.lengths
        return np.repeat(np.arange(self.lengths.size), per_row)

    @property
    def token(self) -> npt.NDArray[np.int64]:
        """Of each row of outputs: its place in its sequence; of attention the last one."""
        if "query" in self.x.given:
            return self.lengths - 1
        return np.concatenate([np.arange(n) for n in self.lengths]) if self.lengths.size else self.lengths

    def spoil(self, rows: object, columns: object = slice(None), only: str = "") -> None:
        """Other numbers in some rows and columns: bits turned over, or of a writer what the cache held."""
        for name, data in self.out.items():
            if only in ("", name):
                held = self.x.given.get(f"held.{name}")
                old = data if held is None else held.data
                part = np.zeros(data.shape, np.bool_)
                part[np.ix_(_numbers(rows, data.shape[0]), _numbers(columns, data.shape[1]))] = True
                data[part] = old[part] if held is not None else _turned(data[part])


def _numbers(which: object, count: int) -> npt.NDArray[np.int64]:
    return np.arange(count)[which]  # type: ignore[no-any-return,call-overload]


def _turned(codes: Array) -> Array:
    """Half as many exponents away: far outside any interval."""
    return codes ^ np.array(3 << (8 * codes.dtype.itemsize - 3), codes.dtype)


def edited(change: Callable[[Call], object]) -> Wrong:
    """The right outputs, changed."""

    def wrong(claim: Claim, x: Input) -> Buffers:
        right = right_outputs(claim, x)
        call = Call(claim, x, {name: value.low.data.copy() for name, value in right.items()})
        change(call)
        return {name: Coded(right[name].format, data) for name, data in call.out.items()}

    return wrong


def given(change: Callable[[Call], dict[str, Coded]]) -> Wrong:
    """The right answer to another call."""

    def wrong(claim: Claim, x: Input) -> Buffers:
        other = Input(x.format, x.data, {**x.given, **change(Call(claim, x, {}))})
        return {name: value.low for name, value in expected(claim, other).items()}

    return wrong


def _int32(numbers: npt.NDArray[np.int64], like: Coded) -> Coded:
    return Coded("int32", numbers.astype(np.int32).view(np.uint32).reshape(like.shape))


# --- mistakes of writers and readers ---------------------------------------------------------------------------------


def columns(lost: Callable[[int], slice]) -> Wrong:
    """Some columns of every head are not handled; ``lost`` is given the head's size."""

    def change(call: Call) -> None:
        for name, data in call.out.items():
            width = (call.x.given["v"] if name == "output" else data).shape[1] // call.heads
            some = np.arange(width)[lost(width)]
            call.spoil(call.rows, (np.arange(0, data.shape[1], width)[:, None] + some[None]).ravel(), name)

    return edited(change)


def heads(lost: Callable[[int], slice]) -> Wrong:
    """Some heads are not handled."""

    def change(call: Call) -> None:
        for name, data in call.out.items():
            width = data.shape[1] // call.heads
            some = np.arange(call.heads)[lost(call.heads)]
            call.spoil(call.rows, (some[:, None] * width + np.arange(width)[None]).ravel(), name)

    return edited(change)


def places(fold: int) -> Wrong:
    """The place in a page is taken modulo too few slots."""

    def change(call: Call) -> dict[str, Coded]:
        if "slots" in call.x.given:
            slots = call.numbers("slots")
            moved = np.where(slots < 0, slots, slots // call.block * call.block + slots % call.block % fold)
            return {"slots": _int32(moved, call.x.given["slots"])}
        pages = np.arange(call.x.shape[0]) // call.block * call.block
        rows = pages + np.arange(call.x.shape[0]) % call.block % fold
        return {"": Coded(call.x.format, call.x.data[rows])} | {
            name: Coded(v.format, v.data[rows]) for name, v in call.x.given.items() if v.shape[0] == call.x.shape[0]
        }

    def wrong(claim: Claim, x: Input) -> Buffers:
        other = change(Call(claim, x, {}))
        first = other.pop("", x)
        made = expected(claim, Input(x.format, first.data, {**x.given, **other}))
        return {name: value.low for name, value in made.items()}

    return wrong


def neighbours_exchanged(call: Call) -> None:
    """Where a page is one slot."""
    if call.block == 1:
        for data in call.out.values():
            data[: len(data) // 2 * 2] = (
                data[: len(data) // 2 * 2].reshape(-1, 2, data.shape[1])[:, ::-1].reshape(-1, data.shape[1])
            )


def small_scale(part: str, least: float) -> Wrong:
    """A scale below a bound is taken for missing: 1."""

    def change(call: Call) -> dict[str, Coded]:
        scale = call.x.given[f"{part}_scale"]
        one = np.where(scale.data.view(np.float32) < least, np.float32(1), scale.data.view(np.float32))
        return {f"{part}_scale": Coded("float32", one.astype(np.float32).view(np.uint32))}

    return given(change)


def power_of_two_scale(call: Call) -> dict[str, Coded]:
    """K's scale, where it is a power of two, is applied as a shift that is one too long."""
    scale = call.x.given["k_scale"]
    number = scale.data.view(np.float32)
    return {"k_scale": Coded("float32", np.where(np.frexp(number)[0] == 0.5, number / 2, number).view(np.uint32))}


def marker(part: str, code: int) -> Wrong:
    """A slot full of one byte is taken for something else: of a writer, one that it may tidy up; of a reader, the end
    of a page, whose last token is left out."""

    def change(call: Call) -> None:
        if "slots" in call.x.given:
            data = call.out[part]
            free = np.setdiff1d(np.arange(len(data)), call.slots)
            data[free[(data[free] == code).all(axis=1)]] ^= 1
            return
        x = call.x if part == "k" else call.x.given[part]
        for sequence, used in enumerate(places_of(call.x)):
            if used.size and (used[-1] + 1) % call.block and (x.data[used[-1] + 1] == code).all():
                call.spoil(np.flatnonzero(call.sequence == sequence)[-1:])

    return edited(change)


def narrow_values(call: Call) -> None:
    """V is taken to have K's columns."""
    if "output" in call.out:
        call.spoil(slice(None) if call.x.given["v"].shape[1] != call.x.shape[1] else slice(0))
    elif call.out["v"].shape[1] != call.out["k"].shape[1]:
        call.spoil(call.rows, only="v")


def repeated_halves(call: Call) -> None:
    """Of two tokens with one slot, half of each stays."""
    stored, slots = stored_rows(paged_behaviour(call.claim), call.x), call.numbers("slots").ravel()
    for slot in np.unique(call.slots):
        first = int(np.flatnonzero(slots == slot)[0])
        for name, data in call.out.items():
            half = data.shape[1] // 2
            data[slot, :half] = stored[name].low.data[first, :half]


def untouched_to_nan(call: Call) -> None:
    """The cache is filled with NaN, as a fresh one, before it is written."""
    free = np.setdiff1d(np.arange(len(call.out["k"])), call.slots)
    call.out["k"][free] = 0x7F


def spilled_head(call: Call) -> None:
    """Heads are padded to a power of two, and the padding is stored."""
    if call.heads & (call.heads - 1):
        width = call.out["k"].shape[1] // call.heads
        free = np.setdiff1d(call.slots + 1, call.slots)
        call.out["k"][free[free < len(call.out["k"])], :width] = 0


def only_if(when: Callable[[Call], bool], change: Callable[[Call], object]) -> Callable[[Call], object]:
    return lambda call: change(call) if when(call) else None


def zero_row_0(call: Call) -> None:
    call.out["k"][0] = 0


def shared_pages_lost(call: Call) -> None:
    """Who owns a page is looked up, and of those who share it the last one is found."""
    table = call.numbers("table")
    for sequence in range(len(table)):
        if (table[sequence + 1 :, 0] == table[sequence, 0]).any():
            call.spoil(np.flatnonzero(call.sequence == sequence)[:1])


def sequences(lost: Callable[[Call], npt.NDArray[np.bool_]]) -> Wrong:
    """Some rows of outputs are wrong."""
    return edited(lambda call: call.spoil(np.flatnonzero(lost(call))) if call.lengths.size else None)
