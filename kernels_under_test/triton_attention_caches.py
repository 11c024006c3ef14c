"""Attention over each kind of cache: what stands where, for the kernels of triton_attention.py."""

from __future__ import annotations

from narrowgauge import Attend, kernel
from narrowgauge.kernels_under_test.claiming import BFLOAT16, E4M3, E5M2
from narrowgauge.kernels_under_test.kv_places import hnd, nhd
from narrowgauge.kernels_under_test.triton_attention import attended
from narrowgauge.kernels_under_test.triton_kv_parts import FROM, Part
from narrowgauge.kernels_under_test.triton_kv_read import by_token_head, under
from narrowgauge.kernels_under_test.triton_kv_read_rows import ds_mla


def soft(contract, sources=E4M3, formats=BFLOAT16):
    return kernel(contract, formats, sources, owner="narrowgauge", conversion="soft")


@soft(Attend("vllm.flash_copy"), BFLOAT16)
def triton_soft_attend_copy(x, format, source, query, v_cache, block_table, seq_lens, softmax_scale):
    keys, values = (Part(nhd(cache), FROM[source]) for cache in (x, v_cache))
    return attended(query, keys, values, format, block_table, seq_lens, softmax_scale)


def over_scales(views, scales, source, query, format, *arguments, **more):
    """K and V under their static scales."""
    keys, values = (under(view, scale, FROM[source]) for view, scale in zip(views, scales, strict=True))
    return attended(query, keys, values, format, *arguments, **more)


@soft(Attend("vllm.flash_fp8"), E4M3, ("float32", "bfloat16"))
def triton_soft_attend_fp8(
    x, format, source, query, v_cache, block_table, seq_lens, k_scale, v_scale, softmax_scale
):
    views, scales = (nhd(x), nhd(v_cache)), (k_scale, v_scale)
    return over_scales(views, scales, source, query, format, block_table, seq_lens, softmax_scale)


@soft(Attend("vllm.flash_fp8_hnd"), E5M2, ("float16",))
def triton_soft_attend_fp8_split(
    x, format, source, query, v_cache, block_table, seq_lens, k_scale, v_scale, softmax_scale
):
    views, scales = (hnd(x), hnd(v_cache)), (k_scale, v_scale)
    return over_scales(views, scales, source, query, format, block_table, seq_lens, softmax_scale, splits=3)


@soft(Attend("vllm.flash_fp8_head", soft_cap=0.5, weights="bfloat16"))
def triton_soft_attend_fp8_capped(
    x, format, source, query, v_cache, block_table, seq_lens, k_scale, v_scale, softmax_scale, soft_cap
):
    views, scales, more = (nhd(x), nhd(v_cache)), (k_scale, v_scale), {"weights": "bfloat16"}
    return over_scales(views, scales, source, query, format, block_table, seq_lens, softmax_scale, soft_cap, **more)


@soft(Attend("vllm.int8_token_head"), ("int8",))
def triton_soft_attend_int8_token_head(
    x, format, source, query, v_cache, k_scale_cache, v_scale_cache, block_table, seq_lens, softmax_scale
):
    keys, values = by_token_head(x, v_cache, k_scale_cache, v_scale_cache, FROM[source])
    return attended(query, keys, values, format, block_table, seq_lens, softmax_scale)


@soft(Attend("vllm.fp8_ds_mla"))
def triton_soft_attend_ds_mla(x, format, source, query, block_table, seq_lens, softmax_scale):
    latent, rope = ds_mla(x, FROM[source])
    return attended(query, latent, latent, format, block_table, seq_lens, softmax_scale, rope=rope)
