"""For each call on caches, wrong kernels that it catches and no other call of the smoke depth does.

None is made from a fault. Mistakes about how tensors lie in memory are kernels: test_kv_views.py.
"""

from __future__ import annotations

import numpy as np

from narrowgauge.suites.meta.wrong_attention import (
    cleaned,
    masked_by_key,
    no_query,
    nothing_returned,
    overflows,
    small_weights_lost,
    straight_cap,
)
from narrowgauge.suites.meta.wrong_cache_calls import (
    Wrong,
    columns,
    edited,
    given,
    heads,
    marker,
    narrow_values,
    neighbours_exchanged,
    only_if,
    places,
    power_of_two_scale,
    repeated_halves,
    sequences,
    shared_pages_lost,
    small_scale,
    spilled_head,
    untouched_to_nan,
    zero_row_0,
)

_W, _R = "kv_write/vllm.flash_fp8/bfloat16/float8_e4m3fn", "kv_read/vllm.flash_fp8/float8_e4m3fn/bfloat16"
_A = "attend/vllm.flash_fp8/float8_e4m3fn/bfloat16"
_POOL = "float8_e4m3fn/bfloat16"
Table = dict[str, tuple[tuple[str, Wrong], ...]]


def _of_sizes(claim: str) -> Table:
    """What writers, readers and attention do wrong alike with heads, pages and scales of other sizes."""
    pool = claim.replace("vllm.flash_fp8", "sglang.fp8")
    return {
        "one_head": ((claim, edited(only_if(lambda c: c.heads == 1, lambda c: c.spoil(c.rows, slice(1, None)))),),),
        "eight_heads": ((claim, heads(lambda n: slice(4, None))),),
        "width_80": ((claim, columns(lambda w: slice(1 << w.bit_length() - 1, None))),),
        "width_96": ((claim, columns(lambda w: slice(w // 64 * 64 + 16, None))),),
        "width_128": ((claim, columns(lambda w: slice(96, None))),),
        "width_256": ((claim, columns(lambda w: slice(128, None))),),
        "narrow_values": ((claim, edited(narrow_values)),),
        "block_1": ((pool, edited(neighbours_exchanged)),),
        "block_32": ((claim, places(16)),),
        "block_64": ((claim, places(32)),),
        "block_128": ((claim, places(64)),),
        "block_256": ((claim, places(128)),),
        "fill_00": ((claim, marker("v", 0)),),
        "fill_7f": ((claim, marker("v", 0x7F)),),
        "fill_80": ((claim, marker("v", 0x80)),),
        "fill_ff": ((claim, marker("k", 0xFF)),),
        "fill_infinity": ((claim, marker("v", 0x7E)),),
        "scale_4": ((claim, small_scale("k", 2.0**-6)),),
        "scale_5": ((claim, small_scale("v", 2.0**-8)),),
    }  # fmt: skip


def _of_reads(claim: str) -> Table:
    pool = claim.replace("vllm.flash_fp8", "sglang.fp8")
    return {
        "permuted_filled": ((claim, sequences(lambda c: c.token >= 48)),),
        "next_scale": ((claim, given(power_of_two_scale)),),
        "three_heads": ((claim, heads(lambda n: slice(2, None))),),
        "negative_table": (
            (
                pool,
                edited(only_if(lambda c: bool((c.numbers("table") < 0).any()), lambda c: c.spoil(slice(1, None)))),
            ),
        ),
        "no_sequences": ((claim, nothing_returned),),
        "one_key": ((claim, sequences(lambda c: np.full(c.token.size, c.lengths.sum() == 1))),),
        "whole_pages": (
            (
                claim,
                sequences(lambda c: (c.token > 0) & (c.token % 64 == 63) & (c.token + 1 == c.lengths[c.sequence])),
            ),
        ),
        "shared_pages": ((claim, edited(shared_pages_lost)),),
        "long": ((claim, sequences(lambda c: c.token >= 1024)),),
        "many_sequences": ((claim, sequences(lambda c: c.sequence >= 64)),),
    }


#: operation -> case -> claims and wrong kernels
WRONG: dict[str, Table] = {
    "kv_write": {
        **_of_sizes(_W),
        "other_fill": ((_W, edited(untouched_to_nan)),),
        "repeated": ((_W, edited(repeated_halves)),),
        "in_order": ((_W, edited(spilled_head)),),
        "ends": ((_W, edited(lambda c: c.spoil([0]))),),
        "all_padding": ((_W, edited(only_if(lambda c: c.x.shape[0] > 0 and not c.slots.size, zero_row_0))),),
        "no_tokens": ((_W, edited(only_if(lambda c: c.x.shape[0] == 0, zero_row_0))),),
        "one_token": ((_W, edited(only_if(lambda c: c.x.shape[0] == 1, lambda c: c.spoil(c.rows)))),),
        "many_tokens": ((_W, edited(lambda c: c.spoil(np.unique(c.numbers("slots").ravel()[256:].clip(0))))),),
        "tall": ((_W, edited(lambda c: c.spoil(np.unique(c.numbers("slots").ravel()[65_536:].clip(0))))),),
    },
    "kv_read": _of_sizes(_R) | _of_reads(_R),
    "attend": {
        **_of_sizes(_A),
        **_of_reads(_A),
        "stale_values": ((_A, edited(masked_by_key)),),
        "read_out": ((_A, edited(small_weights_lost)),),
        "bend": (
            (_A.replace("fp8/", "fp8+soft_cap:30/"), edited(straight_cap)),
        ),
        "equal": ((_A, edited(no_query)),),
        "dominant": ((_A, edited(overflows)),),
        "poisoned": ((_A, cleaned),),
        "longest": ((_A, sequences(lambda c: c.token >= 4096)),),
    },
}  # fmt: skip
