"""Triton readers of caches whose keys and values stand in pages of their own."""

from __future__ import annotations

from functools import partial

from narrowgauge import KvRead, kernel
from narrowgauge.kernels_under_test.claiming import ALL_SOURCES, BFLOAT16, E4M3
from narrowgauge.kernels_under_test.kv_places import hnd, nhd, scales
from narrowgauge.kernels_under_test.triton_kv_gather import gathered
from narrowgauge.kernels_under_test.triton_kv_parts import FROM, Part


def reader(conversion, cache, sources=E4M3, formats=BFLOAT16):
    return kernel(KvRead(cache), formats, sources, owner="narrowgauge", conversion=conversion)


soft, native = partial(reader, "soft"), partial(reader, "native")


def both(parts, format, table, lengths):
    """Keys and values."""
    return tuple(gathered(part, format, table, lengths) for part in parts)


def with_static(view, scale, read):
    """A part under a scale that is given: one, or one of each head."""
    each = scale.view(1, 1, 1, -1, 1, 1).expand(*view.shape[:4], 1, 1)
    return Part(view, read, each, view.shape[4] * view.shape[5])


def unscaled(view, read):
    return Part(view, read)


def with_stored(view, stored, read, **more):
    """A part whose scales stand in a cache of their own, one of each token and head."""
    return Part(view, read, scales(stored), view.shape[4] * view.shape[5], **more)


@soft("vllm.flash_copy", ("bfloat16", "float16"), ("bfloat16",))
def triton_kv_read_copy(x, format, source, v_cache, block_table, seq_lens):
    return both((unscaled(nhd(c), FROM[source]) for c in (x, v_cache)), format, block_table, seq_lens)


def under_scales(views, given, format, table, lengths, read):
    return both((with_static(v, s, read) for v, s in zip(views, given, strict=True)), format, table, lengths)


@soft("vllm.flash_fp8", E4M3, ALL_SOURCES)
def triton_kv_read_tensor(x, format, source, v_cache, block_table, seq_lens, k_scale, v_scale):
    given = k_scale, v_scale
    return under_scales((nhd(x), nhd(v_cache)), given, format, block_table, seq_lens, FROM[source])


@soft("vllm.flash_fp8_hnd")
def triton_kv_read_hnd(x, format, source, v_cache, block_table, seq_lens, k_scale, v_scale):
    given = k_scale, v_scale
    return under_scales((hnd(x), hnd(v_cache)), given, format, block_table, seq_lens, FROM[source])


@soft("vllm.flash_fp8_head")
def triton_kv_read_head(x, format, source, v_cache, block_table, seq_lens, k_scale, v_scale):
    given = k_scale, v_scale
    return under_scales((nhd(x), nhd(v_cache)), given, format, block_table, seq_lens, FROM[source])


@soft("vllm.fp8_token_head")
def triton_kv_read_token_head(x, format, source, v_cache, k_scale_cache, v_scale_cache, block_table, seq_lens):
    parts = (with_stored(nhd(c), s, FROM[source]) for c, s in ((x, k_scale_cache), (v_cache, v_scale_cache)))
    return both(parts, format, block_table, seq_lens)
