"""For each call on caches, wrong kernels that it catches and no other call of the smoke depth does.

Each is the right answer but for a mistake that a kernel could make; none is made from a fault. Mistakes about how
tensors lie in memory are kernels: test_kv_views.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.operations import Claim
from narrowgauge.reference.behaviour import paged_behaviour
from narrowgauge.reference.expected import expected
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.kv.call import places_of
from narrowgauge.reference.kv.contents import nearest
from narrowgauge.reference.kv.outputs import stored_rows

Array = npt.NDArray[np.unsignedinteger]
F64 = npt.NDArray[np.float64]
Buffers = dict[str, Coded]
Wrong = Callable[[Claim, Input], Buffers]


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
        right = expected(claim, x)
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


def _power_below(width: int) -> int:
    return 1 << (width.bit_length() - 1)


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


def _narrow_values(call: Call) -> None:
    """V is taken to have K's columns."""
    if "output" in call.out:
        call.spoil(slice(None) if call.x.given["v"].shape[1] != call.x.shape[1] else slice(0))
    elif call.out["v"].shape[1] != call.out["k"].shape[1]:
        call.spoil(call.rows, only="v")


def _repeated_halves(call: Call) -> None:
    """Of two tokens with one slot, half of each stays."""
    stored, slots = stored_rows(paged_behaviour(call.claim), call.x), call.numbers("slots").ravel()
    for slot in np.unique(call.slots):
        first = int(np.flatnonzero(slots == slot)[0])
        for name, data in call.out.items():
            half = data.shape[1] // 2
            data[slot, :half] = stored[name].low.data[first, :half]


def _untouched_to_nan(call: Call) -> None:
    """The cache is filled with NaN, as a fresh one, before it is written."""
    free = np.setdiff1d(np.arange(len(call.out["k"])), call.slots)
    call.out["k"][free] = 0x7F


def _spilled_head(call: Call) -> None:
    """Heads are padded to a power of two, and the padding is stored."""
    if call.heads & (call.heads - 1):
        width = call.out["k"].shape[1] // call.heads
        free = np.setdiff1d(call.slots + 1, call.slots)
        call.out["k"][free[free < len(call.out["k"])], :width] = 0


def _if(when: Callable[[Call], bool], change: Callable[[Call], object]) -> Callable[[Call], object]:
    return lambda call: change(call) if when(call) else None


def _zero_row_0(call: Call) -> None:
    call.out["k"][0] = 0


def _shared_pages_lost(call: Call) -> None:
    """Who owns a page is looked up, and of those who share it the last one is found."""
    table = call.numbers("table")
    for sequence in range(len(table)):
        if (table[sequence + 1 :, 0] == table[sequence, 0]).any():
            call.spoil(np.flatnonzero(call.sequence == sequence)[:1])


def _sequences(lost: Callable[[Call], npt.NDArray[np.bool_]]) -> Wrong:
    """Some rows of outputs are wrong."""
    return edited(lambda call: call.spoil(np.flatnonzero(lost(call))) if call.lengths.size else None)


# --- mistakes of attention -------------------------------------------------------------------------------------------


def _scores(call: Call) -> list[F64]:
    """Of each sequence, [heads, queries of each, tokens]; of a static scale."""
    k_scale = float(call.x.given["k_scale"].data.view(np.float32).ravel()[0])
    query, found = decode_values(call.x.given["query"]), []
    for sequence, used in enumerate(places_of(call.x)):
        keys = decode_values(Coded(call.x.format, call.x.data[used])) * k_scale
        width = keys.shape[1] // call.heads
        q, k = query[sequence].reshape(call.heads, -1, width), keys.reshape(-1, call.heads, width)
        found.append(np.einsum("hgd,thd->hgt", q, k) / width**0.5)
    return found


def _overflows(call: Call) -> None:
    """exp without the largest score subtracted."""
    for sequence, scores in enumerate(_scores(call)):
        if (scores > 88.7).any():
            call.spoil([sequence])


