"""Triton readers of caches that keep several fields in the bytes of a token (MLA) or of a page."""

from __future__ import annotations

import torch

from narrowgauge.kernels_under_test.claiming import BFLOAT16, E4M3, FP4
from narrowgauge.kernels_under_test.kv_places import in_row, nhd
from narrowgauge.kernels_under_test.triton_dequantize import from_e4m3fn
from narrowgauge.kernels_under_test.triton_kv_gather import gathered
from narrowgauge.kernels_under_test.triton_kv_parts import FROM, Part, from_bfloat16, times_global
from narrowgauge.kernels_under_test.triton_kv_read import both, soft, under

#: columns of a token of MLA
LATENT, ROPE = 512, 64


# --- a token's bytes -------------------------------------------------------------------------------------------------


def latent_and_rope(cache):
    """Views of both, of a cache of one format [pages, places, 576]."""
    return nhd(cache[:, :, None, :LATENT]), nhd(cache[:, :, None, LATENT:])


def ds_mla(cache, read):
    """656 bytes: 512 codes, 4 float32 scales, 64 bfloat16."""
    scales = in_row(cache, LATENT, 4, torch.float32)
    rope = in_row(cache, LATENT + 16, ROPE, torch.bfloat16)
    return Part(in_row(cache, 0, LATENT), read, scales, 128), Part(rope, from_bfloat16)


def nvfp4_mla(cache, read):
    """352 bytes: 256 of codes, 64 E4M3, 32 scales: that of block s at byte 8 (s mod 4) + s / 4."""
    scales = cache[:, :, 320:].unflatten(2, (4, 8)).transpose(2, 3)[:, :, None, None]
    latent = Part(in_row(cache, 0, LATENT // 2), read, scales, 16, of_scale=from_e4m3fn, per_byte=2)
    return latent, Part(in_row(cache, 256, ROPE), from_e4m3fn)


def in_pages(pool, block):
    """A pool [slots, …] as pages."""
    return pool.unflatten(0, (-1, block))


@soft("vllm.mla_copy", BFLOAT16)
def triton_soft_kv_read_mla_copy(x, format, source, block_table, seq_lens):
    return both((Part(view, FROM[source]) for view in latent_and_rope(x)), format, block_table, seq_lens)


@soft("vllm.mla_fp8")
def triton_soft_kv_read_mla_fp8(x, format, source, block_table, seq_lens, latent_scale):
    parts = (under(view, latent_scale, FROM[source]) for view in latent_and_rope(x))
    return both(parts, format, block_table, seq_lens)


@soft("vllm.fp8_ds_mla")
def triton_soft_kv_read_ds_mla(x, format, source, block_table, seq_lens):
    return both(ds_mla(x, FROM[source]), format, block_table, seq_lens)


@soft("vllm.nvfp4_ds_mla", FP4)
def triton_soft_kv_read_nvfp4_ds_mla(x, format, source, block_table, seq_lens):
    return both(nvfp4_mla(x, FROM[source]), format, block_table, seq_lens)


@soft("sglang.dsa")
def triton_soft_kv_read_dsa(x, format, source, block_table, seq_lens, block_size):
    return both(ds_mla(in_pages(x, block_size), FROM[source]), format, block_table, seq_lens)


# --- a page's bytes --------------------------------------------------------------------------------------------------


def codes_then_scales(cache, block):
    """Views [pages, bytes of codes] and [pages, scales] of a page of 128 codes and a float32 of each token."""
    codes = block * 128
    return cache[:, :codes], cache[:, codes:].view(torch.float32)


@soft("vllm.indexer")
def triton_soft_kv_read_indexer(x, format, source, block_table, seq_lens, block_size):
    codes, scales = codes_then_scales(x, block_size)
    view, beside = (nhd(each.unflatten(1, (block_size, 1, -1))) for each in (codes, scales))
    return gathered(Part(view, FROM[source], beside, 128), format, block_table, seq_lens)


@soft("vllm.indexer_tiled")
def triton_soft_kv_read_indexer_tiled(x, format, source, block_table, seq_lens, block_size):
    """Tiles of 16 tokens and 16 columns."""
    codes, scales = codes_then_scales(x, block_size)
    tiles = codes.unflatten(1, (block_size // 16, 8, 16, 16)).permute(0, 1, 3, 2, 4)[:, :, :, None]
    beside = nhd(scales.unflatten(1, (block_size, 1, 1)))
    return gathered(Part(tiles, FROM[source], beside, 128), format, block_table, seq_lens)


def swizzled(page, heads, block):
    """The scales of a page's bytes: of slot t and block s in row 4 (t / 4) + s / (S / 4), column 4 (s mod S / 4) +
    t mod 4."""
    return page.unflatten(-1, (heads, block // 4, 4, -1, 4)).permute(0, 2, 5, 1, 3, 4)


def nvfp4_pages(cache, heads, block, axes):
    """Fields of a page: K's codes, K's scales, V's codes, V's scales. ``axes``: "oh" or "ho" of codes and K's scales."""
    scales = cache.shape[1] // 18
    ends = (0, 8 * scales, 9 * scales, 17 * scales, 18 * scales)
    k, k_scale, v, v_scale = (cache[:, a:b] for a, b in zip(ends, ends[1:], strict=False))
    shape = (block, heads, -1) if axes == "oh" else (heads, block, -1)

    def paged(bytes_):
        split = bytes_.unflatten(1, shape)
        return nhd(split if axes == "oh" else split.transpose(1, 2))

    return paged(k), paged(k_scale), paged(v), v_scale, paged


def fp4(view, read, scales, **more):
    """E2M1 of which 16 share a scale."""
    return Part(view, read, scales, 16, per_byte=2, **more)


def e4m3_times_global(global_scale):
    """A part's options where E4M3 scales meet one of the tensor."""
    return {"of_scale": from_e4m3fn, "value": times_global, "beside": global_scale}


@soft("vllm.nvfp4", FP4)
def triton_soft_kv_read_nvfp4(
    x, format, source, block_table, seq_lens, k_global_scale, v_global_scale, heads, block_size
):
    k, k_scale, v, v_scale, _ = nvfp4_pages(x, heads, block_size, "ho")
    parts = (
        fp4(k, FROM[source], k_scale, **e4m3_times_global(k_global_scale)),
        fp4(v, FROM[source], swizzled(v_scale, heads, block_size), **e4m3_times_global(v_global_scale)),
    )
    return both(parts, format, block_table, seq_lens)


@soft("vllm.nvfp4_linear", FP4)
def triton_soft_kv_read_nvfp4_linear(
    x, format, source, block_table, seq_lens, k_global_scale, v_global_scale, heads, block_size
):
    k, k_scale, v, v_scale, paged = nvfp4_pages(x, heads, block_size, "oh")
    parts = (
        fp4(k, FROM[source], k_scale, **e4m3_times_global(k_global_scale)),
        fp4(v, FROM[source], paged(v_scale), **e4m3_times_global(v_global_scale)),
    )
    return both(parts, format, block_table, seq_lens)
