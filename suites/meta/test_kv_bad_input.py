# SPDX-License-Identifier: Apache-2.0
"""A bad call of a writer is refused with what was given and what was expected, and no byte of a cache is changed."""

from __future__ import annotations

import pytest

from narrowgauge.suites.meta.kv_bad_sets import not_refused, of, told
from narrowgauge.suites.meta.marks import needs_torch, needs_triton

pytestmark = [pytest.mark.meta, needs_torch, needs_triton]

MODULE = "kv_bad_calls"
#: what is wrong -> what the message says of it
SAYS = {
    "slot_beyond": r"slot_mapping\[3\] is 48; expected 0 to 47, or .* for padding",
    "slot_far_beyond": r"slot_mapping\[0\] is 2147483647; expected 0 to 47",
    "negative_slot_in_a_pool": r"slot_mapping\[1\] is -1; expected 0 to 47, or 0 for padding",
    "slots_of_another_type": r"slot_mapping is torch.float32 \[5\]; expected int32 or int64 \[5\]",
    "too_few_slots": r"slot_mapping is torch.int32 \[4\]; expected int32 or int64 \[5\]",
    "slots_as_a_matrix": r"slot_mapping is torch.int32 \[1, 5\]; expected",
    "heads_of_k": r"k is \[5, 3, 64\]; expected \[5, 2, 64\]|kv_cache is .*; expected .* pages of 3456",
    "heads_of_v": r"v is \[5, 1, 64\]; expected \[5, 2, 64\]",
    "columns_of_k": r"k is \[5, 2, 32\]; expected \[5, 2, 64\]|kv_cache is .*; expected .* pages of 1152",
    "columns_of_v": r"v is \[5, 2, 32\]; expected \[5, 2, 64\]",
    "tokens_of_v": r"v is \[4, 2, 64\]; expected \[5, 2, 64\]",
    "no_heads_of_k": r"k is \[5, 128\]; expected \[(5, 2, 64|tokens, heads, columns)\]",
    "no_heads_of_v": r"v is \[5, 128\]; expected \[5, 2, 64\]",
    "heads_too_many": r"(latent|k) is \[5, 1, (1, 512|128)\]; expected \[(5, 1, 512|tokens, columns)\]",
    "type_of_k": r"(k|latent) is torch.float64; expected torch.float32 or torch.bfloat16 or torch.float16",
    "type_of_v": r"v is torch.float32; expected torch.bfloat16, as the first part",
    "columns_of_rope": r"rope is \[5, 1, 32\]; expected \[5, 1, 64\]",
    "tokens_of_rope": r"rope is \[4, 1, 64\]; expected \[5, 1, 64\]",
    "columns_of_the_latent": r"latent is \[5, 1, 256\]; expected \[5, 1, 512\]",
    "scale_of_heads": r"k_scale is torch.float32 \[3\]; expected torch.float32 \[[12]\]",
    "scale_as_a_matrix": r"v_scale is torch.float32 \[1, [12]\]; expected torch.float32 \[[12]\]",
    "scale_of_another_type": r"k_scale is torch.float64 \[[12]\]; expected torch.float32 \[[12]\]",
    "scale_zero": r"v_scale\[0\] is 0.0; expected a number above 0 that is finite",
    "scale_negative": r"k_scale\[0\] is -0.5; expected a number above 0",
    "scale_nan": r"v_scale\[0\] is nan; expected a number above 0",
    "scale_infinite": r"k_scale\[0\] is inf; expected a number above 0 that is finite",
    "last_scale_zero": r"v_scale\[1\] is 0.0; expected a number above 0",
    "one_scale_for_all_heads": r"k_scale is torch.float32 \[1\]; expected torch.float32 \[2\]",
    "global_scale_nan": r"v_global_scale\[0\] is nan; expected a number above 0",
    "global_scale_of_heads": r"k_global_scale is torch.float32 \[2\]; expected torch.float32 \[1\]",
    "unknown_format": r"format 'float8_e9m9' is not known here; expected one of \w+",
    "format_of_others": r"format 'int8' is not known here; expected one of \w+",
    "cache_of_another_type": r"the cache of v holds torch.float16; expected torch.float8_e4m3fn or torch.uint8",
    "cache_of_another_format": r"the cache of k holds torch.float8_e4m3fn; expected torch.float8_e5m2 or torch.uint8",
    "pages_of_v": r"the cache of v has \[pages, places\] \[(2, 16|47, 1)\]; expected \[(3, 16|48, 1)\]",
    "heads_of_a_cache": r"k is \[5, 2, 64\]; expected \[5, 1, 64\], the heads of its cache",
    "axes_of_a_cache": r"a cache is \[\d+, \d+\]; expected \[\w+, \w+",
    "heads_of_a_scale_cache": r"the cache of k_scale holds torch.float32, 1 heads of 1; expected .*, 2 heads",
    "pages_of_a_scale_cache": r"the cache of v_scale has \[pages, places\] \[2, 16\]; expected \[3, 16\]",
    "type_of_a_scale_cache": r"the cache of v_scale holds torch.bfloat16, 2 heads of 1; expected torch.float32",
    "bytes_of_a_row": r"kv_cache is torch.uint8 \[3, 16, 655\]; expected torch.uint8 with rows of 656",
    "bytes_of_a_page": r"kv_cache is torch.uint8 \[3, 2303\]; expected torch.uint8 with pages of 2304",
    "bytes_of_a_page_of_keys": r"k_cache is torch.uint8 \[3, 2108\]; expected torch.uint8 with pages of 2112",
    "columns_of_keys": r"k_cache is torch.uint8 \[3, 2112\]; expected torch.uint8 with pages of 1088",
    "position_beyond": r"positions\[4\] is 32; expected 0 to 31",
    "position_negative": r"positions\[0\] is -1; expected 0 to 31",
    "angles_of_another_type": r"cos_sin is torch.float32 \[32, 64\]; expected torch.bfloat16 \[positions, an even",
    "too_many_angles": r"cos_sin is torch.bfloat16 \[32, 128\]; expected torch.bfloat16 \[positions, an .* up to 64",
    "positions_of_another_type": r"positions is torch.float32 \[5\]; expected int32 or int64 \[5\]",
}  # fmt: skip
#: what is right: whether caches change
RIGHT = {"as_it_is": True, "slots_of_64_bits": True, "no_tokens": False}


def test_every_wrong_call_is_told_of() -> None:
    assert {call.split("/")[1] for call in told(MODULE)} == {*SAYS, *RIGHT}


@pytest.mark.parametrize("name", SAYS)
def test_a_bad_call_is_refused_and_changes_nothing(name: str) -> None:
    assert not_refused(MODULE, name, SAYS[name]) == {}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_call_is_not_refused(name: str) -> None:
    came = of(MODULE, name).items()
    assert {call: c for call, c in came if c["raised"] or bool(c["changed"]) != RIGHT[name]} == {}
