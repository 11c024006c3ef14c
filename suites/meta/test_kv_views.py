"""K and V that are not contiguous, and caches whose offsets pass 32 bits."""

from __future__ import annotations

import pytest

from narrowgauge.contracts.kernels import Plugged
from narrowgauge.devices.device import Device
from narrowgauge.reference.inputs import CASES, case_named
from narrowgauge.suites.judging import run_cell
from narrowgauge.suites.meta.device_sets import FOLDER
from narrowgauge.suites.meta.marks import needs_torch
from narrowgauge.suites.planning import Planned

pytestmark = [pytest.mark.meta, needs_torch]

#: a kernel, and the cases that show it to be wrong
SHOWN: dict[str, set[str]] = {
    "kv_views_right_writer": set(),
    "kv_views_tokens_packed": {"sliced_tokens", "transposed_tokens", "alternate_tokens"},
    "kv_views_heads_packed": {"transposed_tokens"},
    "kv_views_vs_stride": {"sliced_tokens", "transposed_tokens", "alternate_tokens"},
    "kv_views_offsets_in_32_bits": {"far_pages"},
    "kv_views_right_reader": set(),
    "kv_views_reads_in_32_bits": {"far_pages"},
}
#: cases of the smoke depth show nothing of it
USUAL = {"kv_write": "scattered", "kv_read": "permuted"}


@pytest.fixture(scope="module")
def kernels(host: Device) -> dict[str, Plugged]:
    return {p.kernel.name: p for p in host.describe(str(FOLDER / "kv_views.py"))}


@pytest.mark.parametrize("name", SHOWN)
def test_a_kernel_is_wrong_on_the_views_that_it_does_not_look_at(
    name: str, host: Device, kernels: dict[str, Plugged]
) -> None:
    (claim,) = kernels[name].kernel.claims
    views = [c.name for c in CASES if c.operation == claim.operation and c.view != "contiguous"]
    assert len(views) == {"kv_write": 4, "kv_read": 1}[claim.operation]
    shown = set()
    for case in [*views, USUAL[claim.operation]]:
        x = case_named(case, claim.operation).inputs(claim)
        judged = run_cell(Planned(kernels[name], claim, case, host), x)
        assert judged.row.outcome == "returned", judged.message
        if judged.row.result != "passed":
            shown.add(case)
    assert shown == SHOWN[name]
