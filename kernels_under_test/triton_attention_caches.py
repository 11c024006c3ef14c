"""Attention over each kind of cache: what stands where, for the kernels of triton_attention.py."""

from __future__ import annotations

from narrowgauge import Attend, kernel
from narrowgauge.kernels_under_test.claiming import BFLOAT16, E4M3, E5M2
from narrowgauge.kernels_under_test.kv_places import hnd, nhd
from narrowgauge.kernels_under_test.triton_attention import attended
from narrowgauge.kernels_under_test.triton_kv_read import by_scale, by_token_head, unscaled
from narrowgauge.kernels_under_test.triton_kv_read_rows import ds_mla


def soft(contract, sources=E4M3, formats=BFLOAT16):
    return kernel(contract, formats, sources, owner="narrowgauge", conversion="soft")


@soft(Attend("vllm.flash_copy"), BFLOAT16)
def triton_soft_attend_copy(x, format, source, query, v_cache, block_table, seq_lens, k_scale, v_scale, softmax_scale):
    parts = unscaled(nhd(x), nhd(v_cache), source)
    return attended(query, parts, format, block_table, seq_lens, softmax_scale)


@soft(Attend("vllm.flash_fp8"), E4M3, ("float32",))
def triton_soft_attend_fp8(x, format, source, query, v_cache, block_table, seq_lens, k_scale, v_scale, softmax_scale):
    parts = by_scale(nhd(x), nhd(v_cache), k_scale, v_scale, source)
    return attended(query, parts, format, block_table, seq_lens, softmax_scale)


@soft(Attend("vllm.flash_fp8_hnd"), E5M2, ("float16",))
def triton_soft_attend_fp8_split(
    x, format, source, query, v_cache, block_table, seq_lens, k_scale, v_scale, softmax_scale
):
    parts = by_scale(hnd(x), hnd(v_cache), k_scale, v_scale, source)
    return attended(query, parts, format, block_table, seq_lens, softmax_scale, splits=3)


@soft(Attend("vllm.flash_fp8_head", soft_cap=0.5, weights="bfloat16"))
def triton_soft_attend_fp8_capped(
    x, format, source, query, v_cache, block_table, seq_lens, k_scale, v_scale, softmax_scale, soft_cap
):
    parts = by_scale(nhd(x), nhd(v_cache), k_scale, v_scale, source)
    return attended(query, parts, format, block_table, seq_lens, softmax_scale, soft_cap, weights="bfloat16")


@soft(Attend("vllm.int8_token_head"), ("int8",))
def triton_soft_attend_int8_token_head(
    x, format, source, query, v_cache, k_scale_cache, v_scale_cache, block_table, seq_lens, softmax_scale
):
    parts = by_token_head(x, v_cache, k_scale_cache, v_scale_cache, source)
    return attended(query, parts, format, block_table, seq_lens, softmax_scale)


@soft(Attend("vllm.fp8_ds_mla"))
def triton_soft_attend_ds_mla(x, format, source, query, block_table, seq_lens, softmax_scale):
    latent, rope = ds_mla(x, source)
    return attended(query, (latent, latent, rope), format, block_table, seq_lens, softmax_scale)
