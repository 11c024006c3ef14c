# SPDX-License-Identifier: Apache-2.0
"""A bad call of a reader or of attention is refused with what was given and what was expected."""

from __future__ import annotations

import pytest

from narrowgauge.suites.meta.kv_bad_sets import not_refused, of, told
from narrowgauge.suites.meta.marks import needs_torch, needs_triton

pytestmark = [pytest.mark.meta, needs_torch, needs_triton]

MODULE = "kv_bad_reads"
#: what is wrong -> what the message says of it
SAYS = {
    "page_beyond": r"block_table\[0, 1\] is 3; expected a page from 0 to 2",
    "page_far_beyond": r"block_table\[1, 0\] is 2147483647; expected a page from 0 to 2",
    "page_negative": r"block_table\[1, 0\] is -1; expected a page from 0 to 2",
    "length_beyond": r"seq_lens\[0\] is 33; expected 0 to 32",
    "length_negative": r"seq_lens\[1\] is -1; expected 0 to 32",
    "too_many_lengths": r"seq_lens is torch.int32 \[4\]; expected int32 or int64 \[2\]",
    "lengths_of_another_type": r"seq_lens is torch.float32 \[2\]; expected int32 or int64 \[2\]",
    "table_of_another_type": r"block_table is torch.float32 \[2, 2\]; expected int32 or int64, a matrix",
    "table_as_a_row": r"block_table is torch.int32 \[4\]; expected int32 or int64, a matrix",
    "scale_of_heads": r"k_scale is torch.float32 \[3\]; expected torch.float32 \[1\] or \[2\]",
    "scale_as_a_matrix": r"v_scale is torch.float32 \[1, 1\]; expected torch.float32 \[1\] or \[2\]",
    "scale_of_another_type": r"k_scale is torch.float64 \[1\]; expected torch.float32 \[1\] or \[2\]",
    "scale_zero": r"v_scale\[0\] is 0.0; expected a number above 0 that is finite",
    "scale_nan": r"k_scale\[0\] is nan; expected a number above 0 that is finite",
    "global_scale_infinite": r"k_global_scale\[0\] is inf; expected a number above 0 that is finite",
    "unknown_format": r"format 'float8_e9m9' is not known here; expected one of float32, bfloat16, float16",
    "unknown_source": r"format 'float8_e9m9' is not known here; expected one of float8_e4m3fn",
    "cache_of_another_type": r"the cache of v holds torch.float16; expected torch.float8_e4m3fn or torch.uint8",
    "pages_of_v": r"the cache of v has \[pages, places\] \[2, 16\]; expected \[3, 16\]",
    "axes_of_a_cache": r"a cache is \[3, 2048\]; expected \[pages, places, heads, columns\]",
    "heads_of_a_scale_cache": r"the cache of k_scale holds torch.float32, 1 heads of 1; expected .*, 2 heads of 1",
    "pages_of_a_scale_cache": r"the cache of v_scale has \[pages, places\] \[2, 16\]; expected \[3, 16\]",
    "type_of_a_scale_cache": r"the cache of v_scale holds torch.bfloat16, 2 heads of 1; expected torch.float32",
    "bytes_of_a_row": r"kv_cache is torch.uint8 \[3, 16, 655\]; expected torch.uint8 with rows of 656",
    "bytes_of_a_page": r"kv?_cache is torch.uint8 \[3, (2303|2111)\]; expected torch.uint8 with pages of (1728|2112)",
    "heads_of_values": r"the cache of v has 1 heads; expected 2, as those of keys",
    "heads_of_the_query": r"query is torch.bfloat16 \[2, 3, 64\]; expected \[2, a multiple of 2 heads, 64\]",
    "columns_of_the_query": r"query is torch.bfloat16 \[2, 4, (63|575)\]; expected \[2, a multiple of . heads, \d+",
    "queries_of_others": r"query is torch.bfloat16 \[1, 4, (64|576)\]; expected \[2, a multiple",
    "query_of_another_type": r"query is torch.float64 \[2, 4, (64|576)\]; expected .* of 16 or 32 bits",
    "query_as_a_matrix": r"query is torch.bfloat16 \[2, (256|2304)\]; expected \[2, a multiple",
}
RIGHT = ("as_it_is", "page_that_is_not_used", "no_tokens", "no_sequences", "of_64_bits")


def test_every_wrong_call_is_told_of() -> None:
    assert {call.split("/")[1] for call in told(MODULE)} == {*SAYS, *RIGHT}


@pytest.mark.parametrize("name", SAYS)
def test_a_bad_call_is_refused_and_changes_nothing(name: str) -> None:
    assert not_refused(MODULE, name, SAYS[name]) == {}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_call_is_not_refused(name: str) -> None:
    assert {call: came for call, came in of(MODULE, name).items() if came["raised"] or came["changed"]} == {}
