# SPDX-License-Identifier: Apache-2.0
"""Bad calls of our readers of caches and of attention, made in a process of its own; prints what came as JSON.

``python -m narrowgauge.suites.meta.kv_bad_reads``. A call is a good one with one thing wrong, as in kv_bad_calls.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from narrowgauge.suites.meta.kv_bad_calls import (
    BLOCK,
    HEADS,
    PAGED,
    PAGES,
    WIDTH,
    by,
    given,
    ones,
    set_to,
    zeros,
)
from narrowgauge.suites.meta.kv_bad_sets import Call, tell

SEQUENCES, QUERIES = 2, 4


def sequences() -> Call:
    """Two sequences: the first one has the last page, the second one a page that it does not use."""
    import torch

    table = torch.tensor([[2, 0], [1, 0]], dtype=torch.int32)
    return {"block_table": table, "seq_lens": torch.tensor([20, 16], dtype=torch.int32)}


def reading(x: Any, source: str = "float8_e4m3fn", **more: Any) -> Call:
    return {"x": x, "format": "bfloat16", "source": source, **more, **sequences()}


def good() -> dict[str, tuple[Callable[..., Any], Call]]:
    """A kernel of each kind, and a good call of it."""
    from narrowgauge.kernels_under_test import (
        torch_attention,
        torch_kv_read,
        triton_attention_caches,
        triton_kv_read,
        triton_kv_read_pool,
        triton_kv_read_rows,
    )

    k, v = (zeros(*PAGED, of="float8_e4m3fn") for _ in range(2))
    token_scales = {f"{part}_scale_cache": zeros(PAGES, BLOCK, HEADS, of="float32") for part in "kv"}
    fp8 = reading(k, v_cache=v, **given("scale"))
    asked = {"query": ones(SEQUENCES, QUERIES, WIDTH), "softmax_scale": 0.125}
    rows = triton_kv_read_rows
    nibbles = {"x": zeros(*PAGED[:3], WIDTH // 2), "v_cache": zeros(*PAGED[:3], WIDTH // 2)}
    of_rows = {"query": ones(SEQUENCES, QUERIES, 576), "softmax_scale": 0.125}
    return {
        "fp8": (triton_kv_read.triton_soft_kv_read_fp8, fp8),
        "native": (triton_kv_read.triton_native_kv_read_fp8, fp8),
        "torch": (torch_kv_read.torch_kv_read_fp8, fp8),
        "token_head": (triton_kv_read.triton_soft_kv_read_fp8_token_head, reading(k, v_cache=v, **token_scales)),
        "int4": (
            triton_kv_read.triton_soft_kv_read_int4_token_head, {**reading(k, "uint4", **token_scales), **nibbles},
        ),
        "pool": (
            triton_kv_read_pool.triton_soft_kv_read_pool_fp8,
            {**fp8, "x": k.flatten(0, 1), "v_cache": v.flatten(0, 1), "block_size": BLOCK},
        ),
        "ds_mla": (rows.triton_soft_kv_read_ds_mla, reading(zeros(PAGES, BLOCK, 656))),
        "indexer": (
            rows.triton_soft_kv_read_indexer, reading(zeros(PAGES, BLOCK * 132), block_size=BLOCK),
        ),
        "nvfp4": (
            rows.triton_soft_kv_read_nvfp4,
            reading(zeros(PAGES, BLOCK * HEADS * WIDTH * 9 // 8), "float4_e2m1fn", heads=HEADS, block_size=BLOCK,
                    **given("global_scale")),
        ),
        "attend": (triton_attention_caches.triton_soft_attend_fp8, {**fp8, **asked}),
        "attend_split": (
            triton_attention_caches.triton_soft_attend_fp8_split,
            {**fp8, **asked, "x": k.transpose(1, 2), "v_cache": v.transpose(1, 2)},
        ),
        "attend_mla": (
            triton_attention_caches.triton_soft_attend_ds_mla, {**reading(zeros(PAGES, BLOCK, 656)), **of_rows},
        ),
        "attend_torch": (torch_attention.torch_attend_sdpa, {**fp8, **asked}),
    }  # fmt: skip


ATTEND = ("attend", "attend_split", "attend_mla", "attend_torch")
STATIC = ("fp8", "native", "torch", "pool", "attend", "attend_split", "attend_torch")
TRITON_STATIC = ("fp8", "native", "attend")
EVERY = ("fp8", "native", "torch", "token_head", "int4", "pool", "ds_mla", "indexer", "nvfp4", *ATTEND)
TRITON = tuple(name for name in EVERY if "torch" not in name)
#: what is wrong -> kernels that are called so, and what is changed in the call
WRONG: dict[str, tuple[tuple[str, ...], Callable[[Call], Call]]] = {
    "page_beyond": (EVERY, by("block_table", lambda t: t + t.new_tensor([[0, 3], [0, 0]]))),
    "page_far_beyond": (EVERY, by("block_table", lambda t: t + t.new_tensor([[0, 0], [2**31 - 2, 0]]))),
    "page_negative": (EVERY, by("block_table", lambda t: t - t.new_tensor([[0, 0], [2, 0]]))),
    "length_beyond": (EVERY, set_to("seq_lens", 0, 2 * BLOCK + 1)),
    "length_negative": (EVERY, set_to("seq_lens", 1, -1)),
    "too_many_lengths": (EVERY, by("seq_lens", lambda t: t.repeat(2))),
    "lengths_of_another_type": (EVERY, by("seq_lens", lambda t: t.float())),
    "table_of_another_type": (EVERY, by("block_table", lambda t: t.float())),
    "table_as_a_row": (EVERY, by("block_table", lambda t: t.flatten())),
    "scale_of_heads": (STATIC, by("k_scale", lambda t: t.repeat(HEADS + 1))),
    "scale_as_a_matrix": (STATIC, by("v_scale", lambda t: t[None])),
    "scale_of_another_type": (STATIC, by("k_scale", lambda t: t.double())),
    "scale_zero": (STATIC, set_to("v_scale", 0, 0.0)),
    "scale_nan": (STATIC, set_to("k_scale", 0, float("nan"))),
    "global_scale_infinite": (("nvfp4",), set_to("k_global_scale", 0, float("inf"))),
    "unknown_format": (TRITON, lambda call: {"format": "float8_e9m9"}),
    "unknown_source": (TRITON, lambda call: {"source": "float8_e9m9"}),
    "cache_of_another_type": (TRITON_STATIC, by("v_cache", lambda t: zeros(*t.shape, of="float16"))),
    "pages_of_v": (("fp8", "token_head", "int4", "attend"), by("v_cache", lambda t: t[:-1])),
    "axes_of_a_cache": (("fp8", "torch", "token_head", "attend"), by("x", lambda t: t.flatten(1))),
    "heads_of_a_scale_cache": (("token_head", "int4"), by("k_scale_cache", lambda t: t[..., :1])),
    "pages_of_a_scale_cache": (("token_head", "int4"), by("v_scale_cache", lambda t: t[:-1])),
    "type_of_a_scale_cache": (("token_head", "int4"), by("v_scale_cache", lambda t: t.bfloat16())),
    "bytes_of_a_row": (("ds_mla", "attend_mla"), by("x", lambda t: t[..., :-1])),
    "bytes_of_a_page": (("nvfp4", "indexer"), by("x", lambda t: t[:, :-1])),
    "heads_of_values": (("attend",), by("v_cache", lambda t: t[:, :, :1])),
    "heads_of_the_query": (ATTEND[:2] + ATTEND[3:], by("query", lambda t: t[:, :3])),
    "columns_of_the_query": (ATTEND, by("query", lambda t: t[..., :-1])),
    "queries_of_others": (ATTEND, by("query", lambda t: t[:1])),
    "query_of_another_type": (ATTEND, by("query", lambda t: t.double())),
    "query_as_a_matrix": (ATTEND, by("query", lambda t: t.flatten(1))),
}
#: what is right, though seldom
RIGHT: dict[str, Callable[[Call], Call]] = {
    "as_it_is": lambda call: {},
    "page_that_is_not_used": by("block_table", lambda t: t - t.new_tensor([[0, 0], [0, 7]])),
    "no_tokens": by("seq_lens", lambda t: t * 0),
    "no_sequences": lambda call: {n: t[:0] for n, t in call.items() if n in ("block_table", "seq_lens", "query")},
    "of_64_bits": lambda call: {n: t.long() for n, t in call.items() if n in ("block_table", "seq_lens")},
}


if __name__ == "__main__":
    tell(good, RIGHT, WRONG, EVERY)
