"""What the wrong kernels on caches have right: slots, pages, codes of fp8, gathering, and attention in float32."""

from __future__ import annotations

import torch

from narrowgauge.suites.meta.mutant_kernels.encode import e4m3fn


def placed(slot_mapping, block_size):
    """Which tokens are kept (a negative slot is padding), their pages and places."""
    kept = slot_mapping >= 0
    slots = slot_mapping[kept].long()
    return kept, slots // block_size, slots % block_size


def saturated(y):
    """Codes of e4m3fn: infinity becomes the largest number, NaN stays."""
    return e4m3fn(y.contiguous())


def store(cache, page, place, codes):
    """Bytes into a cache [pages, slots, heads, columns], one token after the other."""
    memory = cache.view(torch.uint8)
    for token in range(codes.shape[0]):
        memory[page[token], place[token]] = codes[token]


def write_fp8(x, v, slot_mapping, k_cache, v_cache, block_size, k_encode, v_encode):
    """Both parts, each by a function from float32 to codes."""
    kept, page, place = placed(slot_mapping, block_size)
    store(k_cache, page, place, k_encode(x[kept].float()))
    store(v_cache, page, place, v_encode(v[kept].float()))


def slots_of(block_table, seq_lens, block_size):
    """The page and place of every token of each sequence."""
    found = []
    for row, length in enumerate(seq_lens.tolist()):
        token = torch.arange(length)
        found.append((block_table[row][token // block_size].long(), token % block_size))
    return found


def gather(cache, block_table, seq_lens, block_size):
    """Rows [tokens, heads, columns] of all sequences in a cache [pages, slots, heads, columns], in float32."""
    places = slots_of(block_table, seq_lens, block_size)
    rows = [cache[page, place].float() for page, place in places]
    return torch.cat(rows) if rows else cache[:0, 0].float()


def attention(query, keys, values, scale, cap=0.0):
    """One query [query heads, d] over keys [tokens, heads, d] and values: float32, the plain way."""
    if not len(keys):
        return torch.zeros(query.shape[0], values.shape[2])
    groups = query.shape[0] // keys.shape[1]
    k, v = (each.repeat_interleave(groups, dim=1) for each in (keys, values))
    score = torch.einsum("hd,thd->ht", query.float(), k) * scale
    if cap:
        score = cap * torch.tanh(score / cap)
    return torch.einsum("ht,thd->hd", torch.softmax(score, dim=1), v)
