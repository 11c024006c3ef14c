"""Faults of where tokens are written, and of which are read: each against slots that were written down by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.operations import Claim
from narrowgauge.reference.expected import expected, outputs_of, promised_for
from narrowgauge.reference.faults.registry import FAULTS

pytestmark = pytest.mark.meta

Array = npt.NDArray[np.uint16]
WRITE = Claim.parse("kv_write/vllm.flash_copy/bfloat16/bfloat16")
READ = Claim.parse("kv_read/vllm.flash_copy/bfloat16/bfloat16")
COLUMNS = 4  #: two heads of two


def bfloat16(codes: npt.ArrayLike) -> Coded:
    return Coded("bfloat16", np.asarray(codes, np.uint16))


def int32(values: Sequence[object]) -> Coded:
    return Coded("int32", np.atleast_2d(np.array(values, np.int32)).view(np.uint32))


def wrong(fault: str, claim: Claim, x: Input) -> Mapping[str, Array]:
    """The codes that a fault leaves, by matrix."""
    behaviour = FAULTS[fault].applied_to(promised_for(claim, x))
    assert behaviour is not None
    return {name: value.low.data for name, value in outputs_of(behaviour, x).items()}


# --- writing ---------------------------------------------------------------------------------------------------------

#: eight tokens into a cache of twelve pages of eight slots
SLOTS, BLOCK, COUNT = (-1, 95, 3, 40, 17, 0, -2, 18), 8, 96
NOT = None
#: where each token goes
WRITTEN: dict[str, tuple[int | None, ...]] = {
    "kv_slot.negative_wraps": (95, 95, 3, 40, 17, 0, 94, 18),
    "kv_slot.only_minus_one_is_padding": (NOT, 95, 3, 40, 17, 0, 94, 18),
    "kv_slot.padding_to_0": (0, 95, 3, 40, 17, 0, 0, 18),
    "kv_slot.zero_is_padding": (NOT, 95, 3, 40, 17, NOT, NOT, 18),
    "kv_slot.pages_of_16": (NOT, 55, 3, 24, 9, 0, NOT, 10),
    "kv_slot.pages_twice_as_long": (NOT, 55, 3, 24, 9, 0, NOT, 10),
    "kv_slot.pages_half_as_long": (NOT, NOT, 3, 80, 33, 0, NOT, 34),
    "kv_slot.pages_and_places_exchanged": (NOT, 67, 24, 5, 10, 0, NOT, 18),
    "kv_slot.pages_fastest": (NOT, 95, 36, 5, 14, 0, NOT, 26),
    "kv_slot.one_later": (NOT, NOT, 4, 41, 18, 1, NOT, 19),
    "kv_slot.one_earlier": (NOT, 94, 2, 39, 16, NOT, NOT, 17),
    "kv_slot.places_left_out": (NOT, 88, 0, 40, 16, 0, NOT, 16),
    "kv_slot.pages_left_out": (NOT, 7, 3, 0, 1, 0, NOT, 2),
    "kv_slot.mapping_ignored": (NOT, 1, 2, 3, 4, 5, NOT, 7),
    "kv_slot.beyond_32_bits": (NOT, NOT, 3, NOT, NOT, 0, NOT, NOT),
    "kv_slot.last_token_missing": (NOT, 95, 3, 40, 17, 0, NOT, NOT),
}
#: slots that are zeros beside the tokens that are written rightly
ZEROS = {
    "kv_slot.rows_rounded_up": [0],
    "kv_slot.page_zeroed": [*range(1, 3), *range(4, 8), 16, *range(19, 24), *range(41, 48), *range(88, 95)],
    "kv_slot.rest_of_page_zeroed": [*range(4, 8), *range(19, 24), *range(41, 48)],
}
#: with one slot for two tokens
SHARED = {"kv_slot.two_tokens_mixed", "kv_slot.scale_of_the_other_token"}


def tokens(count: int, first: int) -> Array:
    return (first + np.arange(count * COLUMNS, dtype=np.uint16)).reshape(count, COLUMNS)


def writing(slots: Sequence[int]) -> Input:
    k, v = tokens(len(slots), 0x100), tokens(len(slots), 0x200)
    held = {f"held.{n}": bfloat16(tokens(COUNT, first)) for n, first in (("k", 0x1000), ("v", 0x2000))}
    given = {"v": bfloat16(v), "slots": int32(slots), **held, "sizes": int32([2, BLOCK])}
    return Input("bfloat16", k, given)


def cache(part: int, places: Sequence[int | None]) -> Array:
    """What stands in a part's cache after its tokens went to these slots, one after the other."""
    result = tokens(COUNT, 0x1000 * part)
    for token, slot in enumerate(places):
        if slot is not None:
            result[slot] = tokens(len(places), 0x100 * part)[token]
    return result


RIGHTLY = tuple(None if slot < 0 else slot for slot in SLOTS)


def test_the_right_writer() -> None:
    right = expected(WRITE, writing(SLOTS))
    for part, name in ((1, "k"), (2, "v")):
        np.testing.assert_array_equal(right[name].low.data, cache(part, RIGHTLY))


@pytest.mark.parametrize("fault", WRITTEN)
def test_a_token_goes_to_another_slot(fault: str) -> None:
    got = wrong(fault, WRITE, writing(SLOTS))
    for part, name in ((1, "k"), (2, "v")):
        np.testing.assert_array_equal(got[name], cache(part, WRITTEN[fault]))
    assert WRITTEN[fault] != RIGHTLY


