# SPDX-License-Identifier: Apache-2.0
"""The second derivation of caches: which matrix stands where in each, and where tokens go."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from narrowgauge.suites.meta.second_kv_places import (
    Cut,
    Map,
    Where,
    behind,
    chunks,
    codes,
    entry,
    flash,
    indexed,
    interleaved_values,
    native,
    nibbles,
    of_head,
    packed_keys,
    page_codes,
    page_scales,
    permuted,
    pool,
    pool_scales,
    tiled,
    transposed_values,
)


def _sixteenths(n: Cut) -> int:
    return n.width // 16


def _pair(key: Where, value: Where | None = None) -> Map:
    return {"k_cache": {"k": key}, "v_cache": {"v": value or key}}


def _scales(key: Where, value: Where | None = None) -> Map:
    return {"k_scale_cache": {"k_scale": key}, "v_scale_cache": {"v_scale": value or key}}


def _nvfp4(hnd: bool, swizzled: bool) -> Map:
    scales = (Where(8, _sixteenths, page_scales(part, hnd, part == 1 and swizzled)) for part in (0, 1))
    k, v = (codes(page_codes(part, hnd), 4) for part in (0, 1))
    of_k, of_v = scales
    return {"kv_cache": {"k": k, "k_scale": of_k, "v": v, "v_scale": of_v}}


def _mla(bits: int) -> Map:
    """[pages, block_size, 576] elements."""
    size = 576 * bits // 8
    return {
        "kv_cache": {
            "latent": codes(entry(size, 0, bits), bits, 512),
            "rope": codes(entry(size, 512 * bits // 8, bits), bits, 64),
        }
    }


_DSA: Map = {
    "kv_cache": {
        "latent": codes(entry(656, 0, 8), 8, 512),
        "latent_scale": codes(entry(656, 512, 32), 32, 4),
        "rope": codes(entry(656, 528, 16), 16, 64),
    }
}
_ROW_SCALE = Where(32, lambda n: 1, behind, heads=False)
_16 = Where(8, _sixteenths, pool_scales)
_TOKEN_HEAD = {**_pair(codes(flash(8), 8)), **_scales(of_head(32))}
#: by name; of one whose format has a width of its own, a function of that width. "-" stands for what follows
CACHES: Mapping[str, Callable[[int], Map]] = {
    **{
        f"{name}{order}": lambda bits, hnd=hnd: _pair(codes(flash(bits, hnd), bits))  # type: ignore[misc]
        for order, hnd in (("", False), ("_hnd", True))
        for name in (
            "vllm.flash_copy", *(f"vllm.flash_fp8{at}{per}" for at in ("", "_rocm", "_rocm_float16")
                                 for per in ("", "_head")),
        )
    },
    **{
        name: lambda bits: _pair(codes(flash(bits), bits))
        for name in (
            "vllm.flash_fp8_triton", "plain.fp8_tensor", "plain.fp8_head",
            *(f"vllm.flash_{n}_rope{on}" for n in ("copy", "fp8") for on in ("", "_interleaved")),
        )
    },
    **{
        f"vllm.paged_{n}": lambda bits: _pair(codes(packed_keys(bits), bits), codes(transposed_values(bits), bits))
        for n in ("copy", "fp8", "fp8_rocm", "fp8_rocm_float16", "fp8_triton")
    },
    **{
        n: lambda bits: _pair(codes(packed_keys(bits), bits), codes(interleaved_values(bits), bits))
        for n in ("vllm.interleaved_copy", "vllm.interleaved_fp8_triton", "sglang.copy_vectorized")
    },
    "vllm.int8_token_head": lambda bits: _TOKEN_HEAD,
    "vllm.fp8_token_head": lambda bits: _TOKEN_HEAD,
    "vllm.int4_token_head": lambda bits: {
        **_pair(codes(nibbles, 4)),
        **{
            f"{p}_scale_cache": {f"{p}_scale": of_head(28, low=4), f"{p}_zero_point": of_head(4)} for p in ("k", "v")
        },
    },
    "vllm.mla_copy": _mla,
    "vllm.mla_fp8": _mla,
    "vllm.mla_fp8_rocm": _mla,
    "vllm.mla_fp8_rocm_float16": _mla,
    "vllm.fp8_ds_mla": lambda bits: _DSA,
    "vllm.nvfp4_ds_mla": lambda bits: {
        "kv_cache": {
            "latent": codes(entry(352, 0, 4), 4, 512),
            "rope": codes(entry(352, 256, 8), 8, 64),
            "latent_scale": codes(permuted, 8, 32),
        }
    },
    **{
        f"vllm.indexer{on}{power}": lambda bits, place=place: {  # type: ignore[misc]
            "k_cache": {"k": codes(place, 8, 128), "k_scale": _ROW_SCALE}
        }
        for on, place in (("", indexed), ("_tiled", tiled))
        for power in ("", "_ue8m0")
    },
    "vllm.nvfp4": lambda bits: _nvfp4(True, True),
    "vllm.nvfp4_linear": lambda bits: _nvfp4(False, False),
    "vllm.nvfp4_linear_hnd": lambda bits: _nvfp4(True, False),
    **{
        f"sglang.{n}": lambda bits: _pair(codes(pool(bits), bits))
        for n in ("copy", "fp8", "fp8_number", "fp8_commit", "fp8_commit_number")
    },
    "sglang.copy_hnd": lambda bits: _pair(codes(flash(bits, hnd=True), bits)),
    "sglang.fp4_block16": lambda bits: {**_pair(codes(pool(4), 4)), **_scales(_16)},
    "sglang.fp4_block16_eager": lambda bits: {**_pair(codes(pool(4), 4)), **_scales(_16)},
    "sglang.nvfp4": lambda bits: {**_pair(codes(pool(4), 4)), **_scales(_16)},
    "sglang.nvfp4_native": lambda bits: {
        **_pair(codes(pool(4), 4)),
        **_scales(*(Where(8, _sixteenths, native(swizzled)) for swizzled in (False, True))),
    },
    "sglang.mxfp8": lambda bits: {
        **_pair(codes(pool(8), 8)),
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