def _weighed(call: Call, change: Callable[[F64], F64], least: float = 0.0) -> None:
    """Attention in float64, with scores changed, and no weights below ``least``."""
    v_scale = float(call.x.given["v_scale"].data.view(np.float32).ravel()[0])
    v = call.x.given["v"]
    for sequence, (scores, used) in enumerate(zip(_scores(call), places_of(call.x), strict=True)):
        if used.size:
            scores = change(scores)
            weight = np.exp(scores - scores.max(axis=2, keepdims=True))
            weight = np.where(weight < least, 0, weight) / weight.sum(axis=2, keepdims=True)
            values = decode_values(Coded(v.format, v.data[used])).reshape(used.size, call.heads, -1) * v_scale
            row = np.einsum("hgt,thd->hgd", weight, values).ravel()
            call.out["output"][sequence] = nearest(row, format_named(call.claim.format))


def _small_weights_lost(call: Call) -> None:
    """Weights are held in float16, and its subnormals are flushed."""
    _weighed(call, lambda scores: scores, 2.0**-14)


def _straight_cap(call: Call) -> None:
    """The cap's tanh is right up to 1, and stays there."""
    _weighed(call, lambda scores: 30 * np.tanh(np.clip(scores / 30, -1, 1)))


def _no_query(call: Call) -> None:
    """A row whose largest score is 0 is taken for one without keys."""
    for sequence in range(len(call.lengths)):
        if not (decode_values(call.x.given["query"])[sequence] != 0).any():
            call.out["output"][sequence] = 0


def _nan_to_zero(call: Call) -> dict[str, Coded]:
    """NaN is cleaned out of the whole cache."""
    found = {}
    for name in ("k", "v"):
        value = call.x if name == "k" else call.x.given[name]
        found[name] = Coded(value.format, np.where(np.isnan(decode_values(value)), 0, value.data).astype(np.uint8))
    return found


def _cleaned(claim: Claim, x: Input) -> Buffers:
    other = _nan_to_zero(Call(claim, x, {}))
    made = expected(claim, Input(x.format, other.pop("k").data, {**x.given, **other}))
    return {name: value.low for name, value in made.items()}


def _masked_by_key(call: Call) -> None:
    """A slot behind the end is left out where its key is NaN; otherwise its value is multiplied by 0."""
    for sequence, used in enumerate(places_of(call.x)):
        if used.size and (used[-1] + 1) % call.block:
            behind = used[-1] + 1
            key = decode_values(Coded(call.x.format, call.x.data[behind : behind + 1]))
            value = call.x.given["v"]
            if not np.isnan(key).any() and np.isnan(decode_values(Coded(value.format, value.data[behind]))).any():
                call.spoil([sequence])


def _nothing(claim: Claim, x: Input) -> Buffers:
    """Nothing is returned where nothing is asked for."""
    right = {name: value.low for name, value in expected(claim, x).items()}
    return right if given_with(x)["lengths"].data.size else {}


_W, _R = "kv_write/vllm.flash_fp8/bfloat16/float8_e4m3fn", "kv_read/vllm.flash_fp8/float8_e4m3fn/bfloat16"
_A = "attend/vllm.flash_fp8/float8_e4m3fn/bfloat16"
_POOL = "float8_e4m3fn/bfloat16"
Table = dict[str, tuple[tuple[str, Wrong], ...]]


