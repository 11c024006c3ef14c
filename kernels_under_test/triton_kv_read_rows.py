"""Triton readers of caches that keep several fields in the bytes of a token (MLA) or of a page."""

from __future__ import annotations

import torch

from narrowgauge.kernels_under_test.claiming import BFLOAT16, FP4
from narrowgauge.kernels_under_test.kv_checks import check_bytes
from narrowgauge.kernels_under_test.kv_places import (
    by_fours,
    hnd,
    in_page,
    in_places,
    in_row,
    nhd,
    swizzled,
    tiled,
)
from narrowgauge.kernels_under_test.triton_kv_gather import read
from narrowgauge.kernels_under_test.triton_kv_parts import Part, times_global
from narrowgauge.kernels_under_test.triton_kv_read import soft

#: columns of a token of MLA
LATENT, ROPE = 512, 64


# --- a token's bytes -------------------------------------------------------------------------------------------------


def one_format(cache, source, scale=None):
    """Latent and rope, of a cache of one format [pages, places, 576]."""
    latent, rope = in_places(cache, 0, LATENT), in_places(cache, LATENT, ROPE)
    return Part("latent", latent, source, scale), Part("rope", rope, source, scale, "latent")


def ds_mla(cache, source):
    """656 bytes: 512 codes, 4 float32 scales, 64 bfloat16."""
    check_bytes("kv_cache", cache, 656)
    scales = in_row(cache, LATENT, 4, torch.float32)
    latent = Part("latent", in_row(cache, 0, LATENT), source, scales=scales, group=128)
    return latent, Part("rope", in_row(cache, LATENT + 16, ROPE, torch.bfloat16), "bfloat16")


def nvfp4_mla(cache, source):
    """352 bytes: 256 of codes, 64 E4M3, 32 scales."""
    check_bytes("kv_cache", cache, 352)
    latent = fp4("latent", in_row(cache, 0, LATENT // 2), source, by_fours(in_row(cache, 320, 32)), "float8_e4m3fn")
    return latent, Part("rope", in_row(cache, 256, ROPE), "float8_e4m3fn")


def fp4(name, codes, source, scales, scale_format, **more):
    """E2M1 of which 16 share a scale."""
    return Part(name, codes, source, scales=scales, group=16, scale_format=scale_format, per_byte=2, **more)


@soft("vllm.mla_copy", BFLOAT16)
def triton_soft_kv_read_mla_copy(x, format, source, block_table, seq_lens):
    return read(one_format(x, source), format, block_table, seq_lens)


@soft("vllm.mla_fp8")
def triton_soft_kv_read_mla_fp8(x, format, source, block_table, seq_lens, latent_scale):
    return read(one_format(x, source, latent_scale), format, block_table, seq_lens)


@soft("vllm.fp8_ds_mla")
def triton_soft_kv_read_ds_mla(x, format, source, block_table, seq_lens):
    return read(ds_mla(x, source), format, block_table, seq_lens)


@soft("vllm.nvfp4_ds_mla", FP4)
def triton_soft_kv_read_nvfp4_ds_mla(x, format, source, block_table, seq_lens):
    return read(nvfp4_mla(x, source), format, block_table, seq_lens)


@soft("sglang.dsa")
def triton_soft_kv_read_dsa(x, format, source, block_table, seq_lens, block_size):
    return read(ds_mla(x.unflatten(0, (-1, block_size)), source), format, block_table, seq_lens)


# --- a page's bytes --------------------------------------------------------------------------------------------------


def indexer(cache, codes, block, source):
    """128 codes of each token, a view of six axes, and then a float32 of each."""
    check_bytes("k_cache", cache, block * 132, "pages")
    scales = nhd(in_page(cache, block * 128, (block, 1, 1), torch.float32))
    return (Part("k", codes, source, scales=scales),)


@soft("vllm.indexer")
def triton_soft_kv_read_indexer(x, format, source, block_table, seq_lens, block_size):
    codes = nhd(in_page(x, 0, (block_size, 1, 128)))
    return read(indexer(x, codes, block_size, source), format, block_table, seq_lens)


@soft("vllm.indexer_tiled")
def triton_soft_kv_read_indexer_tiled(x, format, source, block_table, seq_lens, block_size):
    codes = tiled(in_page(x, 0, (block_size // 16, 8, 16, 16)))
    return read(indexer(x, codes, block_size, source), format, block_table, seq_lens)


def by_global(name, codes, source, scales, whole):
    """E2M1 under E4M3 scales and one of the tensor."""
    return fp4(name, codes, source, scales, "float8_e4m3fn", value=times_global, whole=whole)


def nvfp4_pages(cache, block, heads, source, given, view, v_view, heads_first):
    """K's codes, K's scales, V's codes, V's scales. ``v_view`` makes a view of V's scales, ``view`` of the rest."""
    groups = cache.shape[1] // (18 * block * heads)
    check_bytes("kv_cache", cache, max(1, groups) * 18 * block * heads, "pages")
    outer = (heads, block) if heads_first else (block, heads)
    found, start = [], 0
    for columns in (8 * groups, groups) * 2:
        found.append(in_page(cache, start, (*outer, columns)))
        start += block * heads * columns
    k, k_scales, v, v_scales = found
    return (
        by_global("k", view(k), source, view(k_scales), given[0]),
        by_global("v", view(v), source, v_view(v_scales), given[1]),
    )


@soft("vllm.nvfp4", FP4)
def triton_soft_kv_read_nvfp4(
    x, format, source, block_table, seq_lens, k_global_scale, v_global_scale, heads, block_size
):
    given = k_global_scale, v_global_scale
    parts = nvfp4_pages(x, block_size, heads, source, given, hnd, swizzled, True)
    return read(parts, format, block_table, seq_lens)


@soft("vllm.nvfp4_linear", FP4)
def triton_soft_kv_read_nvfp4_linear(
    x, format, source, block_table, seq_lens, k_global_scale, v_global_scale, heads, block_size
):
    given = k_global_scale, v_global_scale
    parts = nvfp4_pages(x, block_size, heads, source, given, nhd, nhd, False)
    return read(parts, format, block_table, seq_lens)
