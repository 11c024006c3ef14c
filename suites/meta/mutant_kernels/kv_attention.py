"""Wrong attention over caches, in torch, from public reports. Each says its mistake in its first words."""

from __future__ import annotations

import torch

from narrowgauge import Attend, kernel
from narrowgauge.suites.meta.mutant_kernels.kv_right import attention, slots_of

FP8, E4, WIDE = Attend("vllm.flash_fp8"), ["float8_e4m3fn"], ["bfloat16"]


def over_sequences(query, places, keys_of, values_of, softmax_scale, cap=0.0):
    """A row of outputs for each sequence. ``keys_of`` and ``values_of`` get pages and places."""
    rows = [
        attention(query[row], keys_of(page, place), values_of(page, place), softmax_scale, cap).flatten()
        for row, (page, place) in enumerate(places)
    ]
    if not rows:
        columns = values_of(*(torch.zeros(0, dtype=torch.long),) * 2).shape[2]
        return torch.zeros(0, query.shape[1] * columns, dtype=torch.bfloat16)
    return torch.stack(rows).to(torch.bfloat16)


def reading(cache, scale):
    return lambda page, place: cache[page, place].float() * scale


@kernel(FP8, WIDE, E4)
def kv_attention_scales_twice(
    x, format, v_cache, block_table, seq_lens, k_scale, v_scale, query, block_size, softmax_scale
):
    """Keys and values are scaled when they are read and again afterwards: vllm#48016."""
    places = slots_of(block_table, seq_lens, block_size)
    k, v = reading(x, k_scale * k_scale), reading(v_cache, v_scale * v_scale)
    return over_sequences(query, places, k, v, softmax_scale)


@kernel(FP8, WIDE, E4)
def kv_attention_v_at_unity(
    x, format, v_cache, block_table, seq_lens, k_scale, v_scale, query, block_size, softmax_scale
):
    """V is not scaled back: flashinfer#4979 (scales are applied only if an option is set)."""
    places = slots_of(block_table, seq_lens, block_size)
    return over_sequences(query, places, reading(x, k_scale), reading(v_cache, 1.0), softmax_scale)


@kernel(Attend("vllm.flash_copy"), WIDE, WIDE)
def kv_attention_scales_a_bfloat16_cache(
    x, format, v_cache, block_table, seq_lens, k_scale, v_scale, query, block_size, softmax_scale
):
    """A checkpoint's k_scale is applied though the cache is bfloat16: sglang#18396."""
    places = slots_of(block_table, seq_lens, block_size)
    return over_sequences(query, places, reading(x, k_scale), reading(v_cache, 1.0), softmax_scale)


@kernel(FP8, WIDE, E4)
def kv_attention_query_in_fp8(
    x, format, v_cache, block_table, seq_lens, k_scale, v_scale, query, block_size, softmax_scale
):
    """The query is cast to fp8, and no scale of it is used: sglang#28144."""
    places = slots_of(block_table, seq_lens, block_size)
    narrow = query.float().clamp(-448, 448).to(torch.float8_e4m3fn).float()
    return over_sequences(narrow, places, reading(x, k_scale), reading(v_cache, v_scale), softmax_scale)


@kernel(FP8, WIDE, E4)
def kv_attention_zero_times_nan(
    x, format, v_cache, block_table, seq_lens, k_scale, v_scale, query, block_size, softmax_scale
):
    """Whole pages are multiplied, the rest of the last one by weights of 0: vllm#641, flash-attention#1745."""
    rows = []
    for row, length in enumerate(seq_lens.tolist()):
        token = torch.arange(-(-length // block_size) * block_size)
        page, place = block_table[row][token // block_size].long(), token % block_size
        k, v = x[page, place].float() * k_scale, v_cache[page, place].float() * v_scale
        groups = query.shape[1] // k.shape[1]
        score = torch.einsum("hd,thd->ht", query[row].float(), k.repeat_interleave(groups, dim=1)) * softmax_scale
        score[:, length:] = -torch.inf
        weight = torch.softmax(score, dim=1) if length else score
        rows.append(torch.einsum("ht,thd->hd", weight, v.repeat_interleave(groups, dim=1)).flatten())
    return torch.stack(rows).to(torch.bfloat16) if rows else query.flatten(1)


@kernel(FP8, WIDE, E4)
def kv_attention_counts_a_key_too_many(
    x, format, v_cache, block_table, seq_lens, k_scale, v_scale, query, block_size, softmax_scale
):
    """The slot behind the last token counts, where the page has one; NaN there is taken for 0: vllm#53856 (what was
    left in V's padding is finite)."""
    longer = [n + (n % block_size != 0) for n in seq_lens.tolist()]
    places = slots_of(block_table, torch.tensor(longer, dtype=torch.int32), block_size)
    k, v = (lambda p, o, c=c, s=s: (c[p, o].float() * s).nan_to_num(0.0) for c, s in ((x, k_scale), (v_cache, v_scale)))
    return over_sequences(query, places, k, v, softmax_scale)


@kernel(Attend("vllm.flash_fp8", soft_cap=30.0), WIDE, E4)
def kv_attention_without_soft_cap(
    x, format, v_cache, block_table, seq_lens, k_scale, v_scale, query, block_size, softmax_scale
):
    """Scores are not capped; no report of just this is known (vllm#39407 has logits at the cap)."""
    places = slots_of(block_table, seq_lens, block_size)
    return over_sequences(query, places, reading(x, k_scale), reading(v_cache, v_scale), softmax_scale)


@kernel(Attend("vllm.mla_fp8"), WIDE, E4)
def kv_attention_scale_of_the_latent(x, format, block_table, seq_lens, latent_scale, query, block_size):
    """The softmax scale counts the latent's columns and not the rotated ones: TensorRT-LLM#3675 (a factor is missing in
    the scale of scores)."""
    places = slots_of(block_table, seq_lens, block_size)

    def keys(page, place):
        return (x[page, place].float() * latent_scale)[:, None]

    return over_sequences(query, places, keys, lambda p, o: keys(p, o)[..., :512], 512**-0.5)


@kernel(Attend("vllm.mla_fp8"), WIDE, E4)
def kv_attention_mla_v_at_unity(x, format, block_table, seq_lens, latent_scale, query, block_size, softmax_scale):
    """The latent is scaled as key and not as value: TensorRT-LLM#16916."""
    places = slots_of(block_table, seq_lens, block_size)
    return over_sequences(
        query,
        places,
        lambda p, o: (x[p, o].float() * latent_scale)[:, None],
        lambda p, o: x[p, o].float()[:, None, :512],
        softmax_scale,
    )


@kernel(FP8, WIDE, E4)
def kv_attention_heads_in_turn(
    x, format, v_cache, block_table, seq_lens, k_scale, v_scale, query, block_size, softmax_scale
):
    """Head h of the query reads head h modulo their number, and not h over the group; no report of just this is
    known."""
    places = slots_of(block_table, seq_lens, block_size)
    heads = x.shape[2]
    groups = query.shape[1] // heads
    turned = query.reshape(query.shape[0], groups, heads, query.shape[2]).transpose(1, 2).flatten(1, 2)
    made = over_sequences(turned, places, reading(x, k_scale), reading(v_cache, v_scale), softmax_scale)
    width = v_cache.shape[3]
    return made.reshape(made.shape[0], heads, groups, width).transpose(1, 2).flatten(1)
