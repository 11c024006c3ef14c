"""Caches by torch's own operations: index_put for a write."""

from __future__ import annotations

from narrowgauge import KvWrite, kernel
from narrowgauge.kernels_under_test.claiming import BFLOAT16


@kernel(KvWrite("vllm.flash_copy"), BFLOAT16, BFLOAT16, owner="narrowgauge", backend="torch")
def torch_kv_copy(x, format, v, slot_mapping, k_cache, v_cache, block_size):
    kept = slot_mapping >= 0
    page, place = slot_mapping[kept].long() // block_size, slot_mapping[kept].long() % block_size
    k_cache[page, place], v_cache[page, place] = x[kept], v[kept]
