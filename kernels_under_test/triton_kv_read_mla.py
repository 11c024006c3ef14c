"""Triton readers of caches of MLA: a latent and a rope part of each token, several fields in one row of bytes."""

from __future__ import annotations

import torch

from narrowgauge.kernels_under_test.triton_dequantize import READ
from narrowgauge.kernels_under_test.triton_kv_gather import from_bits_of_bfloat16, gathered
from narrowgauge.kernels_under_test.triton_kv_read import soft

BYTES = ("float8_e4m3fn",)


def field(cache, start, count, dtype):
    """``count`` elements of each token's bytes from ``start`` on, as a view [pages, places, count]."""
    return cache[:, :, start : start + count * dtype.itemsize].view(dtype)


def of_tokens(cache):
    """Strides of a view [pages, places, columns]: there is one head."""
    return cache.stride(0), cache.stride(1), 0, cache.stride(2)


def part(cache, format, table, lengths, read, **more):
    _, block, width = cache.shape
    return gathered(cache, of_tokens(cache), 1, width, format, table, lengths, block, read, **more)


@soft("vllm.fp8_ds_mla", BYTES)
def triton_kv_read_ds_mla(x, format, source, block_table, seq_lens):
    """656 bytes: 512 codes, 4 float32 scales, 64 bfloat16."""
    scales = field(x, 512, 4, torch.float32)
    rope = field(x, 528, 64, torch.bfloat16)
    return part(
        field(x, 0, 512, torch.uint8), format, block_table, seq_lens, READ[source],
        scales=scales, scale_strides=of_tokens(scales), group=128,
    ), part(rope, format, block_table, seq_lens, from_bits_of_bfloat16)  # fmt: skip
