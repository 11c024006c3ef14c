"""Wrong kernels on caches in Triton. Each says its mistake in its first words."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from narrowgauge import KvRead, KvWrite, kernel
from narrowgauge.suites.meta.mutant_kernels.encode_triton import e4m3fn


@triton.jit
def _write(x_ptr, slots_ptr, cache_ptr, scale_ptr, tokens, heads, width, SIZE: tl.constexpr, MASK: tl.constexpr):
    """One program a token: heads * width numbers in a row of SIZE."""
    token = tl.program_id(0)
    slot = tl.load(slots_ptr + token).to(tl.int64)
    if slot >= 0:
        at = tl.arange(0, SIZE)
        inside = at < heads * width
        x = tl.load(x_ptr + token.to(tl.int64) * heads * width + at, mask=inside, other=0.0).to(tl.float32)
        code = e4m3fn(tl.div_rn(x, tl.load(scale_ptr)))
        if MASK:
            tl.store(cache_ptr + slot * heads * width + at, code, mask=inside)
        else:
            end = tl.num_programs(0) * 0 + tokens  # the cache's end alone is looked at
            tl.store(cache_ptr + slot * heads * width + at, code, mask=slot * heads * width + at < end)


@kernel(KvWrite("vllm.flash_fp8"), ["float8_e4m3fn"], ["bfloat16"], backend="triton")
def kv_triton_spills(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    """A row is stored up to the next power of two: kernels-community#1153 (the mask lacks the row's end). With three
    heads the first one of the next slot is lost."""
    tokens, heads, width = x.shape
    for part, cache, scale in ((x, k_cache, k_scale), (v, v_cache, v_scale)):
        memory = cache.view(torch.uint8)
        size = triton.next_power_of_2(heads * width)
        if tokens:
            _write[(tokens,)](
                part.contiguous(), slot_mapping, memory, scale, memory.numel(), heads, width, size, MASK=False
            )


@kernel(KvWrite("vllm.flash_fp8"), ["float8_e4m3fn"], ["bfloat16"], backend="triton")
def kv_triton_takes_slot_0_for_padding(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    """Slot 0 is taken for padding, as SGLang has it, in a cache of vLLM's: sglang#36207 is the other way round."""
    tokens, heads, width = x.shape
    slots = torch.where(slot_mapping == 0, -1, slot_mapping)
    for part, cache, scale in ((x, k_cache, k_scale), (v, v_cache, v_scale)):
        size = triton.next_power_of_2(heads * width)
        if tokens:
            _write[(tokens,)](
                part.contiguous(), slots, cache.view(torch.uint8), scale, 0, heads, width, size, MASK=True
            )


@triton.jit
def _read(cache_ptr, table_ptr, places_ptr, out_ptr, columns, stride, block, row_size, SIZE: tl.constexpr):
    """One program a token; places are pairs of a sequence and a token of it."""
    number = tl.program_id(0)
    sequence, token = tl.load(places_ptr + 2 * number), tl.load(places_ptr + 2 * number + 1)
    page = tl.load(table_ptr + sequence * stride + token // block).to(tl.int64)
    at = tl.arange(0, SIZE)
    row = tl.load(cache_ptr + (page * block + token % block) * row_size + at, mask=at < columns)
    tl.store(out_ptr + number.to(tl.int64) * columns + at, row, mask=at < columns)


@kernel(KvRead("vllm.flash_copy"), ["bfloat16"], ["bfloat16"], backend="triton")
def kv_triton_row_of_the_table(x, format, v_cache, block_table, seq_lens, k_scale, v_scale, block_size):
    """Rows of the table are taken to be as long as the longest sequence has pages, and are one longer: pages of the
    second and later sequences are those of others. No report of just this is known."""
    pairs = [(row, t) for row, n in enumerate(seq_lens.tolist()) for t in range(n)]
    places = torch.tensor(pairs, dtype=torch.int32).reshape(-1, 2).to(x.device)
    longest = max([*seq_lens.tolist(), 1])
    found = []
    for cache in (x, v_cache):
        columns = cache.shape[2] * cache.shape[3]
        out = torch.empty((len(pairs), columns), dtype=x.dtype, device=x.device)
        if pairs:
            size = triton.next_power_of_2(columns)
            stride = -(-longest // block_size)  # wrong: right is block_table.stride(0)
            _read[(len(pairs),)](cache, block_table, places, out, columns, stride, block_size, columns, size)
        found.append(out)
    return tuple(found)
