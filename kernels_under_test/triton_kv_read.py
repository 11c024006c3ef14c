"""Triton readers of caches whose keys and values stand in pages of their own.

``soft`` ones decode by integers; ``native`` ones leave the conversion to the hardware.
"""

from __future__ import annotations

from functools import partial

from narrowgauge import KvRead, kernel
from narrowgauge.kernels_under_test.claiming import BFLOAT16, E4M3, E5M2, FLOAT32, FNUZ
from narrowgauge.kernels_under_test.kv_places import by_columns, hnd, interleaved, nhd, packed_keys, scales
from narrowgauge.kernels_under_test.triton_kv_gather import read
from narrowgauge.kernels_under_test.triton_kv_parts import NATIVE, Part, less_hidden_zero

FLOAT16 = ("float16",)


def _reader(conversion, cache, sources=E4M3, formats=BFLOAT16):
    return kernel(KvRead(cache), formats, sources, owner="narrowgauge", conversion=conversion)


soft, native = partial(_reader, "soft"), partial(_reader, "native")


def unscaled(k, v, source):
    """K and V that are kept as they are: the scales that engines hand over all the same are not theirs."""
    return Part("k", k, source), Part("v", v, source)


def by_scale(k, v, k_scale, v_scale, source, known=None):
    """K and V under scales that are given."""
    return Part("k", k, source, k_scale, known=known), Part("v", v, source, v_scale, known=known)


def by_token_head(k, v, k_scales, v_scales, source, **more):
    """K and V with a scale of each token and head beside them."""
    pairs = ("k", k, k_scales), ("v", v, v_scales)
    return tuple(Part(name, nhd(codes), source, scales=scales(of), **more) for name, codes, of in pairs)


# --- kept as they are ------------------------------------------------------------------------------------------------


@soft("vllm.flash_copy", BFLOAT16)
def triton_soft_kv_read_copy(x, format, source, v_cache, block_table, seq_lens, k_scale, v_scale):
    return read(unscaled(nhd(x), nhd(v_cache), source), format, block_table, seq_lens)


@soft("vllm.paged_copy", FLOAT16, FLOAT16)
def triton_soft_kv_read_paged_copy(x, format, source, v_cache, block_table, seq_lens, k_scale, v_scale):
    return read(unscaled(packed_keys(x), by_columns(v_cache), source), format, block_table, seq_lens)


# --- a scale that is given -------------------------------------------------------------------------------------------


@soft("vllm.flash_fp8")
def triton_soft_kv_read_fp8(x, format, source, v_cache, block_table, seq_lens, k_scale, v_scale):
    return read(by_scale(nhd(x), nhd(v_cache), k_scale, v_scale, source), format, block_table, seq_lens)


@soft("vllm.flash_fp8_hnd", E5M2, FLOAT16)
def triton_soft_kv_read_fp8_hnd(x, format, source, v_cache, block_table, seq_lens, k_scale, v_scale):
    return read(by_scale(hnd(x), hnd(v_cache), k_scale, v_scale, source), format, block_table, seq_lens)


@soft("vllm.flash_fp8_rocm_head", FNUZ, FLOAT32)
def triton_soft_kv_read_fp8_head(x, format, source, v_cache, block_table, seq_lens, k_scale, v_scale):
    return read(by_scale(nhd(x), nhd(v_cache), k_scale, v_scale, source), format, block_table, seq_lens)


@soft("plain.fp8_tensor", ("float8_e5m2fnuz",))
def triton_soft_kv_read_plain(x, format, source, v_cache, block_table, seq_lens, k_scale, v_scale):
    return read(by_scale(nhd(x), nhd(v_cache), k_scale, v_scale, source), format, block_table, seq_lens)


@soft("vllm.paged_fp8")
def triton_soft_kv_read_paged_fp8(x, format, source, v_cache, block_table, seq_lens, k_scale, v_scale):
    parts = by_scale(packed_keys(x), by_columns(v_cache), k_scale, v_scale, source)
    return read(parts, format, block_table, seq_lens)


@soft("vllm.interleaved_fp8_triton")
def triton_soft_kv_read_interleaved_fp8(x, format, source, v_cache, block_table, seq_lens, k_scale, v_scale):
    parts = by_scale(packed_keys(x), interleaved(v_cache), k_scale, v_scale, source)
    return read(parts, format, block_table, seq_lens)


@native("vllm.flash_fp8", (*E4M3, *E5M2))
def triton_native_kv_read_fp8(x, format, source, v_cache, block_table, seq_lens, k_scale, v_scale):
    return read(by_scale(nhd(x), nhd(v_cache), k_scale, v_scale, source, NATIVE), format, block_table, seq_lens)


@native("vllm.flash_fp8_rocm_head", FNUZ)
def triton_native_kv_read_fp8_head(x, format, source, v_cache, block_table, seq_lens, k_scale, v_scale):
    return read(by_scale(nhd(x), nhd(v_cache), k_scale, v_scale, source, NATIVE), format, block_table, seq_lens)


# --- a scale of each token and head ----------------------------------------------------------------------------------


@soft("vllm.fp8_token_head")
def triton_soft_kv_read_fp8_token_head(x, format, source, v_cache, k_scale_cache, v_scale_cache, block_table, seq_lens):
    parts = by_token_head(x, v_cache, k_scale_cache, v_scale_cache, source)
    return read(parts, format, block_table, seq_lens)


@soft("vllm.int8_token_head", ("int8",))
def triton_soft_kv_read_int8_token_head(
    x, format, source, v_cache, k_scale_cache, v_scale_cache, block_table, seq_lens
):
    parts = by_token_head(x, v_cache, k_scale_cache, v_scale_cache, source)
    return read(parts, format, block_table, seq_lens)


@soft("vllm.int4_token_head", ("uint4",))
def triton_soft_kv_read_int4_token_head(
    x, format, source, v_cache, k_scale_cache, v_scale_cache, block_table, seq_lens
):
    more = {"per_byte": 2, "value": less_hidden_zero}
    parts = by_token_head(x, v_cache, k_scale_cache, v_scale_cache, source, **more)
    return read(parts, format, block_table, seq_lens, turned=True)
