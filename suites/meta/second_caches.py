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


def _codes(place: Place, bits: int, columns: int = 0) -> Where:
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


def _sixteenths(n: Cut) -> int:
    return n.width // 16


def _pair(key: Where, value: Where | None = None) -> Map:
    return {"k_cache": {"k": key}, "v_cache": {"v": value or key}}


def _scales(key: Where, value: Where | None = None) -> Map:
    return {"k_scale_cache": {"k_scale": key}, "v_scale_cache": {"v_scale": value or key}}


def _nvfp4(hnd: bool, swizzled: bool) -> Map:
    scales = (Where(8, _sixteenths, page_scales(part, hnd, part == 1 and swizzled)) for part in (0, 1))
    k, v = (_codes(page_codes(part, hnd), 4) for part in (0, 1))
    of_k, of_v = scales
    return {"kv_cache": {"k": k, "k_scale": of_k, "v": v, "v_scale": of_v}}


def _mla(bits: int) -> Map:
    """[pages, block_size, 576] elements."""
    size = 576 * bits // 8
    return {
        "kv_cache": {
            "latent": _codes(entry(size, 0, bits), bits, 512),
            "rope": _codes(entry(size, 512 * bits // 8, bits), bits, 64),
        }
    }


_DSA: Map = {
    "kv_cache": {
        "latent": _codes(entry(656, 0, 8), 8, 512),
        "latent_scale": _codes(entry(656, 512, 32), 32, 4),
        "rope": _codes(entry(656, 528, 16), 16, 64),
    }
}
_ROW_SCALE = Where(32, lambda n: 1, behind, heads=False)
_16 = Where(8, _sixteenths, pool_scales)
_TOKEN_HEAD = {**_pair(_codes(flash(8), 8)), **_scales(of_head(32))}
#: by name; of one whose format has a width of its own, a function of that width. "-" stands for what follows
CACHES: Mapping[str, Callable[[int], Map]] = {
    **{
        f"{name}{order}": lambda bits, hnd=hnd: _pair(_codes(flash(bits, hnd), bits))  # type: ignore[misc]
        for order, hnd in (("", False), ("_hnd", True))
        for name in (
            "vllm.flash_copy", *(f"vllm.flash_fp8{at}{per}" for at in ("", "_rocm", "_rocm_float16")
                                 for per in ("", "_head")),
        )
    },
    **{
        name: lambda bits: _pair(_codes(flash(bits), bits))
        for name in (
            "vllm.flash_fp8_triton", "plain.fp8_tensor", "plain.fp8_head",
            *(f"vllm.flash_{n}_rope{on}" for n in ("copy", "fp8") for on in ("", "_interleaved")),
        )
    },
    **{
        f"vllm.paged_{n}": lambda bits: _pair(_codes(packed_keys(bits), bits), _codes(transposed_values(bits), bits))
        for n in ("copy", "fp8", "fp8_rocm", "fp8_rocm_float16", "fp8_triton")
    },
    **{
        n: lambda bits: _pair(_codes(packed_keys(bits), bits), _codes(interleaved_values(bits), bits))
        for n in ("vllm.interleaved_copy", "vllm.interleaved_fp8_triton", "sglang.copy_vectorized")
    },
    "vllm.int8_token_head": lambda bits: _TOKEN_HEAD,
    "vllm.fp8_token_head": lambda bits: _TOKEN_HEAD,
    "vllm.int4_token_head": lambda bits: {
        **_pair(_codes(nibbles, 4)),
        **{
            f"{p}_scale_cache": {f"{p}_scale": of_head(28, low=4), f"{p}_zero_point": of_head(4)} for p in ("k", "v")
        },
    },
    "vllm.mla_copy": _mla,
    "vllm.mla_fp8": _mla,
    "vllm.mla_fp8_rocm": _mla,
    "vllm.fp8_ds_mla": lambda bits: _DSA,
    "vllm.nvfp4_ds_mla": lambda bits: {
        "kv_cache": {
            "latent": _codes(entry(352, 0, 4), 4, 512),
            "rope": _codes(entry(352, 256, 8), 8, 64),
            "latent_scale": _codes(permuted, 8, 32),
        }
    },
    **{
        f"vllm.indexer{on}{power}": lambda bits, place=place: {  # type: ignore[misc]
            "k_cache": {"k": _codes(place, 8, 128), "k_scale": _ROW_SCALE}
        }
        for on, place in (("", indexed), ("_tiled", tiled))
        for power in ("", "_ue8m0")
    },
    "vllm.nvfp4": lambda bits: _nvfp4(True, True),
    "vllm.nvfp4_linear": lambda bits: _nvfp4(False, False),
    "vllm.nvfp4_linear_hnd": lambda bits: _nvfp4(True, False),
    **{
        f"sglang.{n}": lambda bits: _pair(_codes(pool(bits), bits))
        for n in ("copy", "fp8", "fp8_number", "fp8_commit", "fp8_commit_number")
    },
    "sglang.copy_hnd": lambda bits: _pair(_codes(flash(bits, hnd=True), bits)),
    "sglang.fp4_block16": lambda bits: {**_pair(_codes(pool(4), 4)), **_scales(_16)},
    "sglang.fp4_block16_eager": lambda bits: {**_pair(_codes(pool(4), 4)), **_scales(_16)},
    "sglang.nvfp4": lambda bits: {**_pair(_codes(pool(4), 4)), **_scales(_16)},
    "sglang.nvfp4_native": lambda bits: {
        **_pair(_codes(pool(4), 4)),
        **_scales(*(Where(8, _sixteenths, native(swizzled)) for swizzled in (False, True))),
    },
    "sglang.mxfp8": lambda bits: {
        **_pair(_codes(pool(8), 8)),
        **_scales(Where(8, lambda n: n.width // 32, chunks)),
    },
    "sglang.mla_copy": _mla,
    "sglang.dsa": lambda bits: _DSA,
}  # fmt: skip
#: which slot numbers are padding, and whether what they bring is put anywhere, by the beginning of a cache's name
SINK, LEAVES_ZERO, LEAVES_NEGATIVE = "slot 0 takes it", "slot 0 is left", "a negative one is left"
SLOTS: Mapping[str, str] = {
    "vllm.": LEAVES_NEGATIVE,
    "plain.": LEAVES_NEGATIVE,
    "sglang.": SINK,
    "sglang.mxfp8": LEAVES_ZERO,
    "sglang.mla_copy": LEAVES_ZERO,
    "sglang.dsa": LEAVES_ZERO,
}


def target(cache: str, slot: int) -> int | None:
    """The slot that a token with this number is written to; None where it is written nowhere."""
    rule = SLOTS[max((name for name in SLOTS if cache.startswith(name)), key=len)]
    if rule == LEAVES_NEGATIVE:
        return None if slot < 0 else slot
    return None if slot == 0 and rule == LEAVES_ZERO else slot
