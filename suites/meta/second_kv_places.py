# SPDX-License-Identifier: Apache-2.0
"""The second derivation of caches: for one number of a slot, the bit of a buffer where it begins. Plain arithmetic.

Typed from the kernels' own index arithmetic; it shares nothing with reference/kv. Bits of memory are counted from the
low end of byte 0. ``Where`` holds for numbers and for numpy's arrays of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

#: a whole number, or an array of them
Whole = Any


@dataclass(frozen=True)
class Cut:
    """How a call is cut: slots of a page, heads, columns of a head of K and V, pages."""

    block: int
    heads: int
    width: int
    pages: int

    @property
    def slots(self) -> int:
        return self.block * self.pages


#: slot, head, column of the head (or number of its scale) -> the first bit
Place = Callable[[Whole, Whole, Whole, Cut], Whole]


@dataclass(frozen=True)
class Where:
    """One matrix in a buffer: bits of a number, how many each head has, and where each begins."""

    bits: int  #: 0 for those of the cache's format
    each: Callable[[Cut], int]
    place: Place
    heads: bool = True  #: as many as the call has, or one


#: buffer -> matrix -> where it stands; and the bytes of the whole
Map = Mapping[str, Mapping[str, Where]]


def codes(place: Place, bits: int, columns: int = 0) -> Where:
    """Codes: of a head's columns, or of so many."""
    return Where(bits, (lambda n: columns) if columns else (lambda n: n.width), place, not columns)


# ---------------- vLLM, csrc/cache_kernels.cu: offsets in elements, times the bits of one


