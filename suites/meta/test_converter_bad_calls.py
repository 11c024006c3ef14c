# SPDX-License-Identifier: Apache-2.0
"""A bad call of a converter is refused with what was given and what was expected."""

from __future__ import annotations

import pytest

from narrowgauge.suites.meta.kv_bad_sets import not_refused, of, told
from narrowgauge.suites.meta.marks import needs_torch, needs_triton

pytestmark = [pytest.mark.meta, needs_torch, needs_triton]

MODULE = "converter_bad_calls"
#: what is wrong -> what the message says of it
SAYS = {
    "three_axes": r"codes are \[1, \d+, \d+\]; expected \[rows, columns\]",
    "scale_of_another_type": r"scale is torch.float64 \[2, 2\]; expected torch.float32 \[2, 2\]",
    "scale_of_other_blocks": r"scale is torch.float32 \[3, 2\]; expected torch.float32 \[2, 2\]",
    "scale_without_an_axis": r"scale is torch.float32 \[2\]; expected torch.float32 \[2, 2\]",
    "input_scale_of_rows": r"input_scale is torch.float32 \[2, 1\]; expected torch.float32 \[1, 1\]",
    "exponents_of_other_groups": r"scale is torch.float8_e8m0fnu \[256, 4\]; expected torch.float8_e8m0fnu \[256, 8\]",
    "exponents_as_numbers": r"scale is torch.float32 \[256, 8\]; expected torch.float8_e8m0fnu \[256, 8\]",
    "rows_missing": r"widths are \[128, 64, 32\]; expected 256 rows in all, none below 0",
    "negative_width": r"widths are \[256, -64, 64\]; expected 256 rows in all, none below 0",
    "widths_of_another_type": r"widths are torch.int64 \[3, 1\]; expected torch.int32 \[3, 1\]",
    "scale_of_fewer_shards": r"scale is torch.float32 \[2, 1\]; expected torch.float32 \[3, 1\]",
    "global_scale_of_fewer_shards": r"global_scale is torch.float32 \[2, 1\]; expected torch.float32 \[3, 1\]",
    "rows_in_no_groups": r"a weight is \[K, N\] \[250, 16\]; expected multiples of 128 and of 8",
    "scale_of_other_groups": r"scale is \[1, 16\]; expected \[2, 16\], one for each group",
    "zeros_of_other_groups": r"zero_point is torch.int32 \[1, 2\]; expected words of 2 groups",
    "zeros_as_bytes": r"zero_point is torch.int8 \[2, 16\]; expected words of 2 groups",
    "odd_rows": r"gate and up have 255 rows together; expected an even number",
    "inv_of_other_blocks": r"weight_scale_inv is torch.float32 \[2, 3\]; expected torch.float32 \[2, 2\]",
}


def test_every_wrong_call_is_told_of() -> None:
    assert {call.split("/")[1] for call in told(MODULE)} == {*SAYS, "as_it_is"}


@pytest.mark.parametrize("name", SAYS)
def test_a_bad_call_is_refused(name: str) -> None:
    assert not_refused(MODULE, name, SAYS[name]) == {}


def test_a_right_call_is_not_refused_and_changes_nothing() -> None:
    assert {call: came for call, came in of(MODULE, "as_it_is").items() if came["raised"] or came["changed"]} == {}
