# SPDX-License-Identifier: Apache-2.0
"""Where every bit of a cache stands: the catalogue's declarations against the engines' index arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.contracts.cache import Cache, Field
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.kv.caches import CACHES
from narrowgauge.reference.kv.pages import Matrix, image, matrices_in, shape_of, storable
from narrowgauge.reference.noise import scrambled
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.suites.meta import kv_cache_pages, second_caches
from narrowgauge.suites.meta.second_kv_places import Cut, Map, Where

pytestmark = pytest.mark.meta

Array = npt.NDArray[Any]
#: every block size, odd and even numbers of heads, every head size that is not refused
CUTS = (
    Cut(16, 3, 64, 3), Cut(32, 1, 128, 2), Cut(64, 2, 96, 2), Cut(128, 1, 80, 2), Cut(256, 1, 192, 1),
    Cut(16, 5, 256, 2), Cut(128, 3, 64, 2), Cut(1, 3, 64, 7),
)  # fmt: skip


def formats(cache: Cache) -> tuple[str, ...]:
    """One format of each width that a cache's codes have."""
    recipe = next((part.recipe for part in cache.parts if part.recipe), "")
    return (RECIPES[recipe].destinations[0].format,) if recipe else ("bfloat16",)


def suits(cache: Cache, bits: int, n: Cut) -> bool:
    """Whether an engine has such pages: 16 bytes, 4 slots, 4 scales, 16 slots, the sizes that its checks ask for."""
    vectors = cache.name.split("_")[0].endswith((".paged", ".interleaved")) or cache.name.endswith("vectorized")
    along = 128 // bits if "interleaved" in cache.name.split("_")[0] or cache.name.endswith("vectorized") else 1
    swizzled = cache.name in ("vllm.nvfp4", "sglang.nvfp4_native")
    slots = 16 if "tiled" in cache.name else 32 if cache.name == "sglang.mxfp8" else 4 if swizzled else along
    columns = 128 // bits if vectors else 64 if swizzled else 32 if cache.name == "sglang.mxfp8" else 16
    return not (n.block % slots or n.width % columns)


def matrices(cache: Cache, where: Map, held: str, n: Cut) -> dict[str, Coded]:
    """Numbers without pattern for every matrix of a cache."""
    found = {}
    for place, (name, at) in enumerate((m, w) for buffer in where.values() for m, w in buffer.items()):
        columns = at.each(n) * (n.heads if at.heads else 1)
        numbers = scrambled(n.slots * columns, 3 + place).reshape(n.slots, columns)
        fmt = format_named(format_of(cache, name, held))
        codes = Coded(fmt.name, (numbers & np.uint64(fmt.code_count - 1)).astype(fmt.storage))
        found[name] = storable(cache, name, codes)
    return found


def format_of(cache: Cache, name: str, held: str) -> str:
    """The format of a matrix, from the recipe of its part."""
    part = cache.part(name.split("_")[0])
    if "_" not in name:
        return held if part.recipe else part.keeps or held
    return RECIPES[part.recipe].outputs(held)[name.partition("_")[2]]


def forms(cache: Cache, held: dict[str, Coded], n: Cut) -> dict[str, Matrix]:
    return {
        name: Matrix(
            value.format, value.shape[0], value.shape[1], n.heads if not cache.part(name.split("_")[0]).heads else 1
        )
        for name, value in held.items()
    }


