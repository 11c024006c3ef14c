"""Triton readers of caches whose keys and values stand in pages of their own."""

from __future__ import annotations

from functools import partial

from narrowgauge import KvRead, kernel
from narrowgauge.kernels_under_test.claiming import ALL_SOURCES, BFLOAT16, E4M3
from narrowgauge.kernels_under_test.triton_dequantize import READ
from narrowgauge.kernels_under_test.triton_kv_gather import from_bits_of_bfloat16, from_bits_of_float16, gathered

SIXTEEN = {"bfloat16": from_bits_of_bfloat16, "float16": from_bits_of_float16}


def reader(conversion, cache, sources=E4M3, formats=BFLOAT16):
    return kernel(KvRead(cache), formats, sources, owner="narrowgauge", conversion=conversion)


soft, native = partial(reader, "soft"), partial(reader, "native")


def in_order(cache, order):
    """Strides of a cache for page, place, head and column; ``order`` says which axis is which: "pohc"."""
    return tuple(cache.stride(order.index(axis)) for axis in "pohc")


def pages(cache, order):
    """heads, columns of a head, slots of a page, and strides."""
    heads, width, block = (cache.shape[order.index(axis)] for axis in "hco")
    return heads, width, block, in_order(cache, order)


def of_pages(cache, order, format, table, lengths, read, **more):
    heads, width, block, strides = pages(cache, order)
    return gathered(cache, strides, heads, width, format, table, lengths, block, read, **more)


def given(scale, width):
    """A static scale, one or one of each head, as options of ``gathered``."""
    return {"scales": scale, "scale_strides": (0, 0, scale.stride(0) if scale.numel() > 1 else 0, 0), "group": width}


def by_scale(caches, scales, order, format, table, lengths, read):
    return tuple(
        of_pages(cache, order, format, table, lengths, read, **given(scale, cache.shape[order.index("c")]))
        for cache, scale in zip(caches, scales, strict=True)
    )


@soft("vllm.flash_copy", ("bfloat16", "float16"), ("bfloat16",))
def triton_kv_read_copy(x, format, source, v_cache, block_table, seq_lens):
    return tuple(of_pages(c, "pohc", format, block_table, seq_lens, SIXTEEN[source]) for c in (x, v_cache))


@soft("vllm.flash_fp8", E4M3, ALL_SOURCES)
def triton_kv_read_tensor(x, format, source, v_cache, block_table, seq_lens, k_scale, v_scale):
    return by_scale((x, v_cache), (k_scale, v_scale), "pohc", format, block_table, seq_lens, READ[source])


@soft("vllm.flash_fp8_hnd", E4M3)
def triton_kv_read_hnd(x, format, source, v_cache, block_table, seq_lens, k_scale, v_scale):
    return by_scale((x, v_cache), (k_scale, v_scale), "phoc", format, block_table, seq_lens, READ[source])


@soft("vllm.flash_fp8_head", E4M3)
def triton_kv_read_head(x, format, source, v_cache, block_table, seq_lens, k_scale, v_scale):
    return by_scale((x, v_cache), (k_scale, v_scale), "pohc", format, block_table, seq_lens, READ[source])


@soft("vllm.fp8_token_head", E4M3)
def triton_kv_read_token_head(
    x, format, source, v_cache, k_scale_cache, v_scale_cache, block_table, seq_lens
):  # fmt: skip
    return tuple(
        of_pages(
            cache, "pohc", format, block_table, seq_lens, READ[source],
            scales=scales, scale_strides=(*scales.stride()[:3], 0), group=cache.shape[3],
        )
        for cache, scales in ((x, k_scale_cache), (v_cache, v_scale_cache))
    )  # fmt: skip