def _of_sizes(claim: str) -> Table:
    """What writers, readers and attention do wrong alike with heads, pages and scales of other sizes."""
    pool = claim.replace("vllm.flash_fp8", "sglang.fp8")
    return {
        "one_head": ((claim, edited(_if(lambda c: c.heads == 1, lambda c: c.spoil(c.rows, slice(1, None)))),),),
        "eight_heads": ((claim, heads(lambda n: slice(4, None))),),
        "width_80": ((claim, columns(lambda w: slice(_power_below(w), None))),),
        "width_96": ((claim, columns(lambda w: slice(w // 64 * 64 + 16, None))),),
        "width_128": ((claim, columns(lambda w: slice(96, None))),),
        "width_256": ((claim, columns(lambda w: slice(128, None))),),
        "narrow_values": ((claim, edited(_narrow_values)),),
        "block_1": ((pool, edited(neighbours_exchanged)),),
        "block_32": ((claim, places(16)),),
        "block_64": ((claim, places(32)),),
        "block_128": ((claim, places(64)),),
        "block_256": ((claim, places(128)),),
        "fill_00": ((claim, marker("v", 0)),),
        "fill_7f": ((claim, marker("v", 0x7F)),),
        "fill_80": ((claim, marker("v", 0x80)),),
        "fill_ff": ((claim, marker("k", 0xFF)),),
        "fill_infinity": ((claim, marker("v", 0x7E)),),
        "scale_4": ((claim, small_scale("k", 2.0**-6)),),
        "scale_5": ((claim, small_scale("v", 2.0**-8)),),
    }  # fmt: skip


def _of_reads(claim: str) -> Table:
    pool = claim.replace("vllm.flash_fp8", "sglang.fp8")
    return {
        "permuted_filled": ((claim, _sequences(lambda c: c.token >= 48)),),
        "next_scale": ((claim, given(power_of_two_scale)),),
        "three_heads": ((claim, heads(lambda n: slice(2, None))),),
        "negative_table": (
            (
                pool,
                edited(_if(lambda c: bool((c.numbers("table") < 0).any()), lambda c: c.spoil(slice(1, None)))),
            ),
        ),
        "no_sequences": ((claim, _nothing),),
        "one_key": ((claim, _sequences(lambda c: np.full(c.token.size, c.lengths.sum() == 1))),),
        "whole_pages": (
            (
                claim,
                _sequences(lambda c: (c.token > 0) & (c.token % 64 == 63) & (c.token + 1 == c.lengths[c.sequence])),
            ),
        ),
        "shared_pages": ((claim, edited(_shared_pages_lost)),),
        "long": ((claim, _sequences(lambda c: c.token >= 1024)),),
        "many_sequences": ((claim, _sequences(lambda c: c.sequence >= 64)),),
    }


#: operation -> case -> claims and wrong kernels
WRONG: dict[str, Table] = {
    "kv_write": {
        **_of_sizes(_W),
        "other_fill": ((_W, edited(_untouched_to_nan)),),
        "repeated": ((_W, edited(_repeated_halves)),),
        "in_order": ((_W, edited(_spilled_head)),),
        "ends": ((_W, edited(lambda c: c.spoil([0]))),),
        "all_padding": ((_W, edited(_if(lambda c: c.x.shape[0] > 0 and not c.slots.size, _zero_row_0))),),
        "no_tokens": ((_W, edited(_if(lambda c: c.x.shape[0] == 0, _zero_row_0))),),
        "one_token": ((_W, edited(_if(lambda c: c.x.shape[0] == 1, lambda c: c.spoil(c.rows)))),),
        "many_tokens": ((_W, edited(lambda c: c.spoil(np.unique(c.numbers("slots").ravel()[256:].clip(0))))),),
        "tall": ((_W, edited(lambda c: c.spoil(np.unique(c.numbers("slots").ravel()[65_536:].clip(0))))),),
    },
    "kv_read": _of_sizes(_R) | _of_reads(_R),
    "attend": {
        **_of_sizes(_A),
        **_of_reads(_A),
        "stale_values": ((_A, edited(_masked_by_key)),),
        "read_out": ((_A, edited(_small_weights_lost)),),
        "bend": (
            (_A.replace("fp8/", "fp8+soft_cap:30/"), edited(_straight_cap)),
        ),
        "equal": ((_A, edited(_no_query)),),
        "dominant": ((_A, edited(_overflows)),),
        "poisoned": ((_A, _cleaned),),
        "longest": ((_A, _sequences(lambda c: c.token >= 4096)),),
    },
}  # fmt: skip
