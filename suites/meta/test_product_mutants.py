# SPDX-License-Identifier: Apache-2.0
"""Wrong products from public reports, by somebody who had not seen the faults: a smoke case shows each, and the fault
that it is about reproduces its outputs. Some are diagnosed in full, and no other fault is named."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.kernels import Plugged
from narrowgauge.contracts.operations import Claim
from narrowgauge.devices.device import Device
from narrowgauge.reference.behaviour import claim_on
from narrowgauge.reference.compare import compare
from narrowgauge.reference.expected import expected, outputs_of, promised_for
from narrowgauge.reference.faults.registry import fault_named
from narrowgauge.reference.inputs import case_named
from narrowgauge.suites.judging import run_cell
from narrowgauge.suites.meta.marks import needs_torch, needs_triton
from narrowgauge.suites.meta.wrong_products_table import FOLDER, WRONG
from narrowgauge.suites.planning import Planned

pytestmark = [pytest.mark.meta, needs_torch]

#: kernel -> the fault that it is about, and behind colons the case that shows it, where that is not "exact", and in
#: which of the kernel's formats
NUMPY_AND_TORCH = {
    "one_scale_for_a_tile": "product.one_scale_for_two_blocks",
    "first_scales_for_all": "product.first_scales_for_all",
    "last_scales_for_all": "product.last_scales_for_all",
    "weight_scales_transposed": "product.weight_scales_transposed",
    "scales_as_powers_of_two": "product.scales_raised_to_powers_of_two",
    "scale_of_the_block_before": "product.scales_one_block_late",
    "scales_of_the_other_axis": "product.scales_of_axes_exchanged",
    "rows_scaled_as_a_tensor": "read.first_scale_for_all",
    "at_unity": "read.scale_ignored",
    "without_the_scale_of_a": "read.scale_ignored",
    "weight_scale_twice": "read.scale_twice",
    "divided_by_the_weight_scale": "read.scale_inverted",
    "scales_in_bfloat16": "product.scales_in_bfloat16:scaled",
    "scaled_after_the_narrowing": "product.scale_after_narrowing",
    "through_bfloat16": "cast.double_rounding_bfloat16",
    "cut_to_bfloat16": "cast.truncates",
    "in_thirteen_bits": "product.accumulated_in_13_bits:full",
    "never_promoted": "product.promotion_missing:promoted:float32",
    "blocks_in_thirteen_bits": "product.accumulated_in_13_bits:noise",
    "in_float16": "product.accumulated_in_float16",
    "in_bfloat16": "product.accumulated_in_bfloat16",
    "split_in_bfloat16": "product.parts_in_the_results_type",
    "last_part_dropped": "product.tail_of_k_left_out",
    "last_tile_dropped": "product.tail_of_k_left_out",
    "nan_in_the_padding": "product.padding_of_k_is_nan",
    "subnormals_flushed": "product.subnormal_operands_flushed:subnormal",
    "nan_as_480": "decode.specials_as_numbers:specials",
    "fnuz_read_as_ocp": "fnuz.read_as_ocp",
    "b_not_transposed": "product.weight_by_columns",
    "without_bias": "product.bias_missing",
    "bias_twice": "product.bias_twice",
    "bias_scaled": "product.bias_scaled",
    "bias_after_the_narrowing": "product.bias_after_rounding",
    "bias_before_the_scales": "product.bias_scaled",
    "sums_in_the_operands_type": "product.accumulated_in_the_operands_type",
    "rounded_twice": "cast.double_rounding_float16:full",
    "one_column_early": "product.one_k_left_out",
    "skips_zeros": "product.zeros_skipped:specials",
    "rows_of_the_neighbour": "product.scales_of_the_next_row",
}
WEIGHTS = {
    "row_sums_missing": "product.row_sums_missing",
    "row_sums_not_multiplied": "product.row_sums_not_multiplied",
    "zero_point_added": "product.row_sums_added",
    "zero_point_squared": "product.row_sums_multiplied_twice",
    "zero_points_of_the_first_row": "product.zero_point_of_the_first_row",
    "integers_in_float16": "product.accumulated_in_float16:noise",
    "gptq_zero_one_higher": "product.zero_point_one_higher",
    "gptq_zero_one_lower": "product.zero_point_one_lower",
    "gptq_zero_wraps": "product.zero_point_16_wraps",
    "gptq_zero_of_7": "product.offset_one_lower",
    "awq_zero_one_higher": "product.zero_point_one_higher",
    "awq_zero_of_0_wraps": "product.zero_point_0_wraps",
    "awq_in_order": "layout.awq_order_lost",
    "awq_zeros_in_order": "layout.awq_order_lost",
    "awq_groups_of_64": "product.scales_of_half_blocks",
    "awq_first_group_for_all": "product.first_scales_for_all",
    "awq_split_in_float16": "product.parts_in_the_results_type",
    "awq_weights_in_bfloat16": "product.weights_in_the_other_type:noise",
    "awq_zero_after_the_scale": "product.zero_point_not_scaled",
    "order_of_groups_ignored": "product.group_index_ignored",
    "e8m0_as_numbers": "product.exponents_as_numbers",
    "e8m0_zero_for_the_lowest": "decode.scale_code_0_is_zero:extreme",
    "mx_scale_of_the_group_before": "read.scale_of_the_block_before",
    "nibbles_swapped": "layout.nibbles_swapped",
    "nibbles_split": "layout.pairs_as_planar",
    "global_scales_ignored": "read.global_ignored",
    "global_scale_inverted": "read.global_inverted",
    "global_scale_of_one_side": "product.global_scale_of_the_other",
    "expert_of_the_row_before": "product.expert_of_the_row_before",
    "expert_minus_one_wraps": "product.no_expert_is_the_last",
    "scales_of_the_first_expert": "product.scales_of_the_first_expert",
    "experts_share_the_largest_scale": "product.largest_scale_for_all",
}
TRITON = {
    "reads_the_next_row": "product.tail_of_k_reads_on",
    "zero_times_the_next_row": "product.padding_of_k_is_nan:specials",
    "spills_into_the_next_row": "product.spills_into_the_next_row",
    "scales_of_the_first_tile": "product.scales_of_the_first_tile",
    "bias_of_the_first_tile": "product.bias_of_the_first_tile",
    "in_float16": "product.accumulated_in_float16",
    "tiles_of_two_blocks": "product.one_scale_for_two_blocks",
    "parts_in_float16": "product.parts_in_the_results_type",
    "rest_of_the_parts": "product.tail_of_k_left_out",
    "row_sums_of_the_last_tile": "product.row_sums_of_the_last_tile",
    "one_expert_for_a_tile": "product.expert_of_the_tile",
}
#: every wrong kernel with its fault alone
NAMED = {
    f"{place}_{name}": fault.partition(":")[0]
    for place, table in enumerate((NUMPY_AND_TORCH, WEIGHTS, TRITON))
    for name, fault in table.items()
}
#: found by the form of what comes back, whatever its numbers are
UNWRITTEN = {"rows_of_no_expert_unwritten"}
#: diagnosed in full: by these faults and no other
IN_FULL = {
    "scaled_after_the_narrowing": "product.scale_after_narrowing",
    "in_bfloat16": "product.accumulated_in_bfloat16",
    "bias_scaled": "product.bias_scaled",
    "skips_zeros": "product.zeros_skipped",
    "gptq_zero_of_7": "product.offset_one_lower",
}

#: of these the way in which it was made is said
SAID = {
    "scaled_after_the_narrowing": ": product.scale_after_narrowing (each rounded, that of a first)\n",
    "in_bfloat16": "jax#17792); steps of 1\n",
}


@cache
def _call(case: str, claim: Claim) -> Coded:
    return case_named(case, "matmul").inputs(claim)


def _kernels(device: Device, *names: str) -> Iterator[tuple[str, Plugged]]:
    for name in names:
        for plugged in device.describe(str(FOLDER / f"{name}.py")):
            yield plugged.kernel.name.partition("product_")[2], plugged


def _holds(device: Device, expected_names: dict[str, str], *files: str) -> None:
    seen = set()
    for name, plugged in _kernels(device, *files):
        fault, case, wanted = (*expected_names.get(name, "").split(":"), "exact", "")[:3]
        claim = next(each for each in plugged.kernel.claims if wanted in ("", "exact", each.format))
        planned = Planned(plugged, claim_on(claim, device.target), case, device)
        x = _call(case, planned.claim)
        found = run_cell(planned, x, explained=name in IN_FULL)
        assert found.row.outcome == "returned", (name, found.message)
        assert found.row.result == "failed", name
        if name in UNWRITTEN:
            assert "unwritten" in "".join(found.row.malformed)
            continue
        seen.add(name)
        assert _explains(fault, planned, x, found.outputs or {}), name
        if name in IN_FULL:
            assert (found.row.faults, found.row.left) == ((IN_FULL[name],), 0), found.message
            assert SAID.get(name, "") in found.message
    assert seen == expected_names.keys()


def _explains(fault: str, planned: Planned, x: Coded, got: dict[str, Coded]) -> bool:
    """Whether one of the ways of a fault gives just what the kernel gave, and is not right."""
    right, wanted = promised_for(planned.claim, x), expected(planned.claim, x)
    for way in fault_named(fault).ways(right):
        outputs = outputs_of(way.behaviour, x)
        if way.bits == 0 and not compare(got, outputs).total:
            return bool(compare({name: value.low for name, value in outputs.items()}, wanted).total)
    return False


def test_every_wrong_product_is_named() -> None:
    known = [*NUMPY_AND_TORCH, *WEIGHTS, *TRITON, *UNWRITTEN]
    assert sorted(known) == sorted(name.partition("product_")[2] for name in WRONG)


def test_wrong_products_of_numpy_and_torch(host: Device) -> None:
    _holds(host, NUMPY_AND_TORCH, "wrong_products", "wrong_products_numpy")


def test_wrong_products_of_weights_and_experts(host: Device) -> None:
    _holds(host, WEIGHTS, "wrong_products_weights")


@needs_triton
def test_wrong_products_of_triton(interpreter: Device) -> None:
    _holds(interpreter, TRITON, "wrong_products_triton")