def flash(bits: int, hnd: bool = False) -> Place:
    """block_idx * block_stride + block_offset * page_stride + head * head_stride + i, of either order."""

    def place(slot: Whole, head: Whole, i: Whole, n: Cut) -> Whole:
        page, token = (n.width, n.block * n.width) if hnd else (n.heads * n.width, n.width)
        return bits * (slot // n.block * n.block * n.heads * n.width + slot % n.block * page + head * token + i)

    return place


def packed_keys(bits: int) -> Place:
    """[pages, heads, head_size / x, block_size, x], x the elements of 16 bytes."""
    x = 128 // bits

    def place(slot: Whole, head: Whole, i: Whole, n: Cut) -> Whole:
        parts = n.width // x
        page = slot // n.block * n.heads * parts * n.block * x
        return bits * (page + head * parts * n.block * x + i // x * n.block * x + slot % n.block * x + i % x)

    return place


def transposed_values(bits: int) -> Place:
    """[pages, heads, head_size, block_size]."""
    return lambda slot, head, i, n: (
        bits * (slot // n.block * n.heads * n.width * n.block + head * n.width * n.block + i * n.block + slot % n.block)
    )


def interleaved_values(bits: int) -> Place:
    """[pages, heads, block_size / x, head_size, x]; triton_reshape_and_cache_flash.py:82-91, shuffle_5d_cache.py."""
    x = 128 // bits
    return lambda slot, head, i, n: (
        bits
        * (
            slot // n.block * n.heads * n.width * n.block
            + head * n.width * n.block
            + slot % n.block // x * (n.width * x)
            + i * x
            + slot % n.block % x
        )
    )


def of_head(bits: int, low: int = 0) -> Where:
    """Scales [pages, block_size, heads] of float32; ``low`` bits of each belong to somebody else."""
    return Where(
        bits,
        lambda n: 1,
        lambda slot, head, i, n: 32 * (slot // n.block * n.block * n.heads + slot % n.block * n.heads + head) + low,
    )


def nibbles(slot: Whole, head: Whole, i: Whole, n: Cut) -> Whole:
    """int4: byte i / 2 of the head, the even one low."""
    byte = slot // n.block * n.block * n.heads * (n.width // 2) + slot % n.block * n.heads * (n.width // 2)
    return 8 * (byte + head * (n.width // 2) + i // 2) + 4 * (i % 2)


def entry(size: int, start: int, bits: int, stride: int = 0) -> Place:
    """In an entry of so many bytes of each token, pages without gaps."""
    return lambda slot, head, i, n: 8 * (slot * size + start) + (stride or bits) * i


def permuted(slot: Whole, head: Whole, i: Whole, n: Cut) -> Whole:
    """nvfp4_ds_mla: the scale of block s at byte 8 (s & 3) + (s >> 2)."""
    return 8 * (slot * 352 + 320 + 8 * (i & 3) + (i >> 2))


def indexed(slot: Whole, head: Whole, i: Whole, n: Cut) -> Whole:
    """The indexer's codes: the page's first block_size * head_dim bytes."""
    return 8 * (slot // n.block * n.block * 132 + slot % n.block * 128 + i)


def tiled(slot: Whole, head: Whole, i: Whole, n: Cut) -> Whole:
    """The same in tiles of 16 slots and 16 bytes; rocm_aiter_mla_sparse.py:128-166."""
    start = slot // n.block * n.block * 132 + slot % n.block // 16 * 16 * 128 + slot % n.block % 16 * 16
    return 8 * (start + i // 16 * 16 * 16 + i % 16)


def behind(slot: Whole, head: Whole, i: Whole, n: Cut) -> Whole:
    """The indexer's scales, float32, behind the codes of the page."""
    return 8 * (slot // n.block * n.block * 132 + n.block * 128 + slot % n.block * 4)


def side(part: int, n: Cut) -> Whole:
    """Where K's or V's half of an NVFP4 page begins, in bytes of the page."""
    return part * n.heads * n.block * (n.width // 2 + n.width // 16)


def _page(slot: Whole, n: Cut) -> Whole:
    return slot // n.block * 2 * n.heads * n.block * (n.width // 2 + n.width // 16)


def page_codes(part: int, hnd: bool) -> Place:
    """nvfp4_kv_cache_kernels.cu:262-279: head and token strides of data, group * 8 bytes of 16 codes."""

    def place(slot: Whole, head: Whole, i: Whole, n: Cut) -> Whole:
        data = n.width // 2
        strides = (n.block * data, data) if hnd else (data, n.heads * data)
        byte = _page(slot, n) + side(part, n) + head * strides[0] + slot % n.block * strides[1]
        return 8 * (byte + i // 16 * 8) + 4 * (i % 16)

    return place


def page_scales(part: int, hnd: bool, swizzled: bool = False) -> Place:
    """The same of scales, behind the data of their side; V's may be swizzled (:34-48)."""

    def place(slot: Whole, head: Whole, s: Whole, n: Cut) -> Whole:
        count, t = n.width // 16, slot % n.block
        if swizzled:
            group = count // 4
            t, s = t // 4 * 4 + s // group, s % group * 4 + t % 4
        strides = (n.block * count, count) if hnd else (count, n.heads * count)
        start = _page(slot, n) + side(part, n) + n.heads * n.block * (n.width // 2)
        return 8 * (start + head * strides[0] + t * strides[1] + s)

    return place


# ---------------- SGLang


def pool(bits: int) -> Place:
    """[slots, heads, columns]."""
    return lambda slot, head, i, n: bits * ((slot * n.heads + head) * n.width + i)


def pool_scales(slot: Whole, head: Whole, s: Whole, n: Cut) -> Whole:
    """[slots, heads, columns / 16], and [slots, heads * columns / 16] alike, of bytes."""
    return 8 * ((slot * n.heads + head) * (n.width // 16) + s)


def native(swizzled: bool) -> Place:
    """nvfp4_kv_cache.py:104-119."""

    def place(slot: Whole, head: Whole, s: Whole, n: Cut) -> Whole:
        count, t = n.width // 16, slot % n.block
        base = (slot // n.block * n.heads + head) * n.block * count
        group = count // 4
        return 8 * (base + ((t // 4 * 4 + s // group) * count + s % group * 4 + t % 4 if swizzled else t * count + s))

    return place


def chunks(slot: Whole, head: Whole, s: Whole, n: Cut) -> Whole:
    """mxfp8_quant_store_kv.py:62-74."""
    count, po = n.width // 32, slot % n.block
    base = (slot // n.block * n.heads + head) * (32 * (n.block // 32) * count)
    return 8 * (base + po % 32 * (n.block // 32 * count) + po // 32 * count + s)
