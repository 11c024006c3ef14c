"""Faults of how codes of caches stand in memory: each against plain NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.operations import Claim
from narrowgauge.reference.expected import expected
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.suites.meta.test_kv_fault_effects import E4, bf16, float32, wrongly
from narrowgauge.suites.meta.test_kv_fault_slots import int32

pytestmark = pytest.mark.meta

PAGES, BLOCK, HEADS, WIDTH = 3, 16, 2, 32
SLOTS = PAGES * BLOCK


def read_all(cache: str, codes: Mapping[str, Coded], block: int = BLOCK, heads: int = HEADS) -> tuple[Claim, Input]:
    """Every slot of a cache, in order."""
    (_, value), *others = codes.items()
    count = value.shape[0]
    table = {"table": int32([list(range(count // block))]), "lengths": int32([count]), "sizes": int32([heads, block])}
    ones = {f"{n}_scale": float32(1.0) for n in codes if n in ("k", "v")}
    claim = Claim.parse(f"kv_read/{cache}/{value.format}/float32")
    return claim, Input(value.format, value.data, {**ones, **dict(others), **table})


def numbered(seed: int) -> npt.NDArray[np.uint8]:
    """Codes of e4m3 without NaN."""
    return np.random.default_rng(seed).integers(0, 0x7F, (SLOTS, HEADS * WIDTH)).astype(np.uint8)


Memory = Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.uint8]]


def nhd(x: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    return x.reshape(PAGES, BLOCK, HEADS, WIDTH)


def from_nhd(memory: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    return memory.reshape(SLOTS, HEADS * WIDTH)


def packed(x: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """[pages, heads, columns / 16, places, 16]"""
    return nhd(x).reshape(PAGES, BLOCK, HEADS, WIDTH // 16, 16).transpose(0, 2, 3, 1, 4)


def turned(x: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """[pages, heads, columns, places]"""
    return nhd(x).transpose(0, 2, 3, 1)


#: cache, fault, part -> what is read of a part's matrix
OF_LAYOUTS: tuple[tuple[str, str, dict[str, Memory]], ...] = (
    (
        "vllm.flash_fp8",
        "kv_layout.heads_and_places_exchanged",
        dict.fromkeys("kv", lambda x: from_nhd(x.reshape(PAGES, HEADS, BLOCK, WIDTH).transpose(0, 2, 1, 3))),
    ),
    (
        "vllm.flash_fp8_hnd",
        "kv_layout.heads_and_places_exchanged",
        dict.fromkeys("kv", lambda x: from_nhd(nhd(x).transpose(0, 2, 1, 3))),
    ),
    (
        "vllm.paged_fp8",
        "kv_layout.keys_as_values",
        {
            "k": lambda x: from_nhd(packed(x).reshape(PAGES, HEADS, WIDTH, BLOCK).transpose(0, 3, 1, 2)),
            "v": lambda x: x,
        },
    ),
    (
        "vllm.paged_fp8",
        "kv_layout.values_as_keys",
        {
            "k": lambda x: x,
            "v": lambda x: from_nhd(turned(x).reshape(PAGES, HEADS, WIDTH // 16, BLOCK, 16).transpose(0, 3, 1, 2, 4)),
        },
    ),
    (
        "vllm.paged_fp8",
        "kv_layout.not_packed",
        {"k": lambda x: from_nhd(packed(x)), "v": lambda x: from_nhd(turned(x))},
    ),
)


@pytest.mark.parametrize(("cache", "fault", "seen"), OF_LAYOUTS, ids=lambda p: p if isinstance(p, str) else "")
def test_codes_are_taken_from_another_place(cache: str, fault: str, seen: dict[str, Memory]) -> None:
    codes = {name: Coded(E4, numbered(seed)) for seed, name in enumerate("kv")}
    claim, x = read_all(cache, codes)
    right, got = expected(claim, x), wrongly(fault, claim, x)
    for name, change in seen.items():
        np.testing.assert_array_equal(decode_values(right[name].low), decode_values(codes[name]))
        moved = Coded(E4, np.ascontiguousarray(change(codes[name].data)))
        np.testing.assert_array_equal(decode_values(got[name].low), decode_values(moved))


@pytest.mark.parametrize(("cache", "fault", "seen"), OF_LAYOUTS, ids=lambda p: p if isinstance(p, str) else "")
def test_a_writer_and_a_reader_with_one_mistake_agree(cache: str, fault: str, seen: object) -> None:
    """What is written to a wrong place is found by who looks there: the reason why each is judged apart."""
    rows = bf16(decode_values(Coded(E4, numbered(3)[:4])))
    empty = Coded(E4, np.zeros((SLOTS, HEADS * WIDTH), np.uint8))
    ones = {"k_scale": float32(1.0), "v_scale": float32(1.0)}
    given = {"v": rows, **ones, "slots": int32([0, 17, 5, 47]), "held.k": empty, "held.v": empty}
    call = Input("bfloat16", rows.data, {**given, "sizes": int32([HEADS, BLOCK])})
    claim = Claim.parse(f"kv_write/{cache}/bfloat16/{E4}")
    held = wrongly(fault, claim, call)
    reading, x = read_all(cache, {name: held[name].low for name in "kv"})
    for outputs, alike in ((wrongly(fault, reading, x), True), (expected(reading, x), False)):
        same = [np.array_equal(decode_values(outputs[name].low)[[0, 17, 5, 47]], decode_values(rows)) for name in "kv"]
        assert all(same) == alike
