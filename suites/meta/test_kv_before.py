# SPDX-License-Identifier: Apache-2.0
"""What is done before a part is kept, and numbers that share their bits: properties, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from narrowgauge.contracts.cache import Buffer, Cache, Field, Part
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.operations import Claim, KvWrite
from narrowgauge.contracts.serial import contract_from_json, contract_to_json
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.kv.before import BEFORE, before_named
from narrowgauge.reference.kv.caches import CACHES, resolve
from narrowgauge.reference.kv.pages import SHARED, Matrix, layout_of, storable
from narrowgauge.reference.noise import noise, scrambled

pytestmark = pytest.mark.meta

TOKENS, HEADS, WIDTH = 5, 3, 8


def coded(values: Any, format_name: str = "bfloat16") -> Coded:
    """Numbers of few bits."""
    if format_name == "float16":
        return Coded("float16", np.asarray(values, np.float16).view(np.uint16))
    return Coded("bfloat16", (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16))


def int32(values: Any) -> Coded:
    return Coded("int32", np.atleast_2d(np.asarray(values, np.int32)).view(np.uint32))


def rows(format_name: str = "bfloat16") -> Coded:
    return coded(noise(TOKENS * HEADS * WIDTH, 3).reshape(TOKENS, HEADS * WIDTH), format_name)


def quarter_turns(rotated: int, format_name: str = "bfloat16") -> dict[str, Coded]:
    """Position p turns by p quarters: cosines and sines are 0 and ±1."""
    cosine, sine = np.array([1.0, 0, -1, 0]), np.array([0.0, 1, 0, -1])
    table = np.concatenate([np.repeat(n[:, None], rotated // 2, axis=1) for n in (cosine, sine)], axis=1)
    return {"cos_sin": coded(table, format_name), "positions": int32([0, 1, 2, 3, 1])}


def heads(value: Coded) -> np.ndarray[Any, np.dtype[np.float64]]:
    return decode_values(value).reshape(TOKENS, HEADS, WIDTH)


@pytest.mark.parametrize("format_name", ["bfloat16", "float16"])
@pytest.mark.parametrize("rotated", [WIDTH, 4])
def test_quarter_turns_exchange_pairs(format_name: str, rotated: int) -> None:
    """(x1, x2) becomes (-x2, x1): halves of the rotated columns, or neighbours; the rest stays."""
    x = rows(format_name)
    given, was = quarter_turns(rotated, format_name), heads(x)
    for name, pairs in (
        ("rope", [(i, i + rotated // 2) for i in range(rotated // 2)]),
        ("rope_interleaved", [(i, i + 1) for i in range(0, rotated, 2)]),
    ):
        became = heads(BEFORE[name].change(x, HEADS, given))
        for a, b in pairs:
            assert (became[1, :, a] == -was[1, :, b]).all()
            assert (became[1, :, b] == was[1, :, a]).all()
            assert (became[2, :, a] == -was[2, :, a]).all()
            assert (became[3, :, a] == was[3, :, b]).all()
        assert (became[0] == was[0]).all()
        assert (became[:, :, rotated:] == was[:, :, rotated:]).all()


def test_what_is_not_rotated_keeps_its_bits() -> None:
    """A NaN's too."""
    x = Coded("bfloat16", np.full((TOKENS, HEADS * WIDTH), 0x7FA1, np.uint16))
    became = BEFORE["rope"].change(x, HEADS, quarter_turns(4)).data.reshape(TOKENS, HEADS, WIDTH)
    assert (became[:, :, 4:] == 0x7FA1).all()


def test_one_rounding_whatever_is_fused() -> None:
    """The sum of both exact products, rounded to float32 and then to the format: with a fused multiply-add too."""
    x, table = rows(), coded(noise(7 * WIDTH, 5).reshape(7, WIDTH) % 1)
    given = {"cos_sin": table, "positions": int32([6, 0, 3, 3, 1])}
    became, was = heads(BEFORE["rope"].change(x, HEADS, given)), heads(x)
    angles = decode_values(table)[[6, 0, 3, 3, 1]][:, None]
    cosine, sine, half = angles[..., : WIDTH // 2], angles[..., WIDTH // 2 :], WIDTH // 2
    exact = (was[..., :half] * cosine - was[..., half:] * sine).astype(np.float32)  # float64 holds both products
    apart = (was[..., :half] * cosine).astype(np.float32) - (was[..., half:] * sine).astype(np.float32)
    assert (exact == apart).all()
    assert (np.abs(became[..., :half] - exact) <= np.abs(exact) * 2.0**-8).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cos_sin": None}, r"cos_sin: nothing came; expected bfloat16 \[positions, an even number up to 8\]"),
        ({"cos_sin": coded(np.ones((4, 10)))}, r"cos_sin: bfloat16 \[4, 10\] came"),
        ({"cos_sin": coded(np.ones((4, 3)))}, r"cos_sin: bfloat16 \[4, 3\] came"),
        ({"cos_sin": coded(np.ones((4, 8)), "float16")}, r"cos_sin: float16 \[4, 8\] came; expected bfloat16"),
        ({"positions": None}, r"positions: nothing came; expected int32 \[1, 5\]"),
        ({"positions": int32([0, 1])}, r"positions: int32 \[1, 2\] came"),
        ({"positions": int32([0, 1, 4, 0, 0])}, r"positions\[2\] is 4; expected one from 0 to 3"),
        ({"positions": int32([0, -1, 0, 0, 0])}, r"positions\[1\] is -1"),
    ],
)
def test_a_rotation_is_refused(changes: dict[str, Coded | None], message: str) -> None:
    given = {name: value for name, value in (quarter_turns(8) | changes).items() if value is not None}
    with pytest.raises(BadInput, match=message):
        BEFORE["rope"].change(rows(), HEADS, given)


