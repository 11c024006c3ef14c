# SPDX-License-Identifier: Apache-2.0
"""Whole calls on caches: the reference's matrices and images against writers and readers in plain Python loops."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.contracts.cache import Cache
from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.operations import Claim, KvRead, KvWrite
from narrowgauge.reference.around.hadamard import vllm_signs
from narrowgauge.reference.behaviour import paged_behaviour
from narrowgauge.reference.interval import Expected
from narrowgauge.reference.kv import memory
from narrowgauge.reference.kv.caches import CACHES
from narrowgauge.reference.kv.call import numbers
from narrowgauge.reference.kv.cases import Shape, call
from narrowgauge.reference.kv.outputs import paged_outputs
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.suites.meta import second_kv_calls
from narrowgauge.suites.meta.second_caches import target
from narrowgauge.suites.meta.second_catalogue import SHAPES, differ
from narrowgauge.suites.meta.second_kv_parts import PARTS
from narrowgauge.suites.meta.second_kv_places import Cut

pytestmark = pytest.mark.meta

Array = npt.NDArray[Any]
#: name of a cache, number in the mapping -> slot
Target = Callable[[str, int], int | None]
SIGNS = [int(s) for s in vllm_signs(256)]


def destinations(name: str) -> tuple[str, ...]:
    recipe = next((part.recipe for part in CACHES[name].parts if part.recipe), "")
    return tuple(d.format for d in RECIPES[recipe].destinations) if recipe else ("bfloat16", "float16")


def source_of(name: str, held: str) -> str:
    recipe = next((part.recipe for part in CACHES[name].parts if part.recipe), "")
    return held if not recipe else "float16" if "float32" not in SHAPES[recipe].sources else "bfloat16"


def arguments(sent: Input, claim: Claim) -> dict[str, Array]:
    """What a kernel is handed, by the names of its parameters; a reader's first buffer by its own name."""
    first = "x" if isinstance(claim.contract, KvWrite) else CACHES[claim.rule].buffers[0].name
    return {name: value.data for name, value in sent.given.items()} | {first: sent.data}


