"""Triton readers of caches of MLA: a latent and a rope part of each token, in one row."""

from __future__ import annotations

import torch

from narrowgauge.kernels_under_test.kv_places import in_row
from narrowgauge.kernels_under_test.triton_kv_parts import FROM, Part, from_bfloat16
from narrowgauge.kernels_under_test.triton_kv_read import both, soft


def ds_mla(cache, source):
    """656 bytes of a token: 512 codes, 4 float32 scales, 64 bfloat16."""
    scales = in_row(cache, 512, 4, torch.float32)
    return (
        Part(in_row(cache, 0, 512), FROM[source], scales, 128),
        Part(in_row(cache, 528, 64, torch.bfloat16), from_bfloat16),
    )


@soft("vllm.fp8_ds_mla")
def triton_kv_read_ds_mla(x, format, source, block_table, seq_lens):
    return both(ds_mla(x, source), format, block_table, seq_lens)
