"""Triton readers of caches whose keys and values stand in pages of their own.

``soft`` ones decode by integers; ``native`` ones leave the conversion to the hardware.
"""

from __future__ import annotations

from functools import partial

from narrowgauge import KvRead, kernel
from narrowgauge.kernels_under_test.claiming import ALL_SOURCES, BFLOAT16, E4M3, E5M2, FNUZ
from narrowgauge.kernels_under_test.kv_places import by_columns, hnd, interleaved, nhd, packed_keys, scales, width_of
from narrowgauge.kernels_under_test.triton_kv_gather import gathered
from narrowgauge.kernels_under_test.triton_kv_parts import FROM, NATIVE, Part, less_hidden_zero

FLOAT16 = ("float16",)


def _reader(conversion, cache, sources=E4M3, formats=BFLOAT16):
    return kernel(KvRead(cache), formats, sources, owner="narrowgauge", conversion=conversion)


soft, native = partial(_reader, "soft"), partial(_reader, "native")


def both(parts, format, table, lengths, **more):
    """The values of two parts."""
    return tuple(gathered(part, format, table, lengths, **more) for part in parts)


def under(view, scale, read):
    """A part under a scale that is given: one, or one of each head."""
    each = scale.view(1, 1, 1, -1, 1, 1).expand(*view.shape[:4], 1, 1)
    return Part(view, read, each, width_of(view))


def with_stored(view, stored, read, **more):
    """A part whose scales stand in a cache of their own, one of each token and head."""
    return Part(view, read, scales(stored), width_of(view) * more.get("per_byte", 1), **more)


def by_scale(k, v, k_scale, v_scale, read, format, table, lengths):
    """K and V under their static scales."""
    return both((under(k, k_scale, read), under(v, v_scale, read)), format, table, lengths)


# --- kept as they are ------------------------------------------------------------------------------------------------


@soft("vllm.flash_copy", ("bfloat16", "float16"))
def triton_soft_kv_read_copy(x, format, source, v_cache, block_table, seq_lens):
    return both((Part(nhd(cache), FROM[source]) for cache in (x, v_cache)), format, block_table, seq_lens)


@soft("vllm.paged_copy", FLOAT16, FLOAT16)
def triton_soft_kv_read_paged_copy(x, format, source, v_cache, block_table, seq_lens):
    parts = Part(packed_keys(x), FROM[source]), Part(by_columns(v_cache), FROM[source])
    return both(parts, format, block_table, seq_lens)


# --- a scale that is given -------------------------------------------------------------------------------------------


@soft("vllm.flash_fp8", E4M3, ALL_SOURCES)
def triton_soft_kv_read_fp8(x, format, source, v_cache, block_table, seq_lens, k_scale, v_scale):
    return by_scale(nhd(x), nhd(v_cache), k_scale, v_scale, FROM[source], format, block_table, seq_lens)


@soft("vllm.flash_fp8_hnd", E5M2)
def triton_soft_kv_read_fp8_hnd(x, format, source, v_cache, block_table, seq_lens, k_scale, v_scale):
    return by_scale(hnd(x), hnd(v_cache), k_scale, v_scale, FROM[source], format, block_table, seq_lens)


@soft("vllm.flash_fp8_rocm_head", FNUZ)
def triton_soft_kv_read_fp8_head(x, format, source, v_cache, block_table, seq_lens, k_scale, v_scale):
    return by_scale(nhd(x), nhd(v_cache), k_scale, v_scale, FROM[source], format, block_table, seq_lens)


@soft("plain.fp8_tensor", ("float8_e5m2fnuz",))
def triton_soft_kv_read_plain(x, format, source, v_cache, block_table, seq_lens, k_scale, v_scale):
    return by_scale(nhd(x), nhd(v_cache), k_scale, v_scale, FROM[source], format, block_table, seq_lens)


@soft("vllm.paged_fp8")
def triton_soft_kv_read_paged_fp8(x, format, source, v_cache, block_table, seq_lens, k_scale, v_scale):
    k, v = packed_keys(x), by_columns(v_cache)
    return by_scale(k, v, k_scale, v_scale, FROM[source], format, block_table, seq_lens)


@soft("vllm.interleaved_fp8_triton")
def triton_soft_kv_read_interleaved_fp8(x, format, source, v_cache, block_table, seq_lens, k_scale, v_scale):
    k, v = packed_keys(x), interleaved(v_cache)
    return by_scale(k, v, k_scale, v_scale, FROM[source], format, block_table, seq_lens)


@native("vllm.flash_fp8", (*E4M3, *E5M2))
def triton_native_kv_read_fp8(x, format, source, v_cache, block_table, seq_lens, k_scale, v_scale):
    return by_scale(nhd(x), nhd(v_cache), k_scale, v_scale, NATIVE[source], format, block_table, seq_lens)


@native("vllm.flash_fp8_rocm_head", FNUZ)
def triton_native_kv_read_fp8_head(x, format, source, v_cache, block_table, seq_lens, k_scale, v_scale):
    return by_scale(nhd(x), nhd(v_cache), k_scale, v_scale, NATIVE[source], format, block_table, seq_lens)


# --- a scale of each token and head ----------------------------------------------------------------------------------


def by_token_head(k, v, k_scales, v_scales, read, **more):
    """K and V with the scales that are stored beside them."""
    return with_stored(nhd(k), k_scales, read, **more), with_stored(nhd(v), v_scales, read, **more)


@soft("vllm.fp8_token_head")
def triton_soft_kv_read_fp8_token_head(
    x, format, source, v_cache, k_scale_cache, v_scale_cache, block_table, seq_lens
):
    parts = by_token_head(x, v_cache, k_scale_cache, v_scale_cache, FROM[source])
    return both(parts, format, block_table, seq_lens)


@native("vllm.fp8_token_head")
def triton_native_kv_read_fp8_token_head(
    x, format, source, v_cache, k_scale_cache, v_scale_cache, block_table, seq_lens
):
    parts = by_token_head(x, v_cache, k_scale_cache, v_scale_cache, NATIVE[source])
    return both(parts, format, block_table, seq_lens)


@soft("vllm.int8_token_head", ("int8",))
def triton_soft_kv_read_int8_token_head(
    x, format, source, v_cache, k_scale_cache, v_scale_cache, block_table, seq_lens
):
    parts = by_token_head(x, v_cache, k_scale_cache, v_scale_cache, FROM[source])
    return both(parts, format, block_table, seq_lens)


@soft("vllm.int4_token_head", ("uint4",))
def triton_soft_kv_read_int4_token_head(
    x, format, source, v_cache, k_scale_cache, v_scale_cache, block_table, seq_lens
):
    parts = by_token_head(
        x, v_cache, k_scale_cache, v_scale_cache, FROM[source], per_byte=2, value=less_hidden_zero
    )
    return both(parts, format, block_table, seq_lens, turned=True)
