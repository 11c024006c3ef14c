"""Calls on caches that hypothesis draws, and shrinks: sizes, slots, tables, and any codes in any places."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.operations import Attend, Claim, KvWrite
from narrowgauge.reference.behaviour import paged_behaviour
from narrowgauge.reference.kv.cases import Shape, call, suited
from narrowgauge.reference.kv.slots import is_padding

Places = dict[int, int]
MOST_TOKENS, MOST_SEQUENCES, LONGEST, FEW = 9, 3, 35, 6
_PLACES = st.integers(0, (1 << 16) - 1)


def calls(claim: Claim) -> st.SearchStrategy[Coded]:
    """A call of a drawn shape; of a writer with other slots and codes in some places, of a reader with pages
    exchanged and other codes in used slots."""
    shapes = _shapes(claim).filter(lambda shape: suited(shape)(claim))
    elsewhere = st.dictionaries(_PLACES, _PLACES, max_size=FEW)
    return st.tuples(shapes, elsewhere, elsewhere).map(lambda parts: changed(claim, *parts))


def _shapes(claim: Claim) -> st.SearchStrategy[Shape]:
    sizes = {"heads": st.sampled_from([1, 2, 3]), "turn": st.integers(0, 5)}
    fill = st.sampled_from(["numbers", "nan", "infinity", "00", "ff"])
    if isinstance(claim.contract, KvWrite):
        return st.builds(
            Shape, tokens=st.integers(0, MOST_TOKENS), at=st.sampled_from(["in_order", "scattered"]), fill=fill, **sizes
        )
    lengths = st.lists(st.integers(0, LONGEST), max_size=MOST_SEQUENCES).map(tuple)
    unused = st.sampled_from(["nobody", "stale"])
    return st.builds(Shape, lengths=lengths, fill=fill, unused=unused, query_heads=st.sampled_from([1, 2, 4]), **sizes)


def changed(claim: Claim, shape: Shape, codes: Places, moved: Places) -> Coded:
    """The call of a shape with codes in some places of each part, and slots or pages moved; places count around."""
    x = call(shape)(claim)
    assert isinstance(x, Input)
    paged = paged_behaviour(claim)
    if isinstance(claim.contract, KvWrite):
        x = _with_slots(x, moved, paged.slots.padding == "zero", is_padding(paged.slots, _int32(x, "slots")))
    else:
        x = _with_pages(x, moved)
    if isinstance(claim.contract, Attend) or any(part.first for part in paged.cache.parts):
        return x  # sums that are exact, or an interval of use, need numbers of ordinary size
    given = {n: _with_codes(v, codes) if n in dict(paged.parts) else v for n, v in x.given.items()}
    return Input(x.format, _with_codes(Coded(x.format, x.data), codes).data, given)


def _int32(x: Coded, name: str) -> npt.NDArray[np.int32]:
    return np.array(given_with(x)[name].data.view(np.int32))


def _with_codes(value: Coded, codes: Places) -> Coded:
    data = value.data.copy()
    for place, code in codes.items():
        if data.size:
            wide = code * 0x10001 if data.dtype.itemsize > 2 else code
            data.flat[place % data.size] = wide % format_named(value.format).code_count
    return Coded(value.format, data)


def _replaced(x: Input, name: str, numbers: npt.NDArray[np.int32]) -> Input:
    return replace(x, given={**x.given, name: Coded("int32", numbers.view(np.uint32))})


def _with_slots(x: Input, moved: Places, from_one: bool, padding: npt.NDArray[np.bool_]) -> Input:
    """Some tokens go to other slots, perhaps to one that another goes to; padding stays padding."""
    slots = _int32(x, "slots")
    count = next(v for n, v in x.given.items() if n.startswith("held.")).shape[0]
    for place, slot in moved.items():
        if slots.size and not padding.flat[place % slots.size]:
            slots.flat[place % slots.size] = slot % (count - from_one) + from_one
    return _replaced(x, "slots", slots)


def _with_pages(x: Input, moved: Places) -> Input:
    """Some entries of the table name other pages: shared ones too, of numbers that attention can have."""
    table, lengths = _int32(x, "table"), _int32(x, "lengths").ravel()
    block = int(x.given["sizes"].data.ravel()[1])
    whole = [(row, page) for row, n in enumerate(lengths) for page in range(n // block)]
    for one, other in moved.items():
        if whole:  # pages that are full: what is used of them holds what the case put there
            table[whole[one % len(whole)]] = table[whole[other % len(whole)]]
    return _replaced(x, "table", table)