@pytest.mark.parametrize("x", [2.0**-120, 2.0**100])
def test_products_that_float32_does_not_hold_are_refused(x: float) -> None:
    given = quarter_turns(8) | {"cos_sin": coded(np.full((4, 8), 1.0078125 * (2.0**-40 if x < 1 else 2.0**40)))}
    with pytest.raises(BadInput, match="is not a float32; expected x and cos_sin of 16 bits"):
        BEFORE["rope"].change(coded(np.full((TOKENS, HEADS * WIDTH), 1.0078125 * x)), HEADS, given)


def test_zero_and_not_finite_numbers_are_rotated() -> None:
    x = np.zeros((TOKENS, HEADS * WIDTH))
    x[:, 0], x[:, 1], x[:, 2] = np.inf, np.nan, -0.0
    became = heads(BEFORE["rope"].change(coded(x), HEADS, quarter_turns(8)))
    assert np.isnan(became[1, 0, 0])  # infinity times 0
    assert np.isnan(became[0, 0, 1])


@pytest.mark.parametrize("width", [64, 80, 96, 128, 192, 256])
def test_a_hadamard_rotation_is_turned_back(width: int) -> None:
    """Whole numbers, exactly; heads apart."""
    whole = scrambled(4 * 2 * width, 9).astype(np.int64).reshape(4, 2 * width) % 7 - 3
    undo = BEFORE["hadamard"].undo
    assert undo is not None
    x = coded(whole)
    turned = BEFORE["hadamard"].change(x, 2, {})
    assert turned.format == "bfloat16"
    back = undo(Coded("float32", decode_values(turned).astype(np.float32).view(np.uint32)), 2)
    assert np.abs(decode_values(back) - whole).max() <= 0.5  # bfloat16 rounds the sums
    small = coded(np.eye(1, 2 * width, 3) * 5)
    alone = decode_values(BEFORE["hadamard"].change(small, 2, {}))
    assert np.abs(alone[0, : width & -width]).tolist() == [5.0] * (width & -width)
    assert not alone[0, width:].any()


def test_blocks_of_a_head_are_turned_alike() -> None:
    """vLLM reshapes a head of 96 to three rows of 32 before it looks for signs."""
    x = np.zeros((1, 96))
    x[0, 3::32] = 5
    blocks = decode_values(BEFORE["hadamard"].change(coded(x), 1, {})).reshape(3, 32)
    assert (blocks == blocks[0]).all()


def test_who_turns_back() -> None:
    assert {name: one.undone for name, one in BEFORE.items()} == {
        "hadamard": True, "rope": False, "rope_interleaved": False,
    }  # fmt: skip
    with pytest.raises(BadInput, match="rope"):
        before_named("ropes")


def test_a_zero_point_in_a_scale() -> None:
    shared = SHARED["low_mantissa"]
    scale = Coded("float32", np.array([[0x3F800000, 0x41ABCDE0]], np.uint32))
    point = int32([[7, 15]])
    both = shared.joined(scale, point)
    assert both.data.tolist() == [[0x3F800007, 0x41ABCDEF]]
    first, second = shared.parted(both, "int32")
    assert (first.data.tolist(), second.data.tolist()) == (scale.data.tolist(), point.data.tolist())
    free = Coded("float32", scale.data | 1)
    for first, other in ((scale, int32([[7, 16]])), (scale, int32([[7, -1]])), (free, point)):
        with pytest.raises(BadInput, match="shares the lowest 4 bits of a float32"):
            shared.joined(first, other)
    cache = CACHES["vllm.int4_token_head"]
    assert storable(cache, "k_scale", Coded("float32", scale.data | 9)).data.tolist() == scale.data.tolist()
    assert storable(cache, "v_zero_point", int32([[23]])).data.tolist() == [[7]]
    assert storable(cache, "k", scale) is scale


FIELD = Field("k", ("b", "o", "h", "c"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Cache("x", (Part("k"),), (Buffer("k", (FIELD, FIELD)),), "zero_written", ""), "must stand in one"),
        (lambda: Cache("x", (Part("k"), Part("k")), (), "zero_written", ""), "must be some, and differ"),
        (
            lambda: Cache(
                "x", (Part("k"),), (Buffer("k", (Field("k", ("b",), shares="k"),)),), "zero_written", ""
            ),
            "each must stand in one place",
        ),
        (lambda: CACHES["vllm.flash_fp8"].part("q"), "has no part 'q'; it has k, v"),
        (lambda: resolve("vllm.flash_fp9"), "vllm.flash_fp8"),
        (
            lambda: layout_of(Field("k", ("b", "h", "d", "o", "c"), columns="h d:width/vector c:vector"),
                              Matrix("bfloat16", 16, 36, 3), 16),
            r"k: d:width/vector with width = 12; expected a multiple of 8",
        ),
    ],
)  # fmt: skip
def test_what_is_no_cache(make: Callable[[], object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make()


@pytest.mark.parametrize("name", CACHES)
def test_a_cache_goes_through_a_file(name: str) -> None:
    contract = KvWrite(CACHES[name])
    assert contract_from_json(json.loads(json.dumps(contract_to_json(contract)))) == contract
    assert Claim(contract, "bfloat16", "float8_e4m3fn").rule == name