def cut_of(claim: Claim, x: Coded) -> Cut:
    given = given_with(x)
    heads, block = (int(n) for n in given["sizes"].data.view(np.int32).ravel())
    count = given[f"held.{CACHES[claim.rule].parts[0].name}"] if isinstance(claim.contract, KvWrite) else x
    width = (x.shape[1] // heads) if CACHES[claim.rule].parts[0].name == "k" else 0
    return Cut(block, heads, width, count.shape[0] // block)


def outside(want: Expected, found: dict[str, Coded]) -> list[str]:
    """Matrices that are not what the reference expects; where a last bit is open, either end will do."""
    wrong = []
    for name, interval in want.items():
        got = found[name]
        assert (got.format, got.shape) == (interval.format, interval.low.shape), name
        off = differ(got.data, interval.low.data, got.format) & differ(got.data, interval.high.data, got.format)
        if off.any():
            at = tuple(int(i) for i in np.argwhere(off)[0])
            wrong.append(f"{name}{list(at)}: {got.data[at]:#x}, reference {interval.low.data[at]:#x}")
    return wrong


def shaped(content: bytearray, like: Coded) -> Coded:
    return Coded(like.format, np.frombuffer(content, like.data.dtype).reshape(like.shape))


SHAPES_OF_WRITES = (Shape(tokens=7, spare=2, at="repeated"), Shape(tokens=4, spare=1, heads=3, fill="numbers", turn=1))


def left_by(claim: Claim, x: Coded, to: Target = target) -> dict[str, Coded]:
    """The buffers that the plain writer of the claim's cache leaves."""
    sent = memory.to_memory(claim, x)
    given, cut = arguments(sent, claim), cut_of(claim, x)
    left = second_kv_calls.write(claim.rule, claim.source, claim.format, given, cut, SIGNS, to)
    return {b: shaped(left.bytes[b], sent.given[b]) for b in left.bytes}


def wrong_in(claim: Claim, x: Coded, buffers: dict[str, Coded]) -> list[str]:
    """What the reference finds wrong in buffers."""
    found, wrong = memory.from_memory(claim, x, buffers)
    return list(wrong) or outside(paged_outputs(paged_behaviour(claim), x), found)


@pytest.mark.parametrize("name", CACHES)
def test_a_write_is_what_plain_loops_write(name: str) -> None:
    for held in destinations(name):
        claim = Claim(KvWrite(name), source_of(name, held), held)
        for shape in SHAPES_OF_WRITES[: 2 if held == destinations(name)[0] else 1]:
            x = call(shape)(claim)
            assert not wrong_in(claim, x, left_by(claim, x))


def part_of(cache: Cache, number: int, **changes: Any) -> Cache:
    """A cache with another part."""
    parts = list(cache.parts)
    parts[number] = replace(parts[number], **changes)
    return replace(cache, parts=tuple(parts))


@pytest.mark.parametrize(
    ("name", "held", "number", "changes"),
    [
        ("vllm.flash_copy_rope", "bfloat16", 0, {"first": "rope_interleaved"}),
        ("vllm.flash_copy_rope", "bfloat16", 0, {"first": ""}),
        ("vllm.flash_copy_rope", "bfloat16", 1, {"first": "rope"}),
        ("vllm.flash_fp8_rope_interleaved", "float8_e4m3fn", 0, {"first": "rope"}),
        ("vllm.int4_token_head", "uint4", 0, {"first": ""}),
        ("vllm.int4_token_head", "uint4", 1, {"per_head": False}),
        ("vllm.flash_fp8_head", "float8_e5m2", 1, {"per_head": False}),
        ("vllm.flash_fp8", "float8_e4m3fn", 0, {"recipe": "sglang.kv_fp8"}),
        ("vllm.mla_fp8", "float8_e4m3fn", 1, {"scale_of": ""}),
        ("vllm.fp8_ds_mla", "float8_e4m3fn", 0, {"recipe": "sglang.fp8_dsa"}),
        ("sglang.dsa", "float8_e4m3fn", 0, {"recipe": "vllm.fp8_ds_mla"}),
        ("vllm.nvfp4_ds_mla", "float4_e2m1fn", 1, {"cast": "ocp_nonsaturate"}),
        ("vllm.indexer", "float8_e4m3fn", 0, {"recipe": "vllm.fp8_indexer_ue8m0"}),
    ],
)
def test_a_part_of_another_kind_is_noticed(name: str, held: str, number: int, changes: dict[str, Any]) -> None:
    right = Claim(KvWrite(name), "bfloat16", held)
    wrong = Claim(KvWrite(part_of(CACHES[name], number, **changes)), "bfloat16", held)
    x = call(SHAPES_OF_WRITES[0])(right)
    left = left_by(right, x)
    assert not wrong_in(right, x, left)
    with suppress(BadInput):  # what the other kind needs did not come
        assert wrong_in(wrong, x, left)


def last_for_negative(name: str, slot: int) -> int | None:
    """Python's own indexing: -1 is the last slot of three pages of 16."""
    return slot % 48


def zero_for_negative(name: str, slot: int) -> int | None:
    return max(slot, 0)


def never_zero(name: str, slot: int) -> int | None:
    return None if slot <= 0 else slot


def as_it_is(name: str, slot: int) -> int | None:
    return slot


@pytest.mark.parametrize(
    ("name", "to", "right"),
    [
        ("vllm.flash_copy", target, True),
        ("vllm.flash_copy", last_for_negative, False),
        ("vllm.flash_copy", zero_for_negative, False),
        ("sglang.copy", as_it_is, True),
        ("sglang.copy", never_zero, True),  # what stands in slot 0 is nobody's
        ("sglang.mla_copy", never_zero, True),
        ("sglang.mla_copy", as_it_is, False),
        ("sglang.mxfp8", never_zero, True),
        ("sglang.mxfp8", as_it_is, False),
        ("sglang.dsa", as_it_is, False),
    ],
)
def test_where_padding_goes(name: str, to: Target, right: bool) -> None:
    """Under each rule: writers that leave it, sink it into slot 0, or take a negative number for one from the end."""
    claim = Claim(KvWrite(name), "bfloat16", destinations(name)[0])
    x = call(Shape(tokens=8, spare=2, fill="numbers"))(claim)
    assert (not wrong_in(claim, x, left_by(claim, x, to))) == right


def test_slot_0_is_a_slot_for_vllm_and_none_for_sglang() -> None:
    """A writer that leaves out slot 0 is wrong where it is a token's."""
    claim = Claim(KvWrite("vllm.flash_copy"), "bfloat16", "bfloat16")
    x = call(Shape(tokens=8, at="ends", fill="numbers"))(claim)
    assert 0 in numbers(given_with(x), "slots")
    assert not wrong_in(claim, x, left_by(claim, x))
    assert wrong_in(claim, x, left_by(claim, x, never_zero))


@pytest.mark.parametrize(
    ("name", "slot", "message"),
    [
        ("vllm.flash_copy", 48, r"slot_mapping\[1\] is 48; expected a slot from 0 to 47, or for padding any negative"),
        ("sglang.copy", 48, r"slot_mapping\[1\] is 48; expected a slot from 0 to 47, or for padding slot 0"),
        ("sglang.copy", -1, r"slot_mapping\[1\] is -1; expected a slot from 0 to 47"),
        ("sglang.mla_copy", -1, r"slot_mapping\[1\] is -1"),
    ],
)
def test_a_slot_outside_is_refused(name: str, slot: int, message: str) -> None:
    claim = Claim(KvWrite(name), "bfloat16", "bfloat16")
    x = call(Shape(tokens=8, spare=2, block=0 if name != "sglang.mla_copy" else 16))(claim)
    assert isinstance(x, Input)
    slots = numbers(x.given, "slots").copy()
    slots[0, 1] = slot
    changed = Input(x.format, x.data, {**x.given, "slots": Coded("int32", slots.view(np.uint32))})
    with pytest.raises(BadInput, match=message):
        paged_outputs(paged_behaviour(claim), changed)


def test_every_cache_is_written_a_second_time() -> None:
    assert set(PARTS) == set(CACHES)


@pytest.mark.parametrize("name", CACHES)
def test_a_read_is_what_plain_loops_read(name: str) -> None:
    for held in destinations(name):
        claim = Claim(KvRead(name), held, "bfloat16" if held != "float16" else "float32")
        x = call(Shape(lengths=(3, 0, CACHES[name].blocks[0] + 1), spare=1, heads=3))(claim)
        sent = memory.to_memory(claim, x)
        given, want = arguments(sent, claim), paged_outputs(paged_behaviour(claim), x)
        step = 1 + next(iter(want.values())).low.data.size // 2000
        found = second_kv_calls.read(name, held, claim.format, given, cut_of(claim, x), SIGNS, step)
        for part, rows in found.items():
            value = want[part].low
            assert len(rows) >= 5
            got = np.array(list(rows.values()), value.data.dtype)
            assert not differ(got, value.data[list(rows)], claim.format).any(), part
