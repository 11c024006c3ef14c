"""Kernels on caches that are right on contiguous tensors, and wrong on views; and right ones."""

from __future__ import annotations

import torch

from narrowgauge import KvRead, KvWrite, kernel
from narrowgauge.suites.meta.mutant_kernels.kv_right import gather, placed

WRITE, READ, WIDE = KvWrite("vllm.flash_copy"), KvRead("vllm.flash_copy"), ["bfloat16"]


def written(x, v, slot_mapping, k_cache, v_cache, block_size):
    kept, page, place = placed(slot_mapping, block_size)
    for token, row in enumerate(kept.nonzero().ravel().tolist()):
        k_cache[page[token], place[token]], v_cache[page[token], place[token]] = x[row], v[row]


def packed(x):
    """A tensor taken for contiguous: its first element and its shape are all that is looked at."""
    tokens, heads, width = x.shape
    return torch.as_strided(x, (tokens, heads, width), (heads * width, width, 1))


def rows_alone(x):
    """Only the stride of tokens is looked at."""
    return torch.as_strided(x, x.shape, (x.stride(0), x.shape[2], 1))


def in_32_bits(cache):
    """Pages of a cache, at offsets that wrap."""
    pages = [
        torch.as_strided(cache, cache.shape[1:], cache.stride()[1:], page * cache.stride(0) % (1 << 31))
        for page in range(cache.shape[0])
    ]
    return pages


@kernel(WRITE, WIDE, WIDE)
def kv_views_right_writer(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, block_size):
    written(x, v, slot_mapping, k_cache, v_cache, block_size)


@kernel(WRITE, WIDE, WIDE)
def kv_views_tokens_packed(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, block_size):
    """K and V are taken for contiguous; engines cut them out of one projection."""
    written(packed(x), packed(v), slot_mapping, k_cache, v_cache, block_size)


@kernel(WRITE, WIDE, WIDE)
def kv_views_heads_packed(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, block_size):
    """Heads and columns are taken to follow one another."""
    written(rows_alone(x), rows_alone(v), slot_mapping, k_cache, v_cache, block_size)


@kernel(WRITE, WIDE, WIDE)
def kv_views_vs_stride(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, block_size):
    """V is taken for contiguous, K is not."""
    written(x, packed(v), slot_mapping, k_cache, v_cache, block_size)


@kernel(WRITE, WIDE, WIDE)
def kv_views_offsets_in_32_bits(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, block_size):
    """Offsets of pages wrap: vllm#1486."""
    written_pages = in_32_bits(k_cache), in_32_bits(v_cache)
    kept, page, place = placed(slot_mapping, block_size)
    for token, row in enumerate(kept.nonzero().ravel().tolist()):
        for pages, part in zip(written_pages, (x, v), strict=True):
            pages[page[token]][place[token]] = part[row]


@kernel(READ, WIDE, WIDE)
def kv_views_right_reader(x, format, v_cache, block_table, seq_lens, k_scale, v_scale, block_size):
    rows = [gather(cache, block_table, seq_lens, block_size).to(torch.bfloat16) for cache in (x, v_cache)]
    return tuple(each.flatten(1) for each in rows)


@kernel(READ, WIDE, WIDE)
def kv_views_reads_in_32_bits(x, format, v_cache, block_table, seq_lens, k_scale, v_scale, block_size):
    """Offsets of pages wrap: vllm#52109."""
    found = []
    for cache in (x, v_cache):
        pages = in_32_bits(cache)
        rows = [
            pages[block_table[row, token // block_size]][token % block_size]
            for row, length in enumerate(seq_lens.tolist())
            for token in range(length)
        ]
        found.append(torch.stack(rows).flatten(1) if rows else cache[:0, 0].flatten(1))
    return tuple(found)
