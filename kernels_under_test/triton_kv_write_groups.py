"""Triton writers of caches that keep scales beside the codes: of each head of a token, or of groups of its elements."""

from __future__ import annotations

import torch

from narrowgauge.kernels_under_test.claiming import E4M3, FNUZ, FP4
from narrowgauge.kernels_under_test.kv_checks import check_axes, check_bytes
from narrowgauge.kernels_under_test.kv_places import by_fours, in_page, in_row, nhd, scales, tiled
from narrowgauge.kernels_under_test.kv_rows import SKIP_NEGATIVE, SKIP_ZERO, Rows
from narrowgauge.kernels_under_test.triton_kv_recipes import (
    as_whole,
    ds_mla,
    indexer,
    indexer_power,
    nvfp4_ds_mla,
    sglang_dsa,
    token_head,
    token_head_int4,
    token_head_int8,
    unscaled,
)
from narrowgauge.kernels_under_test.triton_kv_slots import write
from narrowgauge.kernels_under_test.triton_kv_write import native, one_head, soft
from narrowgauge.kernels_under_test.triton_targets import NATIVE, to_int8_cut

INT8, UINT4 = ("int8",), ("uint4",)


# --- one scale for each head of a token ------------------------------------------------------------------------------


def token_heads(slots, x, v, caches, scale_caches, recipe, format, **more):
    """K and V, each with its own scales [pages, places, heads]."""
    parts = zip(("k", "v"), (x, v), caches, scale_caches, strict=True)
    write(slots, *(Rows(name, each, nhd(c), recipe, format, scales=scales(s), **more) for name, each, c, s in parts))


@soft("vllm.fp8_token_head")
def triton_soft_kv_fp8_token_head(x, format, v, slot_mapping, k_cache, v_cache, k_scale_cache, v_scale_cache):
    token_heads(slot_mapping, x, v, (k_cache, v_cache), (k_scale_cache, v_scale_cache), token_head, format)


@native("vllm.fp8_token_head", (*E4M3, *FNUZ))
def triton_native_kv_fp8_token_head(x, format, v, slot_mapping, k_cache, v_cache, k_scale_cache, v_scale_cache):
    caches, scale_caches = (k_cache, v_cache), (k_scale_cache, v_scale_cache)
    token_heads(slot_mapping, x, v, caches, scale_caches, token_head, format, code=NATIVE)


@soft("vllm.int8_token_head", INT8, ("float16",))
def triton_soft_kv_int8_token_head(x, format, v, slot_mapping, k_cache, v_cache, k_scale_cache, v_scale_cache):
    caches, scale_caches = (k_cache, v_cache), (k_scale_cache, v_scale_cache)
    token_heads(slot_mapping, x, v, caches, scale_caches, token_head_int8, format, code=to_int8_cut, formats=INT8)


@soft("vllm.int4_token_head", UINT4)
def triton_soft_kv_int4_token_head(x, format, v, slot_mapping, k_cache, v_cache, k_scale_cache, v_scale_cache):
    parts = zip(("k", "v"), (x, v), (k_cache, v_cache), (k_scale_cache, v_scale_cache), strict=True)
    write(
        slot_mapping,
        *(
            Rows(
                name, each, nhd(codes), token_head_int4, format, as_whole, formats=UINT4, scales=scales(of), bound=15.0,
                nan="range", pack=2, first="hadamard",
            )
            for name, each, codes, of in parts
        ),
    )  # fmt: skip


# --- MLA, and the keys of an indexer ---------------------------------------------------------------------------------


def latent_and_rope(slots, x, rope, cache, recipe, format, rule=SKIP_NEGATIVE, **more):
    """Rows of 656 bytes: 512 codes, a float32 scale for each 128, 64 columns as they are."""
    check_bytes("kv_cache", cache, 656)
    codes, of = in_row(cache, 0, 512), in_row(cache, 512, 4, torch.float32)
    latent = Rows("latent", one_head(x), codes, recipe, format, size=128, scales=of, **more)
    kept = Rows("rope", one_head(rope), in_row(cache, 528, 64, torch.bfloat16), format="bfloat16")
    write(slots, latent, kept, rule=rule)


@soft("vllm.fp8_ds_mla", E4M3)
def triton_soft_kv_ds_mla(x, format, rope, slot_mapping, kv_cache):
    latent_and_rope(slot_mapping, x, rope, kv_cache, ds_mla, format)


@soft("sglang.dsa", E4M3)
def triton_soft_kv_dsa(x, format, rope, slot_mapping, kv_cache):
    latent_and_rope(slot_mapping, x, rope, kv_cache, sglang_dsa, format, SKIP_ZERO, nan="all")


@soft("vllm.nvfp4_ds_mla", FP4)
def triton_soft_kv_nvfp4_ds_mla(x, format, rope, slot_mapping, kv_cache):
    check_bytes("kv_cache", kv_cache, 352)
    of = by_fours(in_row(kv_cache, 320, 32))
    latent = Rows(
        "latent", one_head(x), in_row(kv_cache, 0, 256), nvfp4_ds_mla, format, formats=FP4, size=16, pack=2,
        scales=of, scale_format="float8_e4m3fn",
    )  # fmt: skip
    kept = Rows("rope", one_head(rope), in_row(kv_cache, 256, 64), unscaled, "float8_e4m3fn")
    write(slot_mapping, latent, kept)


def indexer_keys(slots, x, cache, block, place, recipe, format):
    """Pages of codes, then scales; ``place`` gives the view of the codes."""
    check_axes("k", x, "tokens columns")
    check_bytes("k_cache", cache, block * (x.shape[1] + 4), "pages")
    codes = place(cache, block, x.shape[1])
    of = nhd(in_page(cache, block * x.shape[1], (block, 1, 1), torch.float32))
    write(slots, Rows("k", one_head(x), codes, recipe, format, scales=of))


def _in_rows(cache, block, columns):
    return nhd(in_page(cache, 0, (block, 1, columns)))


def _in_tiles(cache, block, columns):
    return tiled(in_page(cache, 0, (block // 16, columns // 16, 16, 16)))


@soft("vllm.indexer", E4M3)
def triton_soft_kv_indexer(x, format, slot_mapping, k_cache, block_size):
    indexer_keys(slot_mapping, x, k_cache, block_size, _in_rows, indexer, format)


@soft("vllm.indexer_ue8m0", E4M3)
def triton_soft_kv_indexer_power(x, format, slot_mapping, k_cache, block_size):
    indexer_keys(slot_mapping, x, k_cache, block_size, _in_rows, indexer_power, format)


@soft("vllm.indexer_tiled", E4M3)
def triton_soft_kv_indexer_tiled(x, format, slot_mapping, k_cache, block_size):
    indexer_keys(slot_mapping, x, k_cache, block_size, _in_tiles, indexer, format)


@soft("vllm.indexer_tiled_ue8m0", E4M3)
def triton_soft_kv_indexer_tiled_power(x, format, slot_mapping, k_cache, block_size):
    indexer_keys(slot_mapping, x, k_cache, block_size, _in_tiles, indexer_power, format)
