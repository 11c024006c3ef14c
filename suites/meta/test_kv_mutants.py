"""Wrong kernels on caches, written from public reports by somebody who had not seen the faults: each is caught by a
case of the smoke depth, and named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from narrowgauge.devices import discovery
from narrowgauge.devices.device import Device
from narrowgauge.reference.inputs import cases_for
from narrowgauge.suites.judging import Judged, run_cell
from narrowgauge.suites.meta.marks import needs_torch
from narrowgauge.suites.planning import Planned

pytestmark = [pytest.mark.meta, needs_torch]

FOLDER = Path(__file__).absolute().parent / "mutant_kernels"
#: name of a mutant and the fault that its report is about; "" where none says it
NAMED = {
    "kv_writer_at_unity": "",
    "kv_writer_v_at_unity": "",
    "kv_writer_ks_scale_for_v": "",
    "kv_writer_scales_twice": "",
    "kv_writer_multiplies": "",
    "kv_writer_fnuz_bytes": "",
    "kv_writer_e4m3_for_e5m2": "",
    "kv_writer_converts_to_uint8": "",
    "kv_writer_overflows_to_nan": "",
    "kv_writer_divides_in_bfloat16": "",
    "kv_writer_first_heads_scale": "",
    "kv_writer_keeps_the_first_scale": "",
    "kv_writer_dirties_slot_0": "",
    "kv_writer_wraps_negative_slots": "",
    "kv_writer_swaps_page_and_place": "",
    "kv_writer_clears_the_rest_of_a_page": "",
    "kv_writer_guards_scales_alone": "",
    "kv_writer_padding_in_amax": "",
    "kv_reader_at_unity": "",
    "kv_reader_scales_twice": "",
    "kv_reader_exchanges_scales": "",
    "kv_reader_fnuz_as_ocp": "",
    "kv_reader_mla_without_scale": "",
    "kv_reader_guesses_the_layout": "",
    "kv_reader_v_scales_linear": "",
    "kv_reader_takes_logical_pages": "",
    "kv_reader_rounds_the_scale": "",
    "kv_attention_scales_twice": "",
    "kv_attention_v_at_unity": "",
    "kv_attention_scales_a_bfloat16_cache": "",
    "kv_attention_query_in_fp8": "",
    "kv_attention_zero_times_nan": "",
    "kv_attention_counts_a_key_too_many": "",
    "kv_attention_without_soft_cap": "",
    "kv_attention_scale_of_the_latent": "",
    "kv_attention_mla_v_at_unity": "",
    "kv_attention_heads_in_turn": "",
    "kv_triton_spills": "",
    "kv_triton_takes_slot_0_for_padding": "",
    "kv_triton_row_of_the_table": "",
}
FILES = {"writer": "kv_writers", "reader": "kv_readers", "attention": "kv_attention", "triton": "kv_triton"}


@pytest.fixture(scope="module")
def devices() -> Iterator[dict[str, Device]]:
    host, interpreter = discovery.host(), discovery.interpreter()
    yield {"writer": host, "reader": host, "attention": host, "triton": interpreter}
    host.close()
    interpreter.close()


def judged(name: str, devices: dict[str, Device]) -> list[Judged]:
    """What every case of the smoke depth finds."""
    kind = name.split("_")[1]
    device = devices[kind]
    (plugged,) = (p for p in device.describe(str(FOLDER / f"{FILES[kind]}.py")) if p.kernel.name == name)
    (claim,) = plugged.kernel.claims
    return [run_cell(Planned(plugged, claim, case, device), x) for case, x in cases_for(claim, "smoke").items()]


@pytest.mark.parametrize("name", NAMED)
def test_a_wrong_kernel_is_named(name: str, devices: dict[str, Device]) -> None:
    """Every case that shows the mistake names its fault, completely; and at least one case shows it."""
    if name.startswith("kv_triton") and not discovery.has_triton():
        pytest.skip("triton is not installed: its mutants cannot run")
    found = judged(name, devices)
    wrong = [j for j in found if j.row.result != "passed"]
    assert wrong
    assert all(j.row.outcome == "returned" for j in wrong), [j.message for j in wrong]
    if NAMED[name]:
        assert all(NAMED[name] in j.row.faults and j.row.left == 0 for j in wrong), [j.message for j in wrong]


def test_a_kernel_that_changes_its_input_is_told_so(devices: dict[str, Device]) -> None:
    found = judged("kv_writer_divides_in_place", devices)
    assert any("input modified" in " ".join(j.row.malformed) for j in found)
