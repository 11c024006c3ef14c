"""Wrong kernels on caches, most of them from public reports, by somebody who had not seen the faults (``kv_more``
apart): each is caught by a case of the smoke depth, and named where a name stands here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.devices import discovery
from narrowgauge.devices.device import Device
from narrowgauge.reference.inputs import cases_for
from narrowgauge.suites.judging import run_cell
from narrowgauge.suites.meta.marks import needs_torch
from narrowgauge.suites.planning import Planned

pytestmark = [pytest.mark.meta, needs_torch]

FOLDER = Path(__file__).absolute().parent / "mutant_kernels"
#: name of a mutant and the fault that its report is about; "" where none says it
NAMED = {
    "kv_writer_at_unity": "element.not_scaled",
    "kv_writer_v_at_unity": "kv_scale.v_ignored",
    "kv_writer_ks_scale_for_v": "kv_scale.k_for_both",
    "kv_writer_scales_twice": "element.scaled_twice",
    "kv_writer_multiplies": "element.multiplied_for_divided",
    "kv_writer_fnuz_bytes": "fnuz.fnuz_codes_written",
    "kv_writer_e4m3_for_e5m2": "cast.e4m3_and_e5m2_confused",
    "kv_writer_converts_to_uint8": "kv_code.value_for_bits",
    "kv_writer_overflows_to_nan": "cast.overflow_to_nan + cast.infinity_to_nan",
    "kv_writer_divides_in_bfloat16": "cast.double_rounding_bfloat16",
    "kv_writer_first_heads_scale": "granularity.first_scale_for_all",
    "kv_writer_keeps_the_first_scale": "kv_scale.of_the_first_call",
    "kv_writer_dirties_slot_0": "kv_slot.padding_to_0",
    "kv_writer_wraps_negative_slots": "kv_slot.negative_wraps",
    "kv_writer_swaps_page_and_place": "",
    "kv_writer_clears_the_rest_of_a_page": "",
    "kv_writer_guards_scales_alone": "",
    "kv_writer_padding_in_amax": "",
    "kv_reader_at_unity": "read.scale_ignored",
    "kv_reader_scales_twice": "read.scale_twice",
    "kv_reader_exchanges_scales": "kv_scale.exchanged",
    "kv_reader_fnuz_as_ocp": "fnuz.read_as_ocp",
    "kv_reader_mla_without_scale": "read.scale_ignored",
    "kv_reader_guesses_the_layout": "kv_layout.heads_and_places_exchanged",
    "kv_reader_v_scales_linear": "kv_layout.value_scales_as_key_scales",
    "kv_reader_takes_logical_pages": "kv_page.logical_for_physical",
    "kv_reader_rounds_the_scale": "read.scale_rounded_to_bfloat16",
    "kv_attention_scales_twice": "read.scale_twice",
    "kv_attention_v_at_unity": "kv_scale.v_ignored",
    "kv_attention_scales_a_bfloat16_cache": "kv_scale.on_a_copy",
    "kv_attention_query_in_fp8": "",
    "kv_attention_zero_times_nan": "kv_attention.stale_values",
    "kv_attention_counts_a_key_too_many": "",
    "kv_attention_without_soft_cap": "kv_attention.soft_cap_missing",
    "kv_attention_scale_of_the_latent": "kv_attention.softmax_scale_of_values",
    "kv_attention_mla_v_at_unity": "kv_attention.values_not_descaled",
    "kv_attention_heads_in_turn": "kv_attention.heads_dealt_in_turn",
    "kv_triton_spills": "",
    "kv_triton_takes_slot_0_for_padding": "kv_slot.zero_is_padding",
    "kv_triton_row_of_the_table": "",
    "kv_more_leaves_the_last_token_out": "kv_slot.last_token_missing",
    "kv_more_skips_minus_one_alone": "kv_slot.only_minus_one_is_padding",
    "kv_more_reads_the_first_row_of_the_table": "kv_page.of_the_first_sequence",
    "kv_more_leaves_the_place_out": "kv_page.places_left_out",
    "kv_more_does_not_pack": "kv_layout.not_packed",
    "kv_more_ignores_the_mapping": "kv_slot.mapping_ignored",
    "kv_more_reads_the_first_page_over_and_over": "kv_page.first_page_for_all",
}
FILES = {
    "writer": "kv_writers",
    "reader": "kv_readers",
    "attention": "kv_attention",
    "triton": "kv_triton",
    "more": "kv_more",
}


@pytest.fixture(scope="module")
def devices() -> Iterator[dict[str, Device]]:
    host, interpreter = discovery.host(), discovery.interpreter()
    yield dict.fromkeys(("writer", "reader", "attention", "more"), host) | {"triton": interpreter}
    host.close()
    interpreter.close()


def cells(name: str, devices: dict[str, Device]) -> list[tuple[Planned, Coded]]:
    """Every case of the smoke depth."""
    kind = name.split("_")[1]
    (plugged,) = (p for p in devices[kind].describe(str(FOLDER / f"{FILES[kind]}.py")) if p.kernel.name == name)
    (claim,) = plugged.kernel.claims
    return [(Planned(plugged, claim, case, devices[kind]), x) for case, x in cases_for(claim, "smoke").items()]


@pytest.mark.parametrize("name", NAMED)
def test_a_wrong_kernel_is_named(name: str, devices: dict[str, Device]) -> None:
    """Cases show the mistake, and the first that does names its fault, completely."""
    if name.startswith("kv_triton") and not discovery.has_triton():
        pytest.skip("triton is not installed: its mutants cannot run")
    tried = [(cell, x, run_cell(cell, x, explained=False)) for cell, x in cells(name, devices)]
    wrong = [(cell, x) for cell, x, found in tried if found.row.result != "passed"]
    assert wrong
    assert all(found.row.outcome == "returned" and not found.row.malformed for _, _, found in tried)
    if NAMED[name]:
        found = run_cell(*wrong[0])
        assert NAMED[name] in found.row.faults, found.message
        assert found.row.left == 0, found.message


def test_a_kernel_that_changes_its_input_is_told_so(devices: dict[str, Device]) -> None:
    found = [run_cell(cell, x, explained=False) for cell, x in cells("kv_writer_divides_in_place", devices)]
    assert any("input modified" in " ".join(j.row.malformed) for j in found)
