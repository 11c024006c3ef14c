# SPDX-License-Identifier: Apache-2.0
"""Whole calls on caches: the reference's matrices and images against writers and readers in plain Python loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.operations import Claim, KvRead, KvWrite
from narrowgauge.reference.around.hadamard import vllm_signs
from narrowgauge.reference.behaviour import paged_behaviour
from narrowgauge.reference.interval import Expected
from narrowgauge.reference.kv import memory
from narrowgauge.reference.kv.caches import CACHES
from narrowgauge.reference.kv.cases import Shape, call
from narrowgauge.reference.kv.outputs import paged_outputs
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.suites.meta import second_kv_calls
from narrowgauge.suites.meta.second_caches import Cut
from narrowgauge.suites.meta.second_catalogue import SHAPES, differ

pytestmark = pytest.mark.meta

Array = npt.NDArray[Any]
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


SHAPES_OF_WRITES = (Shape(tokens=7, pages=3, repeated=True), Shape(tokens=4, pages=2, heads=3, fill=1, turn=1))


@pytest.mark.parametrize("name", CACHES)
def test_a_write_is_what_plain_loops_write(name: str) -> None:
    for held in destinations(name):
        claim = Claim(KvWrite(name), source_of(name, held), held)
        for shape in SHAPES_OF_WRITES[: 2 if held == destinations(name)[0] else 1]:
            x = call(shape)(claim)
            sent = memory.to_memory(claim, x)
            left = second_kv_calls.write(name, claim.source, held, arguments(sent, claim), cut_of(claim, x), SIGNS)
            got = {b: shaped(left.bytes[b], sent.given[b]) for b in left.bytes}
            found, wrong = memory.from_memory(claim, x, got)
            assert not wrong
            assert not outside(paged_outputs(paged_behaviour(claim), x), found)


@pytest.mark.parametrize("name", CACHES)
def test_a_read_is_what_plain_loops_read(name: str) -> None:
    for held in destinations(name):
        claim = Claim(KvRead(name), held, "bfloat16" if held != "float16" else "float32")
        x = call(Shape(lengths=(3, 0, CACHES[name].blocks[0] + 1), pages=4, heads=3))(claim)
        sent = memory.to_memory(claim, x)
        given, want = arguments(sent, claim), paged_outputs(paged_behaviour(claim), x)
        step = 1 + next(iter(want.values())).low.data.size // 2000
        found = second_kv_calls.read(name, held, claim.format, given, cut_of(claim, x), SIGNS, step)
        for part, rows in found.items():
            value = want[part].low
            assert len(rows) >= 5
            got = np.array(list(rows.values()), value.data.dtype)
            assert not differ(got, value.data[list(rows)], claim.format).any(), part
