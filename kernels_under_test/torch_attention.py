"""Attention over caches by torch's own operations: gathered, and then sequence by sequence."""

from __future__ import annotations

import torch

from narrowgauge import Attend, kernel
from narrowgauge.kernels_under_test.claiming import BFLOAT16, E4M3
from narrowgauge.kernels_under_test.kv_checks import check_query
from narrowgauge.kernels_under_test.kv_places import in_row, nhd, scales
from narrowgauge.kernels_under_test.torch_kv_gather import decoded, given, places, scaled


def attending(contract, sources=E4M3, formats=BFLOAT16):
    return kernel(contract, formats, sources, owner="narrowgauge", backend="torch")


def by_softmax(query, keys, values, scale, cap, weights):
    """Of one sequence: query [query heads, columns], keys and values [heads, tokens, columns]; all float32."""
    grouped = query.unflatten(0, (keys.shape[0], -1))
    scores = grouped @ keys.transpose(1, 2) * scale
    if cap:
        scores = cap * torch.tanh(scores / cap)
    rise = torch.exp(scores - scores.amax(-1, keepdim=True))
    mean = rise.to(weights).float() @ values / rise.sum(-1, keepdim=True)
    return mean.flatten(0, 1)


def by_torch(query, keys, values, scale, cap, weights):
    """The same by torch's own operator."""
    return torch.nn.functional.scaled_dot_product_attention(
        query[None, :, None], keys[None], values[None], scale=scale, enable_gqa=True
    )[0, :, 0]


def attended(query, keys, values, lengths, format, scale, cap=0.0, weights=torch.float32, attend=by_softmax):
    """``keys`` and ``values`` [tokens of all sequences, heads, columns], float32. Without tokens: zeros."""
    check_query(query, len(lengths), keys.shape[1], keys.shape[2])
    found = torch.zeros((*query.shape[:2], values.shape[2]), device=query.device)
    start = 0
    for sequence, length in enumerate(lengths.tolist()):
        if length:
            of = slice(start, start + length)
            k, v = keys[of].transpose(0, 1), values[of].transpose(0, 1)
            found[sequence] = attend(query[sequence].float(), k, v, scale, cap, weights)
        start += length
    return found.to(getattr(torch, format))


@attending(Attend("vllm.flash_fp8"))
def torch_attend_sdpa(x, format, source, query, v_cache, block_table, seq_lens, k_scale, v_scale, softmax_scale):
    slots = places(nhd(x), block_table, seq_lens)
    keys, values = given("k", nhd(x), k_scale, slots, "float32"), given("v", nhd(v_cache), v_scale, slots, "float32")
    return attended(query, keys, values, seq_lens, format, softmax_scale, attend=by_torch)


@attending(Attend("vllm.flash_fp8_head", soft_cap=0.5, weights="bfloat16"), E4M3, ("float32",))
def torch_attend_capped(
    x, format, source, query, v_cache, block_table, seq_lens, k_scale, v_scale, softmax_scale, soft_cap
):
    slots = places(nhd(x), block_table, seq_lens)
    keys, values = given("k", nhd(x), k_scale, slots, "float32"), given("v", nhd(v_cache), v_scale, slots, "float32")
    return attended(query, keys, values, seq_lens, format, softmax_scale, soft_cap, torch.bfloat16)


@attending(Attend("vllm.fp8_token_head"), E4M3, ("float16",))
def torch_attend_token_head(
    x, format, source, query, v_cache, k_scale_cache, v_scale_cache, block_table, seq_lens, softmax_scale
):
    slots = places(nhd(x), block_table, seq_lens)
    keys, values = (
        scaled(nhd(cache), scales(s), slots, source) for cache, s in ((x, k_scale_cache), (v_cache, v_scale_cache))
    )
    return attended(query, keys, values, seq_lens, format, softmax_scale)


@attending(Attend("vllm.fp8_ds_mla"))
def torch_attend_ds_mla(x, format, source, query, block_table, seq_lens, softmax_scale):
    codes = in_row(x, 0, 512, torch.float8_e4m3fn)
    slots = places(codes, block_table, seq_lens)
    latent = scaled(codes, in_row(x, 512, 4, torch.float32), slots, source)
    rope = decoded(in_row(x, 528, 64, torch.bfloat16), slots, "bfloat16")
    return attended(query, torch.cat([latent, rope], -1), latent, seq_lens, format, softmax_scale)
