# SPDX-License-Identifier: Apache-2.0
"""Every fault of products is shown by a case, and told from all others by it, but for those that are listed."""

from __future__ import annotations

import numpy as np
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.operations import Claim
from narrowgauge.reference.compare import compare
from narrowgauge.reference.expected import expected, outputs_of, promised_for
from narrowgauge.reference.faults.registry import FAULTS
from narrowgauge.reference.inputs import case_named
from narrowgauge.reference.interval import Expected
from narrowgauge.reference.judge import judge

pytestmark = pytest.mark.meta

ROWS = "matmul/vllm.fp8_token_channel_bias+float32/float8_e4m3fn/bfloat16"
#: claim, its case -> the faults of products that are looked for there
LOOKED_FOR = {
    (ROWS, "exact"): """
        scales_of_axes_exchanged scales_of_the_next_row scales_of_the_first_tile largest_scale_for_all
        scales_raised_to_powers_of_two scales_cut_to_powers_of_two scale_after_narrowing accumulated_in_bfloat16
        accumulated_in_the_operands_type tile_sums_in_bfloat16 parts_in_the_results_type last_part_lost first_part_alone
        weight_by_columns result_by_columns tiles_turned tail_of_k_left_out one_k_left_out tail_of_k_reads_on
        padding_of_k_is_nan rows_left_out columns_left_out spills_into_the_next_row bias_missing bias_twice bias_negated
        bias_scaled bias_by_rows bias_of_the_first_tile bias_after_rounding""",
    (ROWS, "full"): "accumulated_in_13_bits accumulated_in_float16 tile_sums_in_float16",
    (ROWS, "scaled"): "scales_in_bfloat16 scales_in_float16",
    ("matmul/vllm.fp8_tensor+float32/float8_e4m3fn/bfloat16", "exact"): "tensor_scale_taken_for_rows",
    ("matmul/vllm.fp8_tensor+promoted_128/float8_e4m3fn/float32", "promoted"): "promotion_missing",
    ("matmul/plain.matmul/bfloat16/bfloat16", "specials"): "zeros_skipped bit_patterns_multiplied",
    ("matmul/plain.matmul+float32/float16/float16", "subnormal"): "subnormal_operands_flushed",
    ("matmul/plain.matmul/float32/float32", "noise"): "operands_in_tfloat32 operands_in_bfloat16 operands_in_float16",
    ("matmul/plain.matmul_then_bias/bfloat16/bfloat16", "exact"): "bias_before_rounding",
    ("matmul/ocp.mxfp8+float32/float8_e4m3fn/bfloat16", "exact"): """
        first_scales_for_all last_scales_for_all one_scale_for_two_blocks scales_of_half_blocks scales_of_the_next_block
        scales_one_block_late tail_by_the_scale_before weight_scales_transposed exponents_as_numbers""",
    ("matmul/nvidia.nvfp4+float32/float4_e2m1fn/bfloat16", "exact"): "global_scale_of_the_other",
    ("matmul/vllm.int8_azp_token/int8/bfloat16", "exact"): """
        row_sums_missing row_sums_not_multiplied row_sums_added row_sums_multiplied_twice row_sums_of_the_last_tile
        row_sums_of_whole_tiles zero_point_of_the_first_row""",
    ("matmul/vllm.int8_azp_token/int8/bfloat16", "full"): "sums_wrap_at_16_bits",
    ("matmul/gptq.gemm_act_order/float16/float16", "exact"): """
        zero_point_one_higher zero_point_one_lower zero_point_16_wraps zero_point_of_the_middle zero_point_not_scaled
        group_index_ignored group_index_of_the_next_k group_index_of_the_tile permuted_one_way""",
    ("matmul/gptq.gemm_act_order/float16/float16", "noise"): "weights_in_the_other_type",
    ("matmul/gptq.gemm_symmetric/float16/float16", "exact"): "offset_left_out offset_one_lower",
    ("matmul/awq.gemm/float16/float16", "exact"): "zero_point_0_wraps",
    ("matmul/vllm.moe_fp8_channel+float32/float8_e4m3fn/bfloat16", "exact"): """
        first_expert_for_all expert_of_the_row_before next_expert expert_of_the_tile no_expert_is_the_first
        no_expert_is_the_last scales_of_the_first_expert scales_of_the_next_expert rows_in_order_of_experts""",
}
#: faults that give the same there
TOGETHER = {
    # of 11 bits both; numbers below 2^-14 would part them
    "product.operands_in_tfloat32": {"product.operands_in_float16"},
    "product.operands_in_float16": {"product.operands_in_tfloat32"},
}


def _wrong(claim: Claim, x: Coded) -> list[tuple[str, Expected]]:
    """What every definite way of every fault gives that can be there."""
    right, found = promised_for(claim, x), []
    for name, fault in FAULTS.items():
        for way in fault.ways(right):
            if way.bits == 0:
                try:
                    found.append((name, outputs_of(way.behaviour, x)))
                except BadInput:
                    continue
    return found


def _gives(wrong: Expected, got: dict[str, Coded]) -> bool:
    """Whether a wrong behaviour gives this. What is definite has the same bits, of NaN too: one rounding makes both."""
    if all(value.exact for value in wrong.values()):
        return all(np.array_equal(value.low.data, got[name].data) for name, value in wrong.items())
    return not compare(got, wrong).total


@pytest.mark.parametrize(("claim", "case"), LOOKED_FOR)
def test_faults_are_told_apart(claim: str, case: str) -> None:
    claimed = Claim.parse(claim)
    x = case_named(case, "matmul").inputs(claimed)
    wanted, wrong = expected(claimed, x), _wrong(claimed, x)
    for name in (f"product.{each}" for each in LOOKED_FOR[claim, case].split()):
        outputs = [{n: v.low for n, v in given.items()} for other, given in wrong if other == name]
        got = next((each for each in outputs if compare(each, wanted).total), None)
        assert got is not None, name
        same = {other for other, given in wrong if _gives(given, got)}
        assert same == TOGETHER.get(name, set()) | {name}


def test_every_fault_is_looked_for() -> None:
    looked_for = [f"product.{name}" for names in LOOKED_FOR.values() for name in names.split()]
    assert sorted(looked_for) == sorted(name for name in FAULTS if name.startswith("product."))


def test_a_narrow_sum_in_some_order() -> None:
    """Results that no definite model gives, in no more bits than a narrow accumulator has, within its bound."""
    claim = Claim.parse("matmul/plain.matmul/bfloat16/float32")
    x = case_named("full", "matmul").inputs(claim)
    right = outputs_of(promised_for(claim, x), x)["codes"].low
    exact = right.data.view(np.float32)
    bits = exact.view(np.uint32)
    narrow = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000  # the exact sum, rounded to bfloat16
    narrow[::3] = np.where(narrow[::3] == bits[::3], narrow[::3], bits[::3] & 0xFFFF0000)  # and some cut
    verdict = judge(claim, x, {"codes": Coded("float32", narrow.astype(np.uint32))})
    (best,) = verdict.explanations
    assert (best.faults, best.left) == (("product.accumulated_in_float16", "product.accumulated_in_bfloat16"), 0)
    assert best.how[1] == "in some order: within the bound of bfloat16, and in no more bits"
    wide = np.where(np.arange(bits.size).reshape(bits.shape) % 7 == 0, narrow + 1, narrow)  # no such sum has these bits
    verdict = judge(claim, x, {"codes": Coded("float32", wide.astype(np.uint32))})
    assert all(explanation.left for explanation in verdict.explanations)
