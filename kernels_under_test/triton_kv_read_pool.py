"""Triton readers of SGLang's pools of slots, which have no pages: a table's pages are so many slots each."""

from __future__ import annotations

from narrowgauge.kernels_under_test.claiming import BFLOAT16, E4M3, FP4
from narrowgauge.kernels_under_test.kv_places import hnd, nhd
from narrowgauge.kernels_under_test.triton_dequantize import from_e4m3fn, from_e8m0
from narrowgauge.kernels_under_test.triton_kv_parts import FROM, Part
from narrowgauge.kernels_under_test.triton_kv_read import both, by_scale, soft
from narrowgauge.kernels_under_test.triton_kv_read_rows import e4m3_times_global, fp4, in_pages, swizzled


def pool(cache, block):
    """[slots, heads, columns] as a view of pages."""
    return nhd(in_pages(cache, block))


@soft("sglang.copy", BFLOAT16)
def triton_soft_kv_read_pool_copy(x, format, source, v_cache, block_table, seq_lens, block_size):
    parts = (Part(pool(cache, block_size), FROM[source]) for cache in (x, v_cache))
    return both(parts, format, block_table, seq_lens)


@soft("sglang.fp8", E4M3)
def triton_soft_kv_read_pool_fp8(x, format, source, v_cache, block_table, seq_lens, k_scale, v_scale, block_size):
    k, v = pool(x, block_size), pool(v_cache, block_size)
    return by_scale(k, v, k_scale, v_scale, FROM[source], format, block_table, seq_lens)


@soft("sglang.fp4_block16", FP4)
def triton_soft_kv_read_fp4_block16(
    x, format, source, v_cache, k_scale_cache, v_scale_cache, block_table, seq_lens, heads, block_size
):
    parts = (
        fp4(pool(c, block_size), FROM[source], pool(s.unflatten(1, (heads, -1)), block_size), of_scale=from_e8m0)
        for c, s in ((x, k_scale_cache), (v_cache, v_scale_cache))
    )
    return both(parts, format, block_table, seq_lens)


@soft("sglang.nvfp4", FP4)
def triton_soft_kv_read_pool_nvfp4(
    x, format, source, v_cache, k_scale_cache, v_scale_cache, block_table, seq_lens, k_global_scale, v_global_scale,
    block_size,
):  # fmt: skip
    parts = (
        fp4(pool(c, block_size), FROM[source], pool(s, block_size), **e4m3_times_global(g))
        for c, s, g in ((x, k_scale_cache, k_global_scale), (v_cache, v_scale_cache, v_global_scale))
    )
    return both(parts, format, block_table, seq_lens)


@soft("sglang.nvfp4_native", FP4)
def triton_soft_kv_read_nvfp4_native(
    x, format, source, v_cache, k_scale_cache, v_scale_cache, block_table, seq_lens, k_global_scale, v_global_scale,
    heads, block_size,
):  # fmt: skip
    of_v = swizzled(v_scale_cache.flatten(1), heads, block_size)
    parts = (
        fp4(pool(x, block_size), FROM[source], hnd(k_scale_cache), **e4m3_times_global(k_global_scale)),
        fp4(pool(v_cache, block_size), FROM[source], of_v, **e4m3_times_global(v_global_scale)),
    )
    return both(parts, format, block_table, seq_lens)


@soft("sglang.mxfp8")
def triton_soft_kv_read_pool_mxfp8(
    x, format, source, v_cache, k_scale_cache, v_scale_cache, block_table, seq_lens, block_size
):
    """Scales [pages, heads, 32, slots / 32, columns / 32]: those of slots 32 apart are neighbours."""
    parts = (
        Part(pool(c, block_size), FROM[source], s.permute(0, 3, 2, 1, 4)[..., None], 32, of_scale=from_e8m0)
        for c, s in ((x, k_scale_cache), (v_cache, v_scale_cache))
    )
    return both(parts, format, block_table, seq_lens)
