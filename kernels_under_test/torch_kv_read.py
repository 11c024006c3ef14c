"""Readers of caches by torch's own operations."""

from __future__ import annotations

import torch

from narrowgauge import KvRead, kernel
from narrowgauge.kernels_under_test.claiming import BFLOAT16, E4M3, E5M2, FNUZ, FP4
from narrowgauge.kernels_under_test.kv_places import by_columns, flat, hnd, in_row, nhd, packed_keys, scales
from narrowgauge.kernels_under_test.torch_kv_gather import (
    decoded,
    given,
    less_hidden_zero,
    places,
    rows,
    scaled,
    turned_back,
)


def reader(cache, sources=E4M3, formats=BFLOAT16):
    return kernel(KvRead(cache), formats, sources, owner="narrowgauge", backend="torch")


def by_scale(views, static, format, table, lengths):
    """K and V under their static scales."""
    slots = places(views[0], table, lengths)
    return tuple(rows(given(n, v, s, slots, format), format) for n, v, s in zip("kv", views, static, strict=True))


@reader("vllm.flash_copy", BFLOAT16, ("bfloat16", "float32"))
def torch_kv_read_copy(x, format, source, v_cache, block_table, seq_lens, k_scale, v_scale):
    slots = places(nhd(x), block_table, seq_lens)
    return tuple(rows(decoded(nhd(cache), slots, source), format) for cache in (x, v_cache))


@reader("vllm.flash_fp8", (*E4M3, *E5M2))
def torch_kv_read_fp8(x, format, source, v_cache, block_table, seq_lens, k_scale, v_scale):
    return by_scale((nhd(x), nhd(v_cache)), (k_scale, v_scale), format, block_table, seq_lens)


@reader("vllm.flash_fp8_rocm_head_hnd", FNUZ, ("float16",))
def torch_kv_read_fp8_head(x, format, source, v_cache, block_table, seq_lens, k_scale, v_scale):
    return by_scale((hnd(x), hnd(v_cache)), (k_scale, v_scale), format, block_table, seq_lens)


@reader("vllm.paged_fp8")
def torch_kv_read_paged_fp8(x, format, source, v_cache, block_table, seq_lens, k_scale, v_scale):
    views = packed_keys(x), by_columns(v_cache)
    return by_scale(views, (k_scale, v_scale), format, block_table, seq_lens)


@reader("sglang.fp8", ("float8_e5m2",))
def torch_kv_read_pool_fp8(x, format, source, v_cache, block_table, seq_lens, k_scale, v_scale, block_size):
    views = [flat(cache, block_size) for cache in (x, v_cache)]
    return by_scale(views, (k_scale, v_scale), format, block_table, seq_lens)


@reader("vllm.int8_token_head", ("int8",))
def torch_kv_read_int8_token_head(x, format, source, v_cache, k_scale_cache, v_scale_cache, block_table, seq_lens):
    slots = places(nhd(x), block_table, seq_lens)
    pairs = (x, k_scale_cache), (v_cache, v_scale_cache)
    return tuple(rows(scaled(nhd(cache), scales(s), slots, source), format) for cache, s in pairs)


@reader("vllm.int4_token_head", ("uint4",))
def torch_kv_read_int4_token_head(x, format, source, v_cache, k_scale_cache, v_scale_cache, block_table, seq_lens):
    slots = places(nhd(x), block_table, seq_lens)
    pairs = (x, k_scale_cache), (v_cache, v_scale_cache)
    read = (less_hidden_zero(nhd(cache), scales(s), slots, source) for cache, s in pairs)
    return tuple(rows(turned_back(values), format) for values in read)


@reader("sglang.fp4_block16", FP4)
def torch_kv_read_fp4_block16(
    x, format, source, v_cache, k_scale_cache, v_scale_cache, block_table, seq_lens, heads, block_size
):
    """A scale is the exponent of a power of two: as the bits of a float32, 0 apart."""
    slots = places(flat(x, block_size), block_table, seq_lens)
    read = []
    for cache, exponents in ((x, k_scale_cache), (v_cache, v_scale_cache)):
        view = flat(cache, block_size)
        power = torch.exp2(exponents[slots].double() - 127).float()
        power = torch.where(exponents[slots] == 255, torch.nan, power).unflatten(1, (heads, -1))
        read.append(rows(decoded(view, slots, source) * power.repeat_interleave(16, -1), format))
    return tuple(read)


@reader("vllm.fp8_ds_mla")
def torch_kv_read_ds_mla(x, format, source, block_table, seq_lens):
    codes = in_row(x, 0, 512, torch.float8_e4m3fn)
    slots = places(codes, block_table, seq_lens)
    latent = scaled(codes, in_row(x, 512, 4, torch.float32), slots, source)
    rope = decoded(in_row(x, 528, 64, torch.bfloat16), slots, "bfloat16")
    return rows(latent, format), rows(rope, format)
