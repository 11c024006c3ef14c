"""Wrong readers of caches, in torch, from public reports. Each says its mistake in its first words."""

from __future__ import annotations

import torch

from narrowgauge import KvRead, kernel
from narrowgauge.suites.meta.mutant_kernels.kv_right import gather, slots_of

FP8, E4, WIDE = KvRead("vllm.flash_fp8"), ["float8_e4m3fn"], ["bfloat16"]


def result(*rows):
    return tuple(each.to(torch.bfloat16).flatten(1) for each in rows)


@kernel(FP8, WIDE, E4)
def kv_reader_at_unity(x, format, v_cache, block_table, seq_lens, k_scale, v_scale, block_size):
    """No scale is used: flashinfer#4979, tokenspeed#759 (the writer divides, the reader does not multiply)."""
    return result(*(gather(cache, block_table, seq_lens, block_size) for cache in (x, v_cache)))


@kernel(FP8, WIDE, E4)
def kv_reader_scales_twice(x, format, v_cache, block_table, seq_lens, k_scale, v_scale, block_size):
    """Scales are applied twice: vllm#48016 (a cache is dequantized, and the result scaled again)."""
    pairs = ((x, k_scale), (v_cache, v_scale))
    return result(*(gather(cache, block_table, seq_lens, block_size) * s * s for cache, s in pairs))


@kernel(FP8, WIDE, E4)
def kv_reader_exchanges_scales(x, format, v_cache, block_table, seq_lens, k_scale, v_scale, block_size):
    """K is read under V's scale, V under K's; no report of just this is known."""
    pairs = ((x, v_scale), (v_cache, k_scale))
    return result(*(gather(cache, block_table, seq_lens, block_size) * s for cache, s in pairs))


@kernel(KvRead("plain.fp8_tensor"), WIDE, ["float8_e4m3fnuz"])
def kv_reader_fnuz_as_ocp(x, format, v_cache, block_table, seq_lens, k_scale, v_scale, block_size):
    """A cache of e4m3fnuz is viewed as e4m3fn: vllm#45562 (a buffer of bytes, and a wrapper that names the wrong
    type)."""
    seen = [cache.view(torch.uint8).view(torch.float8_e4m3fn) for cache in (x, v_cache)]
    pairs = zip(seen, (k_scale, v_scale), strict=True)
    return result(*(gather(cache, block_table, seq_lens, block_size) * s for cache, s in pairs))


@kernel(KvRead("vllm.mla_fp8"), WIDE, E4)
def kv_reader_mla_without_scale(x, format, block_table, seq_lens, latent_scale, block_size):
    """The latent is read without its scale, the rotated columns with it: TensorRT-LLM#16916 (None for the scale's
    buffer)."""
    rows = torch.cat([x[page, place].float() for page, place in slots_of(block_table, seq_lens, block_size)] or [
        x[:0, 0].float()
    ])  # fmt: skip
    return result(rows[:, :512], rows[:, 512:] * latent_scale)


@kernel(FP8, WIDE, E4)
def kv_reader_guesses_the_layout(x, format, v_cache, block_table, seq_lens, k_scale, v_scale, block_size):
    """A page is taken for [heads, slots, columns] where it is [slots, heads, columns]: LMCache#2495, LMCache#4463 (the
    layout is guessed from the shape)."""
    pairs = []
    for cache, scale in ((x, k_scale), (v_cache, v_scale)):
        pages, slots, heads, width = cache.shape
        seen = cache.reshape(pages, heads, slots, width).transpose(1, 2)
        pairs.append(gather(seen, block_table, seq_lens, block_size) * scale)
    return result(*pairs)


E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])


@kernel(KvRead("vllm.nvfp4"), WIDE, ["float4_e2m1fn"])
def kv_reader_v_scales_linear(x, format, block_table, seq_lens, k_global_scale, v_global_scale, heads, block_size):
    """V's scales are read in a row, and stand swizzled: vllm#50084 (the same two orders, the other way round)."""
    found, start, pages = [], 0, x.shape[0]
    width = x.shape[1] * 16 // (2 * heads * block_size * 9)  # half a byte each, and a byte for 16
    for over in (k_global_scale, v_global_scale):
        size = heads * block_size * width
        codes = x[:, start : start + size // 2].reshape(pages, heads, block_size, width // 2).long()
        scale = x[:, start + size // 2 : start + size // 2 + size // 16].contiguous().view(torch.float8_e4m3fn)
        start += size // 2 + size // 16
        numbers = torch.stack([E2M1[codes & 15], E2M1[codes >> 4]], dim=-1).reshape(pages, heads, block_size, width)
        scale = scale.float().reshape(pages, heads, block_size, width // 16)
        whole = numbers * (scale * over).repeat_interleave(16, dim=3)
        found.append(gather(whole.transpose(1, 2), block_table, seq_lens, block_size))
    return result(*found)


@kernel(FP8, WIDE, E4)
def kv_reader_takes_logical_pages(x, format, v_cache, block_table, seq_lens, k_scale, v_scale, block_size):
    """The number of a page in its sequence is taken for its number in the cache; no report of just this is known."""
    logical = torch.arange(block_table.shape[1]).expand(block_table.shape) % x.shape[0]
    pairs = ((x, k_scale), (v_cache, v_scale))
    return result(*(gather(cache, logical, seq_lens, block_size) * s for cache, s in pairs))


@kernel(FP8, WIDE, E4)
def kv_reader_rounds_the_scale(x, format, v_cache, block_table, seq_lens, k_scale, v_scale, block_size):
    """Scales are held in bfloat16: vllm#34577 (a scale that is narrower than float32)."""
    pairs = ((x, k_scale), (v_cache, v_scale))
    return result(*(gather(cache, block_table, seq_lens, block_size) * s.bfloat16().float() for cache, s in pairs))
