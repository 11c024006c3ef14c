"""Faults of where a writer puts a token: ``kv_slot.*``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.reference.faults import kv_edits as kv
from narrowgauge.reference.faults.fault import PagedFault
from narrowgauge.reference.faults.kv_edits import NOWHERE, PagedEdit, Slotted
from narrowgauge.reference.interval import Expected, Interval
from narrowgauge.reference.kv.call import Numbers, rows_of
from narrowgauge.reference.kv.outputs import stored_rows
from narrowgauge.reference.kv.paged import Paged

#: tokens are handled so many at once
_TILE = 32
#: kernels that have it as a constant have this
_COMMON_BLOCK = 16


def _rule(padding: str, written: bool = False) -> kv.Fits:
    return lambda p: kv.writes(p) and p.slots.padding == padding and p.slots.written == written


def _in_pages_of(block: int | float) -> PagedEdit:
    """Page and place are computed for another number of slots in a page: that one, or a part or multiple of it."""

    def change(slots: Numbers, s: Slotted) -> Numbers:
        other = block if isinstance(block, int) else int(s.block * block)
        return np.asarray(slots // max(other, 1) * s.block + slots % max(other, 1))

    return kv.real(change)


def _wrapped(s: Slotted) -> Numbers:
    return np.where(s.padding, s.given % s.count, s.slots)


def _others_wrapped(s: Slotted) -> Numbers:
    return np.where(s.padding & (s.given != -1), s.given % s.count, s.slots)


def _rounded_up(paged: Paged, x: Input) -> Coded:
    """Rows of zeros behind the last token, for slot 0."""
    tokens = x.shape[0]
    if tokens % _TILE == 0:
        return x
    names = [name for name, _ in paged.parts]

    def longer(value: Coded) -> Coded:
        return Coded(value.format, np.concatenate([value.data, np.zeros((1, value.shape[1]), value.data.dtype)]))

    given = {n: longer(v) if n in names else v for n, v in x.given.items()}
    found = kv.slotted(paged, x)
    given["slots"] = kv.int32([*found.slots, 0])
    return Input(x.format, longer(x).data, given)


def _without(zeroed: npt.NDArray[np.bool_], value: Coded) -> Coded:
    return Coded(value.format, np.where(zeroed[:, None], 0, value.data).astype(value.data.dtype))


def _pages_zeroed(behind: bool) -> PagedEdit:
    """Zeros in every slot of a page to which a token is written, or in those behind the last one written."""

    def change(paged: Paged, outputs: Expected, x: Input) -> Expected:
        found = kv.slotted(paged, x)
        slots = found.slots[found.slots != NOWHERE]
        zeroed = np.zeros(found.count, np.bool_)
        for page in np.unique(slots // found.block):
            last = slots[slots // found.block == page].max()
            zeroed[last + 1 if behind else page * found.block : (page + 1) * found.block] = True
        zeroed[slots] = False
        return {n: Interval(*(_without(zeroed, end) for end in (v.low, v.high))) for n, v in outputs.items()}

    return kv.where(kv.writes, kv.leaving(change))


def _mixed(scales: bool) -> PagedEdit:
    """Of two tokens with one slot a part stays of each: scales of the first, or the first half of its codes."""

    def change(paged: Paged, outputs: Expected, x: Input) -> Expected:
        found, rows = kv.slotted(paged, x), stored_rows(paged, x)
        result = {}
        for name, value in outputs.items():
            if kv.is_scale(name) != scales:
                continue
            ends = [Coded(end.format, end.data.copy()) for end in (value.low, value.high)]
            columns = slice(None) if scales else slice(value.low.shape[1] // 2)
            for slot in set(found.slots.tolist()) - {NOWHERE}:
                first = int(np.flatnonzero(found.slots == slot)[0])
                for end, row in zip(ends, (rows[name].low, rows[name].high), strict=True):
                    end.data[slot, columns] = row.data[first, columns]
            result[name] = Interval(*ends)
        return result

    def fits(paged: Paged) -> bool:
        return kv.writes(paged) and (not scales or kv.has_stored_scales(paged))

    return kv.where(fits, kv.leaving(change))


def _last_token(paged: Paged, x: Input) -> Coded:
    """Without the last token. Rows without it: nobody looks at it."""
    keep = slice(0, max(x.shape[0] - 1, 0))
    rows = {n: Coded(v.format, v.data[keep]) for n, v in rows_of(paged, x).items()}
    first = rows.pop(paged.parts[0][0])
    slots = kv.slotted(paged, x).given[keep]
    return Input(x.format, first.data, {**x.given, **rows, "slots": kv.int32(slots).take(np.arange(1))})


FAULTS = (
    PagedFault(
        "kv_slot.negative_wraps",
        "SLOT",
        kv.where(_rule("negative"), kv.moved(_wrapped)),
        "the last slots of the cache, which belong to another request, hold padding",
        "negative slot numbers index from the end, as they do in Python and torch",
        (),
    ),
    PagedFault(
        "kv_slot.only_minus_one_is_padding",
        "SLOT",
        kv.where(_rule("negative"), kv.moved(_others_wrapped)),
        "right with the engine's own -1, and the last slots of the cache hold padding with other negative numbers",
        "slot == -1 is asked where the engine skips every negative slot",
        (),
    ),
    PagedFault(
        "kv_slot.padding_to_0",
        "SLOT",
        kv.either(
            kv.where(_rule("negative"), kv.moved(lambda s: np.maximum(s.given, 0))),
            kv.where(_rule("zero"), kv.moved(lambda s: s.given)),
        ),
        "slot 0 holds padding: the first request's first token is lost, or who reads the reserved slot gets NaN",
        "padding is clamped to slot 0, or slot 0 is written, where the engine skips it",
        ("vllm#57156", "sglang#36207"),
    ),
    PagedFault(
        "kv_slot.zero_is_padding",
        "SLOT",
        kv.where(_rule("negative"), kv.real(lambda slots, s: np.where(slots == 0, NOWHERE, slots))),
        "the token in slot 0 is never written",
        "slot 0 is skipped, by another engine's rule or by > 0 for >= 0, where it is a slot like others",
        (),
    ),
    PagedFault(
        "kv_slot.pages_of_16",
        "SLOT",
        _in_pages_of(_COMMON_BLOCK),
        "right where a page has 16 slots; else tokens stand in each other's places",
        "the number of slots in a page is a constant, 16, and not the cache's",
        (),
    ),
    PagedFault(
        "kv_slot.pages_half_as_long",
        "SLOT",
        _in_pages_of(0.5),
        "tokens of the upper half of a page overwrite the next page",
        "page and place are computed for half the number of slots in a page",
        (),
    ),
    PagedFault(
        "kv_slot.pages_twice_as_long",
        "SLOT",
        _in_pages_of(2.0),
        "every second page is never written, or overlaps its neighbour",
        "page and place are computed for twice the number of slots in a page",
        (),
    ),
    PagedFault(
        "kv_slot.pages_and_places_exchanged",
        "SLOT",
        kv.real(lambda slots, s: slots % s.block * s.block + slots // s.block),
        "tokens stand in pages of others, or beyond the cache",
        "slot // size is taken for the place, and slot % size for the page",
        (),
    ),
    PagedFault(
        "kv_slot.pages_fastest",
        "SLOT",
        kv.real(lambda slots, s: slots % s.block * (s.count // s.block) + slots // s.block),
        "tokens stand in pages of others",
        "the strides of page and place are exchanged: neighbouring places are a whole cache apart",
        (),
    ),
    PagedFault(
        "kv_slot.one_later",
        "SLOT",
        kv.real(lambda slots, s: slots + 1),
        "each token is read in the place of the one after it",
        "slots are counted from 1, or written after the position was advanced",
        (),
    ),
    PagedFault(
        "kv_slot.one_earlier",
        "SLOT",
        kv.real(lambda slots, s: slots - 1),
        "each token is read in the place of the one before it",
        "a length is taken for a position",
        (),
    ),
    PagedFault(
        "kv_slot.places_left_out",
        "SLOT",
        kv.real(lambda slots, s: slots // s.block * s.block),
        "every token overwrites the first of its page",
        "the place in the page is not added to the address",
        (),
    ),
    PagedFault(
        "kv_slot.pages_left_out",
        "SLOT",
        kv.real(lambda slots, s: slots % s.block),
        "all requests write into the first page",
        "the page is not added to the address",
        (),
    ),
    PagedFault(
        "kv_slot.mapping_ignored",
        "SLOT",
        kv.real(lambda slots, s: np.arange(slots.size, dtype=np.int32)),
        "right for the first request of a service alone",
        "tokens are written in their own order, and the slot mapping is not read",
        (),
    ),
    PagedFault(
        "kv_slot.beyond_32_bits",
        "INDEX",
        kv.real(lambda slots, s: np.where(slots // s.block >= 2, NOWHERE, slots)),
        "right in small caches; in large ones tokens are lost, or stand in others' pages",
        "an offset is computed in 32 bits: beyond 2^31 elements it is another one (here: the third page and later)",
        ("vllm#1486",),
    ),
    PagedFault(
        "kv_slot.last_token_missing",
        "PADTAIL",
        kv.where(kv.writes, kv.taking(_last_token)),
        "the newest token is read as what stood there before",
        "the loop ends one token early",
        (),
    ),
    PagedFault(
        "kv_slot.rows_rounded_up",
        "PADTAIL",
        kv.where(lambda p: kv.writes(p) and not p.slots.written, kv.skipping_negatives(kv.taking(_rounded_up))),
        "slot 0 is zeros whenever the number of tokens is not a multiple of the kernel's tile",
        "loads behind the last token are masked to 0 and their store is not masked: zeros go to slot 0",
        (),
    ),
    PagedFault(
        "kv_slot.page_zeroed",
        "PADTAIL",
        _pages_zeroed(behind=False),
        "earlier tokens of a page are zeros: a request forgets what came before its last page's newest token",
        "a page is cleared when a token is written into it",
        (),
    ),
    PagedFault(
        "kv_slot.rest_of_page_zeroed",
        "PADTAIL",
        _pages_zeroed(behind=True),
        "later tokens of a page, of who shares it or of a rolled back guess, are zeros",
        "a whole tile is stored behind the last token of a page, with zeros where there is none",
        (),
    ),
    PagedFault(
        "kv_slot.two_tokens_mixed",
        "SLOT",
        _mixed(scales=False),
        "where two tokens have one slot, it holds neither",
        "parts of a row are written by different programs, without an order between tokens of one slot",
        (),
    ),
    PagedFault(
        "kv_slot.scale_of_the_other_token",
        "SLOT",
        _mixed(scales=True),
        "where two tokens have one slot, its values are off by the ratio of their scales",
        "codes and scales are written by different programs, without an order between tokens of one slot",
        (),
    ),
)
