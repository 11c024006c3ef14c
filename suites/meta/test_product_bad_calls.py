# SPDX-License-Identifier: Apache-2.0
"""A bad call of a product is refused with what was given and what was expected, before anything is launched."""

from __future__ import annotations

import pytest

from narrowgauge.suites.meta.kv_bad_sets import not_refused, of, told
from narrowgauge.suites.meta.marks import needs_torch, needs_triton

pytestmark = [pytest.mark.meta, needs_torch, needs_triton]

MODULE = "product_bad_calls"
SHAPE = r"\[[\d, ]*\]"
#: what is wrong -> what the message says of it
SAYS = {
    "three_axes": rf"x is {SHAPE}; expected a matrix",
    "other_depth": rf"x is {SHAPE} and b {SHAPE}; expected .* of one K|b is {SHAPE} words; expected 248 / \d rows",
    "part_of_a_group": r"K is 248; expected a multiple of 32, as many as share a scale",
    "other_type": r"b is torch.float32; expected torch.float8_e4m3fn or torch.uint8",
    "no_such_format": r"format 'float8_e5m2' is not known here; expected one of float32, bfloat16, float16, int32",
    "scale_of_fewer_rows": r"a_scale is torch.float32 \[4, 1\]; expected torch.float32 \[1, 1\] or \[5, 1\]",
    "scale_turned": r"b_scale is torch.float32 \[1, 24\]; expected torch.float32 \[1, 1\] or \[24, 1\]",
    "scale_of_other_blocks": r"b_scale is torch.float32 \[2, 3\]; expected torch.float32 \[[12], 2\]",
    "scale_as_float64": rf"a_scale is torch.float64 {SHAPE}; expected torch.float32 {SHAPE}",
    "scale_of_exponents": r"b_scale is torch.float32 \[24, 8\]; expected torch.float8_e8m0fnu \[24, 8\]",
    "infinite_scale": rf"a_scale{SHAPE} is inf; expected a finite number",
    "scale_that_is_nan": rf"b_scale{SHAPE} is nan; expected a finite number",
    "global_scale_that_is_nan": r"b_global_scale\[0, 0\] is nan; expected a finite number",
    "global_scale_of_rows": r"a_global_scale is torch.float32 \[5, 1\]; expected torch.float32 \[1, 1\]",
    "zero_point_of_columns": r"a_zero_point is torch.int32 \[24, 1\]; expected torch.int32 \[1, 1\] or \[5, 1\]",
    "bias_of_rows": r"bias is torch.bfloat16 \[1, 5\]; expected torch.bfloat16 \[1, 24\]",
    "bias_as_float32": r"bias is torch.float32 \[1, 24\]; expected torch.bfloat16 \[1, 24\]",
    "zeros_of_other_groups": r"b_zero_point is torch.int32 \[1, 3\]; expected torch.int32 \[2, 3\]",
    "group_that_is_not": r"b_group_index\[0, 255\] is 2; expected 0 to 1",
    "expert_that_is_not": r"experts\[0, 4\] is 2; expected -1 to 1",
    "experts_of_fewer_rows": r"experts is torch.int32 \[1, 4\]; expected torch.int32 \[1, 5\]",
    "experts_that_do_not_divide": r"b has 256 rows; expected a multiple of 3 · 128, one matrix an expert",
}


def test_every_wrong_call_is_told_of() -> None:
    assert {call.split("/")[1] for call in told(MODULE)} == {*SAYS, "as_it_is", "nothing_of_k"}


@pytest.mark.parametrize("name", SAYS)
def test_a_bad_call_is_refused(name: str) -> None:
    assert not_refused(MODULE, name, SAYS[name]) == {}


@pytest.mark.parametrize("name", ["as_it_is", "nothing_of_k"])
def test_a_right_call_is_not_refused_and_changes_nothing(name: str) -> None:
    assert {call: came for call, came in of(MODULE, name).items() if came["raised"] or came["changed"]} == {}
