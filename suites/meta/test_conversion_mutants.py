# SPDX-License-Identifier: Apache-2.0
"""Wrong converters from public reports, by somebody who had not seen the faults: a smoke case shows each, and the fault
that it is about is named where a name stands here."""

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

FILE = Path(__file__).absolute().parent / "mutant_kernels" / "conversions.py"
#: those whose fault has a name, and is explained quickly
NAMED = {
    "scale_not_doubled": "convert.scale_not_doubled",
    "scale_halved": "convert.scale_the_other_way",
    "scale_doubled_twice": "convert.scale_doubled_twice",
    "minus_zero_kept": "convert.negative_zero_kept",
    "nan_lost": "convert.nan_lost",
    "largest_becomes_nan": "convert.largest_is_nan",
    "nan_becomes_minus_zero": "convert.nan_is_zero",
    "global_as_it_is": "convert.reciprocal_missing",
    "blocks_not_rescaled": "convert.block_scales_of_shards_kept",
    "codes_not_requantized": "convert.codes_of_shards_kept",
    "awq_order_forgotten": "layout.awq_order_lost",
    "awq_zeros_as_they_are": "layout.zero_one_higher",
    "zeros_untouched": "layout.zero_one_lower",
    "gate_and_up_as_halves": "convert.rows_not_parted",
    "swizzle_forgotten": "layout.swizzle_forgotten",
    "swizzle_twice": "layout.swizzle_twice",
    "negative_nan_lost": "convert.negative_nan_lost",
    "nan_to_zero": "convert.nan_cleaned",
    "exponent_goes_round": "convert.exponent_goes_round",
    "exponent_as_number": "convert.exponent_doubled",
    "global_applied_twice": "convert.block_scales_times_global",
    "ratio_inverted": "convert.rescaled_the_wrong_way + convert.codes_of_shards_kept",
    "one_global_smallest": "convert.smallest_global + convert.codes_of_shards_kept",
    "awq_order_reversed": "layout.awq_order_backwards",
    "zeros_the_other_way": "layout.zero_two_lower",
    "logarithm_without_bias": "convert.bias_not_added",
    "fnuz_to_224": "scale.224_for_format_maximum",
}
#: they differ for zero points alone that the other convention has no place for, which nobody can be asked for
UNSEEN = {"zeros_carry", "awq_zeros_borrow"}
#: cases that are tried, the quickest first: some mistake needs each
CASES = ("square", "ragged", "hard_scales", "codes")


@pytest.fixture(scope="module")
def host() -> Iterator[Device]:
    device = discovery.host()
    yield device
    device.close()


def wrong(host: Device) -> Iterator[tuple[str, list[tuple[Planned, Coded]]]]:
    """Each with its calls."""
    for plugged in host.describe(str(FILE)):
        (claim,) = plugged.kernel.claims
        cases = cases_for(claim, "smoke")
        tried = [(Planned(plugged, claim, name, host), cases[name]) for name in CASES if name in cases]
        yield plugged.kernel.name.removeprefix("wrong_"), tried


def test_wrong_converters_are_seen_and_named(host: Device) -> None:
    seen = set()
    for name, tried in wrong(host):
        for planned, x in tried:
            found = run_cell(planned, x, explained=False)
            assert found.row.outcome == "returned", (name, found.message)
            if found.row.result != "passed":
                seen.add(name)
                if name in NAMED:
                    told = run_cell(planned, x)
                    assert NAMED[name] in told.row.faults, told.message
                    assert told.row.left == 0, told.message
                break
        assert (name in seen) != (name in UNSEEN), name
    assert seen > NAMED.keys()
    assert len(seen) >= 59
