"""More wrong kernels on caches, in torch, by somebody who knew the faults: each says its mistake in its first words."""

from __future__ import annotations

import torch

from narrowgauge import KvRead, KvWrite, kernel
from narrowgauge.suites.meta.mutant_kernels.kv_readers import result
from narrowgauge.suites.meta.mutant_kernels.kv_right import gather, saturated, write_fp8

WRITE, READ, E4, WIDE = KvWrite("vllm.flash_fp8"), KvRead("vllm.flash_fp8"), ["float8_e4m3fn"], ["bfloat16"]


def written(x, v, slots, caches, scales, block_size):
    """Both parts under their scales."""
    (k_cache, v_cache), (k_scale, v_scale) = caches, scales
    write_fp8(
        x, v, slots, k_cache, v_cache, block_size, lambda y: saturated(y / k_scale), lambda y: saturated(y / v_scale)
    )


@kernel(WRITE, E4, WIDE)
def kv_more_leaves_the_last_token_out(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, block_size):
    """The loop over tokens ends one early."""
    written(x[:-1], v[:-1], slot_mapping[:-1], (k_cache, v_cache), (k_scale, v_scale), block_size)


@kernel(WRITE, E4, WIDE)
def kv_more_skips_minus_one_alone(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, block_size):
    """-1 is padding, other negative slots are counted from the end."""
    slots = slot_mapping.clone()
    slots[slots < -1] += k_cache.shape[0] * block_size
    written(x, v, slots, (k_cache, v_cache), (k_scale, v_scale), block_size)


def read(x, v_cache, table, lengths, k_scale, v_scale, block_size):
    """Both parts under their scales."""
    pairs = ((x, k_scale), (v_cache, v_scale))
    return result(*(gather(cache, table, lengths, block_size) * s for cache, s in pairs))


@kernel(READ, WIDE, E4)
def kv_more_reads_the_first_row_of_the_table(x, format, v_cache, block_table, seq_lens, k_scale, v_scale, block_size):
    """The stride between rows of the table is left out."""
    table = block_table[:1].expand(block_table.shape)
    return read(x, v_cache, table, seq_lens, k_scale, v_scale, block_size)


@kernel(READ, WIDE, E4)
def kv_more_leaves_the_place_out(x, format, v_cache, block_table, seq_lens, k_scale, v_scale, block_size):
    """Every token of a page is its first one."""
    first = [
        cache[:, :1].expand(cache.shape).contiguous() for cache in (x.view(torch.uint8), v_cache.view(torch.uint8))
    ]
    k, v = (cache.view(torch.float8_e4m3fn) for cache in first)
    return read(k, v, block_table, seq_lens, k_scale, v_scale, block_size)


@kernel(KvWrite("vllm.paged_fp8"), E4, WIDE)
def kv_more_does_not_pack(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, block_size):
    """Packed keys [pages, heads, d/x, slots, x], and values [pages, heads, d, slots], are taken for rows of heads."""
    heads, width = x.shape[1:]
    rows = [cache.view(torch.uint8).view(cache.shape[0], block_size, heads, width) for cache in (k_cache, v_cache)]
    written(x, v, slot_mapping, rows, (k_scale, v_scale), block_size)


@kernel(WRITE, E4, WIDE)
def kv_more_ignores_the_mapping(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, block_size):
    """Token i goes to slot i, unless it is padding."""
    slots = torch.where(slot_mapping < 0, slot_mapping, torch.arange(len(x), dtype=torch.int32))
    written(x, v, slots, (k_cache, v_cache), (k_scale, v_scale), block_size)


@kernel(READ, WIDE, E4)
def kv_more_reads_the_first_page_over_and_over(x, format, v_cache, block_table, seq_lens, k_scale, v_scale, block_size):
    """The number of the page in its sequence is not added to the address of the table."""
    table = block_table[:, :1].expand(block_table.shape)
    return read(x, v_cache, table, seq_lens, k_scale, v_scale, block_size)