def quads_at(at: Where, n: Cut, columns: int) -> Array:
    """The number of each four bits of a matrix, [slots, columns, bits / 4]: nothing is cut finer."""
    each = at.each(n)
    slot, column = np.arange(n.slots)[:, None], np.arange(columns)[None]
    first = np.broadcast_to(at.place(slot, column // each, column % each, n), (n.slots, columns))
    assert not (first % 4).any()
    return first[..., None] // 4 + np.arange(at.bits // 4)


def compared(cache: Cache, where: Map, held: dict[str, Coded], n: Cut) -> Iterator[str]:
    """What is wrong with the buffers of these matrices, if anything."""
    of = forms(cache, held, n)
    for buffer in cache.buffers:
        made = image(buffer, held, of, n.block)
        memory = np.ascontiguousarray(made.data).reshape(-1).view(np.uint8)
        memory = np.stack([memory & 15, memory >> 4], axis=1).reshape(-1)
        named = np.zeros(memory.size, np.int64)
        for name, at in where[buffer.name].items():
            low = 4 if at.bits == 28 else 0  # of a scale whose lowest bits are another's
            places = quads_at(at, n, held[name].shape[1])
            shifts = np.arange(low, low + at.bits, 4, dtype=np.uint32)
            want = held[name].data[..., None].astype(np.uint32) >> shifts & 15
            if places.max() >= memory.size or not np.array_equal(memory[places], want):
                yield f"{buffer.name}: {name}"
                continue
            named += np.bincount(places.reshape(-1), minlength=memory.size)
        if not (named == 1).all():
            yield f"{buffer.name}: bits that nobody names, or two"
        back = matrices_in(buffer, made, of, n.block)
        if any(not np.array_equal(back[name].data, held[name].data) for name in where[buffer.name]):
            yield f"{buffer.name}: not there and back"


@pytest.mark.parametrize("name", CACHES)
def test_every_bit_stands_where_the_engine_puts_it(name: str) -> None:
    cache, tried = CACHES[name], 0
    for held in formats(cache):
        bits = format_named(held).bits
        where = second_caches.CACHES[name](bits)
        assert set(where) == {buffer.name for buffer in cache.buffers}
        for n in CUTS:
            if suits(cache, bits, n):
                assert not list(compared(cache, where, matrices(cache, where, held, n), n)), n
                tried += 1
    assert tried >= 4


def swapped(field: Field) -> Iterator[Field]:
    """A field with two neighbouring axes of memory, or two neighbouring digits of one, exchanged."""
    for i in range(len(field.storage) - 1):
        axes = list(field.storage)
        axes[i], axes[i + 1] = axes[i + 1], axes[i]
        yield replace(field, storage=tuple(axes))
    for i, axis in enumerate(field.storage):
        if " " in axis:
            turned = (*field.storage[:i], " ".join(reversed(axis.split())), *field.storage[i + 1 :])
            yield replace(field, storage=turned)
    for what in ("rows", "columns"):
        digits = getattr(field, what).split()
        for i in range(1, len(digits) - 1):  # of those with a size; the first takes what is left
            digits[i], digits[i + 1] = digits[i + 1], digits[i]
            yield replace(field, rows=" ".join(digits)) if what == "rows" else replace(field, columns=" ".join(digits))
            digits[i], digits[i + 1] = digits[i + 1], digits[i]


def mutants(cache: Cache) -> Iterator[Cache]:
    """A cache with one of its fields wrong, two of them exchanged, or a page taken for a token."""
    for place, buffer in enumerate(cache.buffers):
        changed = []
        for at, field in enumerate(buffer.fields):
            changed += [(*buffer.fields[:at], wrong, *buffer.fields[at + 1 :]) for wrong in swapped(field)]
        for at in range(len(buffer.fields) - 1):
            changed.append(buffer.fields[:at] + buffer.fields[at : at + 2][::-1] + buffer.fields[at + 2 :])
        others = [replace(buffer, fields=fields) for fields in changed]
        if len(buffer.fields) > 1:
            others.append(replace(buffer, per="page" if buffer.per == "token" else "token"))
        for other in others:
            yield replace(cache, buffers=(*cache.buffers[:place], other, *cache.buffers[place + 1 :]))


@pytest.mark.parametrize("name", CACHES)
def test_a_wrong_declaration_is_noticed(name: str) -> None:
    """Exchanged digits, axes and fields: each is another layout, or refused."""
    cache = CACHES[name]
    held = formats(cache)[0]
    where = second_caches.CACHES[name](format_named(held).bits)
    n = Cut(64 if name == "sglang.mxfp8" else 32, 3, 128, 2)
    values = matrices(cache, where, held, n)
    count = 0
    for wrong in mutants(cache):
        count += 1
        assert _refuses(wrong, where, values, n) or one_head(cache, wrong), wrong.buffers
    assert count >= 2


def _refuses(cache: Cache, where: Map, values: dict[str, Coded], n: Cut) -> bool:
    try:
        return next(compared(cache, where, values, n), None) is not None
    except BadInput:
        return True


def one_head(cache: Cache, wrong: Cache) -> bool:
    """Where there is one head, its place among the axes says nothing."""
    if not all(part.heads for part in cache.parts):
        return False

    def apart(of: Cache) -> list[tuple[Any, ...]]:
        return [
            (buffer.per, f.of, f.rows, f.columns, " ".join(f.storage).replace("h", "").split())
            for buffer in of.buffers
            for f in buffer.fields
        ]

    return apart(cache) == apart(wrong)


def test_every_cache_is_derived_a_second_time() -> None:
    assert set(second_caches.CACHES) == set(CACHES)


@pytest.mark.parametrize(
    ("name", "held", "n", "shapes"),
    [
        ("vllm.flash_fp8", "float8_e4m3fn", Cut(16, 3, 64, 5), {"k_cache": (5, 16, 3, 64), "v_cache": (5, 16, 3, 64)}),
        ("vllm.paged_copy", "bfloat16", Cut(16, 3, 64, 5), {"k_cache": (5, 3, 8, 16, 8), "v_cache": (5, 3, 64, 16)}),
        ("vllm.interleaved_copy", "float16", Cut(32, 3, 64, 5), {"v_cache": (5, 3, 4, 64, 8)}),
        ("vllm.int4_token_head", "uint4", Cut(16, 3, 64, 5), {"k_cache": (5, 16, 3, 32), "k_scale_cache": (5, 16, 3)}),
        ("vllm.mla_fp8", "float8_e5m2", Cut(64, 1, 64, 2), {"kv_cache": (2, 64, 576)}),
        ("vllm.fp8_ds_mla", "float8_e4m3fn", Cut(64, 1, 64, 2), {"kv_cache": (2, 64, 656)}),
        ("vllm.nvfp4_ds_mla", "float4_e2m1fn", Cut(64, 1, 64, 2), {"kv_cache": (2, 64, 352)}),
        ("vllm.indexer", "float8_e4m3fn", Cut(64, 1, 64, 2), {"k_cache": (2, 64 * 132)}),
        ("sglang.copy", "bfloat16", Cut(1, 3, 64, 7), {"k_cache": (7, 3, 64)}),
        ("sglang.fp4_block16", "float4_e2m1fn", Cut(16, 3, 64, 2), {"k_cache": (32, 3, 32), "v_scale_cache": (32, 12)}),
        ("sglang.mxfp8", "float8_e4m3fn", Cut(128, 3, 64, 2), {"k_scale_cache": (2, 3, 32, 4, 2)}),
        ("sglang.dsa", "float8_e4m3fn", Cut(64, 1, 64, 2), {"kv_cache": (128, 656)}),
    ],
)  # fmt: skip
def test_the_shapes_that_engines_allocate(name: str, held: str, n: Cut, shapes: dict[str, tuple[int, ...]]) -> None:
    """As their comments have them."""
    cache = CACHES[name]
    of = forms(cache, matrices(cache, second_caches.CACHES[name](format_named(held).bits), held, n), n)
    found = {buffer.name: shape_of(buffer, of, n.block) for buffer in cache.buffers}
    assert {buffer: found[buffer] for buffer in shapes} == shapes


def test_the_page_says_what_is_declared() -> None:
    page = "".join(kv_cache_pages.PAGE.parts())
    for name, shape in (
        ("vllm.interleaved_copy", "`k_cache` codes [pages, heads, width/x, block, x]; `v_cache` codes [pages, heads,"),
        ("vllm.fp8_ds_mla", "[pages, block, 512] \\| latent_scale [pages, block, 4] \\| rope [pages, block, 64]"),
        ("sglang.mxfp8", "`*_scale_cache` float8_e8m0fnu [pages, heads, 32, block/32, width/32]"),
    ):  # fmt: skip
        assert shape in next(line for line in page.splitlines() if line.startswith(f"| {name} |"))
