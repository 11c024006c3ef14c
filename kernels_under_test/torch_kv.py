"""Caches by torch's own operations: index_put for a write, a gather for a read."""

from __future__ import annotations

import torch

from narrowgauge import KvRead, KvWrite, kernel
from narrowgauge.kernels_under_test.claiming import BFLOAT16, E4M3


@kernel(KvWrite("vllm.flash_copy"), BFLOAT16, BFLOAT16, owner="narrowgauge", backend="torch")
def torch_kv_copy(x, format, v, slot_mapping, k_cache, v_cache, block_size):
    kept = slot_mapping >= 0
    page, place = slot_mapping[kept].long() // block_size, slot_mapping[kept].long() % block_size
    k_cache[page, place], v_cache[page, place] = x[kept], v[kept]


@kernel(KvRead("vllm.flash_fp8"), BFLOAT16, E4M3, owner="narrowgauge", backend="torch")
def torch_kv_read_fp8(x, format, v_cache, block_table, seq_lens, k_scale, v_scale, block_size):
    places = torch.cat(
        [torch.arange(n) // block_size + row * block_table.shape[1] for row, n in enumerate(seq_lens.tolist())]
        or [torch.zeros(0, dtype=torch.long)]
    )
    within = torch.cat([torch.arange(n) % block_size for n in seq_lens.tolist()] or [torch.zeros(0, dtype=torch.long)])
    page = block_table.reshape(-1)[places.to(x.device)].long()
    read = [
        (cache[page, within.to(x.device)].float() * scale).to(torch.bfloat16)
        for cache, scale in ((x, k_scale), (v_cache, v_scale))
    ]
    return tuple(each.flatten(1) for each in read)