@pytest.mark.parametrize("fault", ZEROS)
def test_a_slot_is_zeros(fault: str) -> None:
    got = wrong(fault, WRITE, writing(SLOTS))
    for part, name in ((1, "k"), (2, "v")):
        want = cache(part, RIGHTLY)
        want[ZEROS[fault]] = 0
        np.testing.assert_array_equal(got[name], want)


def test_two_tokens_of_one_slot_mixed() -> None:
    got = wrong("kv_slot.two_tokens_mixed", WRITE, writing([3, 3]))
    assert got["k"][3].tolist() == [0x100, 0x101, 0x106, 0x107]
    assert got["v"][3].tolist() == [0x200, 0x201, 0x206, 0x207]


def test_slot_0_is_written_where_it_is_reserved() -> None:
    """By the rule of SGLang's MLA store: what token 1 brings stays out, and with the fault it does not."""
    claim = Claim.parse("kv_write/sglang.mla_copy/bfloat16/bfloat16")
    given = {
        "rope": bfloat16(np.full((2, 64), 7)), "slots": int32([5, 0]), "sizes": int32([1, 64]),
        "held.latent": bfloat16(np.full((64, 512), 1)), "held.rope": bfloat16(np.full((64, 64), 2)),
    }  # fmt: skip
    x = Input("bfloat16", np.full((2, 512), 9, np.uint16), given)
    right = expected(claim, x)
    assert [right["latent"].low.data[slot, 0] for slot in (0, 5)] == [1, 9]
    got = wrong("kv_slot.padding_to_0", claim, x)
    assert [got["latent"][slot, 0] for slot in (0, 5)] == [9, 9]


# --- reading ---------------------------------------------------------------------------------------------------------

#: three sequences in a cache of ten pages of four slots
TABLE, LENGTHS = ((5, 2, 9), (7, 1, 0), (3, 8, 6)), (6, 6, 5)
#: the slot that is read for each token
GATHERED = {
    "": ((20, 21, 22, 23, 8, 9), (28, 29, 30, 31, 4, 5), (12, 13, 14, 15, 32)),
    "kv_page.logical_for_physical": ((0, 1, 2, 3, 4, 5), (0, 1, 2, 3, 4, 5), (0, 1, 2, 3, 4)),
    "kv_page.table_transposed": ((20, 21, 22, 23, 28, 29), (8, 9, 10, 11, 4, 5), (36, 37, 38, 39, 0)),
    "kv_page.of_the_first_sequence": ((20, 21, 22, 23, 8, 9), (20, 21, 22, 23, 8, 9), (20, 21, 22, 23, 8)),
    "kv_page.of_the_sequence_before": ((12, 13, 14, 15, 32, 33), (20, 21, 22, 23, 8, 9), (28, 29, 30, 31, 4)),
    "kv_page.of_the_sequence_after": ((28, 29, 30, 31, 4, 5), (12, 13, 14, 15, 32, 33), (20, 21, 22, 23, 8)),
    "kv_page.first_page_for_all": ((20, 21, 22, 23, 20, 21), (28, 29, 30, 31, 28, 29), (12, 13, 14, 15, 12)),
    "kv_page.places_left_out": ((20, 20, 20, 20, 8, 8), (28, 28, 28, 28, 4, 4), (12, 12, 12, 12, 32)),
    "kv_page.pages_of_16": ((20, 21, 22, 23, 24, 25), (28, 29, 30, 31, 32, 33), (12, 13, 14, 15, 16)),
    "kv_page.twice_as_long": ((20, 21, 22, 23, 24, 25), (28, 29, 30, 31, 32, 33), (12, 13, 14, 15, 16)),
    "kv_page.half_as_long": ((20, 21, 8, 9, 36, 37), (28, 29, 4, 5, 0, 1), (12, 13, 32, 33, 24)),
    "kv_page.one_token_later": ((21, 22, 23, 8, 9, 10), (29, 30, 31, 4, 5, 6), (13, 14, 15, 32, 33)),
    "kv_page.one_token_earlier": ((20, 20, 21, 22, 23, 8), (28, 28, 29, 30, 31, 4), (12, 12, 13, 14, 15)),
}
#: slots of the first two pages that are read
NEAR = {4, 5}


def reading() -> Input:
    given = {"v": bfloat16(tokens(40, 0x200)), "table": int32(TABLE), "lengths": int32(LENGTHS)}
    return Input("bfloat16", tokens(40, 0x100), {**given, "sizes": int32([2, 4])})


@pytest.mark.parametrize("fault", GATHERED)
def test_another_slot_is_read(fault: str) -> None:
    x = reading()
    got = wrong(fault, READ, x) if fault else {n: v.low.data for n, v in expected(READ, x).items()}
    for first, name in ((0x100, "k"), (0x200, "v")):
        want = tokens(40, first)[[slot for slots in GATHERED[fault] for slot in slots]]
        np.testing.assert_array_equal(got[name], want)


def test_far_pages_are_zeros() -> None:
    got = wrong("kv_page.beyond_32_bits", READ, reading())
    for first, name in ((0x100, "k"), (0x200, "v")):
        read = [slot for slots in GATHERED[""] for slot in slots]
        want = tokens(40, first)[read] * np.isin(read, list(NEAR))[:, None]
        np.testing.assert_array_equal(got[name], want)


def test_every_fault_of_slots_and_pages_is_probed() -> None:
    ours = {name for name in FAULTS if name.startswith(("kv_slot.", "kv_page."))}
    assert ours == {*WRITTEN, *ZEROS, *SHARED, *GATHERED, "kv_page.beyond_32_bits"} - {""}
