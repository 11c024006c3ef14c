"""Triton readers of SGLang's pools of slots, which have no pages: a table's pages are so many slots each."""

from __future__ import annotations

from narrowgauge.kernels_under_test.claiming import BFLOAT16, E4M3, FLOAT32, FP4
from narrowgauge.kernels_under_test.kv_places import flat, hnd, interleaved_scales, swizzled
from narrowgauge.kernels_under_test.triton_kv_gather import read
from narrowgauge.kernels_under_test.triton_kv_parts import Part
from narrowgauge.kernels_under_test.triton_kv_read import by_scale, soft, unscaled
from narrowgauge.kernels_under_test.triton_kv_read_rows import by_global, fp4

E8M0 = "float8_e8m0fnu"


@soft("sglang.copy", BFLOAT16)
def triton_soft_kv_read_pool_copy(x, format, source, v_cache, block_table, seq_lens, k_scale, v_scale, block_size):
    k, v = flat(x, block_size), flat(v_cache, block_size)
    return read(unscaled(k, v, source), format, block_table, seq_lens)


@soft("sglang.fp8", E4M3)
def triton_soft_kv_read_pool_fp8(x, format, source, v_cache, block_table, seq_lens, k_scale, v_scale, block_size):
    k, v = flat(x, block_size), flat(v_cache, block_size)
    return read(by_scale(k, v, k_scale, v_scale, source), format, block_table, seq_lens)


@soft("sglang.fp4_block16", FP4)
def triton_soft_kv_read_fp4_block16(
    x, format, source, v_cache, k_scale_cache, v_scale_cache, block_table, seq_lens, heads, block_size
):
    k, v = flat(x, block_size), flat(v_cache, block_size)
    of_k, of_v = (flat(c.unflatten(1, (heads, -1)), block_size) for c in (k_scale_cache, v_scale_cache))
    parts = fp4("k", k, source, of_k, E8M0), fp4("v", v, source, of_v, E8M0)
    return read(parts, format, block_table, seq_lens)


@soft("sglang.nvfp4", FP4, FLOAT32)
def triton_soft_kv_read_pool_nvfp4(
    x, format, source, v_cache, k_scale_cache, v_scale_cache, block_table, seq_lens, k_global_scale, v_global_scale,
    block_size,
):  # fmt: skip
    k, v, of_k, of_v = (flat(c, block_size) for c in (x, v_cache, k_scale_cache, v_scale_cache))
    parts = by_global("k", k, source, of_k, k_global_scale), by_global("v", v, source, of_v, v_global_scale)
    return read(parts, format, block_table, seq_lens)


@soft("sglang.nvfp4_native", FP4)
def triton_soft_kv_read_nvfp4_native(
    x, format, source, v_cache, k_scale_cache, v_scale_cache, block_table, seq_lens, k_global_scale, v_global_scale,
    block_size,
):  # fmt: skip
    k, v, of_k, of_v = flat(x, block_size), flat(v_cache, block_size), hnd(k_scale_cache), swizzled(v_scale_cache)
    parts = by_global("k", k, source, of_k, k_global_scale), by_global("v", v, source, of_v, v_global_scale)
    return read(parts, format, block_table, seq_lens)


@soft("sglang.mxfp8")
def triton_soft_kv_read_pool_mxfp8(
    x, format, source, v_cache, k_scale_cache, v_scale_cache, block_table, seq_lens, block_size
):
    parts = [
        Part(name, flat(codes, block_size), source, scales=interleaved_scales(of), group=32, scale_format=E8M0)
        for name, codes, of in (("k", x, k_scale_cache), ("v", v_cache, v_scale_cache))
    ]
    return read(parts, format, block_table, seq_lens)
