"""docs/coverage.md is a table of data: whatever it names exists, and it tells no other story than the faults do."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

import narrowgauge
from narrowgauge.contracts.operations import Claim
from narrowgauge.reference.faults.applicability import applicability
from narrowgauge.reference.faults.fault import AnyFault
from narrowgauge.reference.faults.registry import FAULTS
from narrowgauge.reference.inputs import case_named
from narrowgauge.suites.meta.small_checkpoints import FLAWS

pytestmark = pytest.mark.meta

ROOT = Path(narrowgauge.__file__).resolve().parent.parent
#: faults of which we know no public report; each is a slip that such code invites
UNREPORTED = {
    "cast.clamped_to_224",
    "cast.clamped_to_240",
    "cast.clamped_to_30",
    "cast.clamped_to_448",
    "cast.clamped_to_57344",
    "cast.exact_negative_zero_lost",
    "cast.infinity_to_nan",
    "cast.nan_to_signed_max",
    "cast.rounds_down",
    "cast.rounds_up",
    "cast.shift_modulo_32",
    "cast.sign_lost",
    "cast.subnormals_flushed_before_rounding",
    "cast.subnormals_flushed_without_sign",
    "cast.ties_away_in_subnormals",
    "cast.ties_up",
    "convert.all_read_by_the_first",
    "convert.bias_not_added",
    "convert.block_scales_times_global",
    "convert.byte_taken_for_a_number",
    "convert.cast_by_value",
    "convert.cast_by_value_and_scaled",
    "convert.codes_of_shards_kept",
    "convert.divided_by_its_scale",
    "convert.e8m0_by_a_shift",
    "convert.equal_shards",
    "convert.exponent_doubled",
    "convert.exponent_goes_round",
    "convert.exponent_one_higher",
    "convert.exponent_saturates",
    "convert.first_block_for_all",
    "convert.first_shard_for_all",
    "convert.group_index_of_half",
    "convert.infinities_counted",
    "convert.largest_is_nan",
    "convert.last_place_for_first",
    "convert.last_shard_for_all",
    "convert.nan_cleaned",
    "convert.nan_is_zero",
    "convert.nan_kept_for_infinity",
    "convert.nan_lost",
    "convert.nearest_exponent",
    "convert.negative_nan_lost",
    "convert.negative_zero_kept",
    "convert.next_block_scale",
    "convert.next_shard_scale",
    "convert.not_finite_counted",
    "convert.offset_missing",
    "convert.previous_shard_scale",
    "convert.rescaled_the_wrong_way",
    "convert.rows_not_parted",
    "convert.scale_applied_twice",
    "convert.scale_inverted",
    "convert.scale_not_applied",
    "convert.scale_the_other_way",
    "convert.scales_not_parted",
    "convert.sentinel_taken_for_a_scale",
    "convert.shard_boundary_off_by_one",
    "convert.smallest_for_largest",
    "convert.smallest_global",
    "convert.through_bfloat16",
    "convert.through_float16",
    "convert.through_float16_on_a_gpu",
    "convert.through_float32",
    "convert.zeros_counted",
    "e8m0.exponent_of_elements_left_out",
    "e8m0.log2_in_float32",
    "e8m0.negative_to_smallest",
    "e8m0.one_higher",
    "e8m0.one_lower",
    "e8m0.rounded_log2",
    "element.divided",
    "element.multiplied_for_divided",
    "element.nan_kept",
    "element.nan_to_upper_bound",
    "fnuz.ocp_codes_of_clamped",
    "fnuz.ocp_codes_repaired",
    "fnuz.ocp_codes_with_nan_sign",
    "fnuz.ocp_codes_written",
    "global.applied_twice",
    "global.left_out",
    "global.left_out_of_codes",
    "global.left_out_of_scales",
    "granularity.half_of_the_block",
    "granularity.in_halves",
    "granularity.scale_of_the_block_before",
    "granularity.stored_by_columns",
    "granularity.stored_one_later",
    "granularity.twice_as_wide",
    "granularity.whole_row",
    "granularity.whole_tensor",
    "integer.floor_of_half_added",
    "integer.half_of_the_range",
    "integer.largest_code",
    "integer.lowest_code",
    "integer.lowest_left_out",
    "integer.lowest_reached",
    "integer.unsigned_written",
    "integer.zero_point_after_clamp",
    "integer.zero_point_before_rounding",
    "integer.zero_point_left_out",
    "integer.zero_point_negated",
    "integer.zero_point_of_256_steps",
    "integer.zero_point_stored_negated",
    "kv_attention.first_head_for_all",
    "kv_attention.first_token_dropped",
    "kv_attention.heads_dealt_in_turn",
    "kv_attention.last_token_dropped",
    "kv_attention.soft_cap_missing",
    "kv_attention.softmax_scale_of_values",
    "kv_attention.softmax_scale_twice",
    "kv_attention.weights_in_bfloat16",
    "kv_code.read_as_the_other_format",
    "kv_code.value_for_bits",
    "kv_layout.key_scales_as_value_scales",
    "kv_layout.keys_as_values",
    "kv_layout.not_packed",
    "kv_layout.rope_first",
    "kv_layout.rows_for_pages",
    "kv_layout.scale_at_another_offset",
    "kv_layout.values_as_keys",
    "kv_page.first_page_for_all",
    "kv_page.half_as_long",
    "kv_page.logical_for_physical",
    "kv_page.of_the_first_sequence",
    "kv_page.of_the_sequence_after",
    "kv_page.of_the_sequence_before",
    "kv_page.one_token_earlier",
    "kv_page.one_token_later",
    "kv_page.pages_of_16",
    "kv_page.places_left_out",
    "kv_page.table_transposed",
    "kv_page.twice_as_long",
    "kv_scale.exchanged",
    "kv_scale.halved",
    "kv_scale.k_for_both",
    "kv_scale.k_inverted",
    "kv_scale.last_head_for_all",
    "kv_scale.of_the_slot_after",
    "kv_scale.of_the_slot_before",
    "kv_scale.v_for_both",
    "kv_scale.v_inverted",
    "kv_slot.last_token_missing",
    "kv_slot.mapping_ignored",
    "kv_slot.negative_wraps",
    "kv_slot.one_earlier",
    "kv_slot.one_later",
    "kv_slot.only_minus_one_is_padding",
    "kv_slot.page_zeroed",
    "kv_slot.pages_and_places_exchanged",
    "kv_slot.pages_fastest",
    "kv_slot.pages_half_as_long",
    "kv_slot.pages_left_out",
    "kv_slot.pages_of_16",
    "kv_slot.pages_twice_as_long",
    "kv_slot.places_left_out",
    "kv_slot.rest_of_page_zeroed",
    "kv_slot.rows_rounded_up",
    "kv_slot.scale_of_the_other_token",
    "kv_slot.two_tokens_mixed",
    "kv_slot.zero_is_padding",
    "layout.awq_order_backwards",
    "layout.awq_order_lost",
    "layout.bytes_reversed",
    "layout.row_major_scales",
    "layout.six_bits_otherwise",
    "layout.stride_not_aligned",
    "layout.zero_two_higher",
    "layout.zero_two_lower",
    "nan.becomes_the_minimum",
    "nan.kept_by_amax",
    "product.bias_after_rounding",
    "product.bias_before_rounding",
    "product.bias_by_rows",
    "product.bias_missing",
    "product.bias_negated",
    "product.bias_of_the_first_tile",
    "product.bias_scaled",
    "product.bias_twice",
    "product.columns_left_out",
    "product.expert_of_the_row_before",
    "product.expert_of_the_tile",
    "product.exponents_as_numbers",
    "product.first_expert_for_all",
    "product.first_part_alone",
    "product.first_scales_for_all",
    "product.group_index_ignored",
    "product.group_index_of_the_next_k",
    "product.group_index_of_the_tile",
    "product.last_part_lost",
    "product.last_scales_for_all",
    "product.next_expert",
    "product.no_expert_is_the_first",
    "product.no_expert_is_the_last",
    "product.offset_left_out",
    "product.offset_one_lower",
    "product.one_k_left_out",
    "product.operands_in_bfloat16",
    "product.permuted_one_way",
    "product.row_sums_added",
    "product.row_sums_missing",
    "product.row_sums_multiplied_twice",
    "product.row_sums_not_multiplied",
    "product.row_sums_of_the_last_tile",
    "product.row_sums_of_whole_tiles",
    "product.rows_in_order_of_experts",
    "product.rows_left_out",
    "product.scale_after_narrowing",
    "product.scales_cut_to_powers_of_two",
    "product.scales_in_bfloat16",
    "product.scales_in_float16",
    "product.scales_of_axes_exchanged",
    "product.scales_of_half_blocks",
    "product.scales_of_the_first_expert",
    "product.scales_of_the_first_tile",
    "product.scales_of_the_next_block",
    "product.scales_of_the_next_expert",
    "product.scales_of_the_next_row",
    "product.scales_one_block_late",
    "product.subnormal_operands_flushed",
    "product.sums_wrap_at_16_bits",
    "product.tail_by_the_scale_before",
    "product.tile_sums_in_bfloat16",
    "product.tile_sums_in_float16",
    "product.weight_scales_transposed",
    "product.weights_in_the_other_type",
    "product.zero_point_not_scaled",
    "product.zero_point_of_the_first_row",
    "product.zero_point_of_the_middle",
    "product.zero_point_one_lower",
    "product.zeros_skipped",
    "read.exponent_one_too_high",
    "read.exponent_one_too_low",
    "read.global_ignored",
    "read.global_twice",
    "read.scale_of_the_block_before",
    "read.scale_of_the_row_before",
    "read.scale_rounded_to_bfloat16",
    "read.scale_rounded_to_float16",
    "read.zero_point_added",
    "read.zero_point_ignored",
    "scale.224_for_format_maximum",
    "scale.amax_in_float16",
    "scale.amax_without_magnitude",
    "scale.minimum_too_large",
    "scale.stored_in_bfloat16",
    "tail.columns_not_quantized",
    "tail.last_scale_missing",
    "tail.rows_not_quantized",
    "wide.activation_rounded",
    "wide.base_2_for_e",
    "wide.bias_ignored",
    "wide.bias_in_the_weights",
    "wide.cap_forgotten",
    "wide.cap_not_multiplied",
    "wide.cap_twice",
    "wide.capped_after_the_mask",
    "wide.capped_in_16_bits",
    "wide.cos_and_sin_swapped",
    "wide.cos_in_16_bits",
    "wide.epsilon_missing",
    "wide.epsilon_of_1e_5",
    "wide.epsilon_outside_the_root",
    "wide.factor_forgotten",
    "wide.gate_and_up_swapped",
    "wide.infinity_clamped",
    "wide.largest_not_taken_off",
    "wide.last_column_not_squared",
    "wide.last_of_equal_experts",
    "wide.last_of_equal_ones",
    "wide.logarithm_to_base_2",
    "wide.logits_in_float16",
    "wide.mask_forgotten",
    "wide.mask_one_further",
    "wide.mean_in_bfloat16",
    "wide.mean_in_float16",
    "wide.mean_over_padded_columns",
    "wide.mean_taken_off",
    "wide.nan_dropped",
    "wide.noise_ignored",
    "wide.noise_multiplied",
    "wide.not_divided_by_the_sum",
    "wide.not_renormalised",
    "wide.not_rounded_before_weight",
    "wide.one_more_forgotten",
    "wide.one_more_in_16_bits",
    "wide.one_more_than_the_weight",
    "wide.pairs_of_the_other_kind",
    "wide.powers_in_16_bits",
    "wide.renormalised",
    "wide.residual_added_after_norm",
    "wide.residual_given_back_as_it_came",
    "wide.residual_not_added",
    "wide.residual_not_rounded_before_norm",
    "wide.residual_rounded_before_norm",
    "wide.residual_taken_in_16_bits",
    "wide.result_through_bfloat16",
    "wide.rotated_in_16_bits",
    "wide.rounded_before_weight",
    "wide.shares_chosen_in_16_bits",
    "wide.shares_sampled_in_16_bits",
    "wide.sigmoid_for_silu",
    "wide.softmax_for_sigmoid",
    "wide.squares_in_float16",
    "wide.squares_summed_in_bfloat16",
    "wide.sum_for_mean",
    "wide.summed_in_bfloat16",
    "wide.summed_in_float16",
    "wide.taken_in_bfloat16",
    "wide.temperature_ignored",
    "wide.temperature_multiplied",
    "wide.turned_backwards",
    "wide.weight_missing",
    "wide.weights_in_16_bits",
    "zero.block_of_one",
    "zero.scale_of_one",
}


#: a fault; a case of a claim; a waiver; an audit that finds a mistake of suites/meta/small_checkpoints.py
ANSWER = re.compile(r"`(\S+)`|case `(\S+)` of `(\S+)`|a waiver of `(\S+)`|an audit: `([^`]+)`")


@dataclass(frozen=True)
class Row:
    """One line of the page, its last cell read."""

    id: str
    reports: tuple[str, ...]
    says: str
    faults: tuple[str, ...]
    cases: tuple[tuple[str, str], ...]  #: name of a case, text of a claim
    waivers: tuple[str, ...]  #: kernels
    flaws: tuple[str, ...]  #: mistakes in small checkpoints
    left_out: str

    @classmethod
    def read(cls, line: str) -> Row:
        id_, reports, says, answer = (cell.strip() for cell in line.strip("|").split(" | "))
        if answer.startswith("left out: "):
            return cls(id_, tuple(reports.split(", ")), says, (), (), (), (), answer.removeprefix("left out: "))
        parts = [ANSWER.fullmatch(a) for a in re.split(r", (?=[`ca])", answer)]
        assert all(parts), f"{id_}: not understood: {answer}"
        faults, cases, claims, waivers, flaws = zip(*(part.groups() for part in parts if part), strict=True)
        places = [(case, claim) for case, claim in zip(cases, claims, strict=True) if case]
        kept = [tuple(name for name in names if name) for names in (faults, waivers, flaws)]
        return cls(id_, tuple(reports.split(", ")), says, kept[0], tuple(places), kept[1], kept[2], "")


LINES = (ROOT / "docs/coverage.md").read_text().splitlines()
ROWS = [Row.read(line) for line in LINES if line.startswith("| ") and not line.startswith("| row ")]
ANSWERED = [row for row in ROWS if not row.left_out]
#: the sources of engines are no reports
OF_REPORTS = [row for row in ROWS if not row.id.startswith("cache ")]
WAIVED = {entry["kernel"] for entry in tomllib.loads((ROOT / "ci/waivers.toml").read_text())["waiver"]}


#: how many rows of each class the two logs have
LOGGED = {
    "KVDELIV": 9, "SCALEALG": 7, "FMT": 7, "CAST": 10, "STATIC": 3, "ROUND": 7, "E8M0": 12, "ZERO": 7, "GRAN": 8,
    "LAYOUT": 10, "PADTAIL": 12, "NANPOL": 3, "RANGE16": 7, "IDX": 4, "ACC": 5, "STATE": 4,
}  # fmt: skip
CASES = 58
#: what engines' sources do with caches
CACHES = 27


def rows_of(id_: str) -> list[str]:
    """ "PADTAIL01 to PADTAIL05" is five rows of the log."""
    first, _, last = id_.partition(" to ")
    if not last:
        return [id_]
    return [f"{first[:-2]}{number:02}" for number in range(int(first[-2:]), int(last[-2:]) + 1)]


def test_every_row_of_the_logs_stands_once() -> None:
    logged = [f"{name}{n:02}" for name, count in LOGGED.items() for n in range(1, count + 1)]
    assert sorted(id_ for row in ROWS for id_ in rows_of(row.id)) == sorted(
        [*logged, *(f"case {n}" for n in range(1, CASES + 1)), *(f"cache {n}" for n in range(1, CACHES + 1))]
    )
    assert 100 < len(ANSWERED) < len(ROWS)


def test_nothing_is_left_to_what_is_done() -> None:
    """A row may wait for an issue that is open; quantizers, caches, checkpoints and products are no more."""
    done = ("issue 5", "issue 6", "issue 7", "recipes", "no operation yet: caches", "matrix products")
    assert [row.id for row in ROWS if any(word in row.left_out for word in done)] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_what_a_row_names_exists(row: Row) -> None:
    assert row.says
    assert row.reports
    assert set(row.faults) <= FAULTS.keys()
    assert len(row.faults) == len(set(row.faults))
    assert set(row.waivers) <= WAIVED
    assert all(FLAWS[name].row == row.id for name in row.flaws)
    for name, text in row.cases:
        claim = Claim.parse(text)
        case = case_named(name, claim.operation)
        assert case.operation == claim.operation
        assert case.applies(claim)
        shown = [fault for fault in row.faults if (found := applicability(fault, claim)) and found.state == "shows"]
        assert shown or not row.faults, "the case stands here because one of the row's faults shows in its claim"


def test_a_mistake_in_a_checkpoint_stands_with_its_row() -> None:
    """Of those that name a row of the log."""
    named = {(row.id, name) for row in ROWS for name in row.flaws}
    assert named == {(flaw.row, name) for name, flaw in FLAWS.items() if flaw.row}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=lambda fault: fault.name)
def test_a_report_of_a_fault_stands_in_a_row_with_that_fault(fault: AnyFault) -> None:
    for report in fault.reports:
        rows = [row for row in ANSWERED if report in row.reports]
        assert not rows or any(fault.name in row.faults for row in rows), report


@pytest.mark.parametrize("fault", FAULTS.values(), ids=lambda f: f.name)
def test_a_fault_is_reported_somewhere(fault: AnyFault) -> None:
    """By its own reports, or by a row that bundles it with others; or it is listed as known from no report."""
    assert (bool(fault.reports) or any(fault.name in row.faults for row in OF_REPORTS)) != (fault.name in UNREPORTED)
