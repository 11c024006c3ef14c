# SPDX-License-Identifier: Apache-2.0
"""Wrong kernels of wide operations: a smoke case shows each, and it is named rightly, and alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from narrowgauge.devices.device import Device
from narrowgauge.reference.inputs import cases_for
from narrowgauge.suites.judging import Judged, run_cell
from narrowgauge.suites.meta.marks import needs_torch, needs_triton
from narrowgauge.suites.planning import Planned

pytestmark = [pytest.mark.meta, needs_torch]

FOLDER = Path(__file__).absolute().parent / "mutant_kernels"
#: name of a mutant, and its fault
NAMED = {
    "squares_summed_in_bfloat16": "wide.squares_summed_in_bfloat16",
    "squares_in_float16": "wide.squares_in_float16",
    "mean_in_float16": "wide.mean_in_float16",
    "epsilon_missing": "wide.epsilon_missing",
    "epsilon_outside": "wide.epsilon_outside_the_root",
    "weight_of_16_bits": "wide.rounded_before_weight",
    "one_more_forgotten": "wide.one_more_forgotten",
    "residual_not_written": "wide.residual_given_back_as_it_came",
    "residual_rounded": "wide.residual_rounded_before_norm",
    "stream_in_bfloat16": "wide.residual_taken_in_16_bits",
    "up_first": "wide.gate_and_up_swapped",
    "capped_after_mask": "wide.capped_after_the_mask",
    "largest_kept": "wide.largest_not_taken_off",
    "powers_summed_in_bfloat16": "wide.summed_in_bfloat16",
    "base_2": "wide.logarithm_to_base_2",
    "logits_in_bfloat16": "wide.taken_in_bfloat16",
    "last_of_equal": "wide.last_of_equal_ones",
    "temperature_ignored": "wide.temperature_ignored",
    "not_renormalised": "wide.not_renormalised",
    "softmax_of_chosen": "wide.renormalised",
    "biased_weights": "wide.bias_in_the_weights",
    "angles_in_bfloat16": "wide.cos_in_16_bits",
    "nan_dropped": "wide.nan_dropped",
    "triton_mean_over_padding": "wide.mean_over_padded_columns",
    "triton_last_column": "wide.last_column_not_squared",
    "triton_neighbours": "wide.pairs_of_the_other_kind",
}


def _are_named(device: Device, file: str, names: set[str]) -> None:
    """Each kernel of a file in each case; those that show its mistake are explained until one tells it from others."""
    seen = set()
    for plugged in device.describe(str(FOLDER / file)):
        (claim,), name = plugged.kernel.claims, plugged.kernel.name
        seen.add(name)
        cells = [(Planned(plugged, claim, case, device), x) for case, x in cases_for(claim, "smoke").items()]
        wrong = [cell for cell in cells if run_cell(*cell, explained=False).row.result != "passed"]
        assert wrong, f"no case shows {name}"
        assert any(_tells(run_cell(*cell), NAMED[name]) for cell in wrong), f"no case tells {name} from all others"
    assert seen == names


def _tells(judged: Judged, fault: str) -> bool:
    """Whether this fault alone explains all; it does not stand aside where another one does."""
    assert judged.row.outcome == "returned", judged.message
    assert fault in judged.row.faults, judged.message
    assert judged.row.left == 0, judged.message
    return judged.row.faults == (fault,)


def test_wrong_torch_kernels_are_named(host: Device) -> None:
    _are_named(host, "wide_torch.py", {name for name in NAMED if not name.startswith("triton_")})


@needs_triton
def test_wrong_triton_kernels_are_named(interpreter: Device) -> None:
    _are_named(interpreter, "wide_triton.py", {name for name in NAMED if name.startswith("triton_")})
