"""Through the owner's own wrapper: open answers, tuning, torch.cuda and extensions on an emulated device."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from narrowgauge.ci.ledger import Ledger, Row
from narrowgauge.contracts.operations import Claim
from narrowgauge.contracts.outcome import CHOICES
from narrowgauge.contracts.verdict import Result
from narrowgauge.devices import discovery
from narrowgauge.devices.device import Device
from narrowgauge.plugin.porting import port_verdict
from narrowgauge.reference.inputs import case_named
from narrowgauge.suites.judging import Judged, run_cell
from narrowgauge.suites.planning import Planned

pytestmark = [
    pytest.mark.meta,
    pytest.mark.emulated,
    pytest.mark.skipif(not discovery.has_triton(), reason="triton is not installed: nothing compiles for a target"),
]

CLAIM = Claim.parse("cast/ocp_saturate/float32/float8_e4m3fn")
WRAPPERS = str(Path(__file__).parent / "plugged" / "owners_wrappers.py")
CVT, DIV = "cvt.rn.satfinite.e4m3x2.f32 (PTX 9.1)", "div.full.f32 (PTX 9.1)"
TUNED = (
    "autotuned summed: BLOCK=256, num_warps=1, num_ctas=1, num_stages=3 (first valid of 4); "
    "passed over: BLOCK=512, num_warps=8, num_ctas=1, num_stages=3 (OutOfResources: out of resource: shared memory, "
)


@pytest.fixture(scope="module", params=["sm_90", "gfx942"])
def either(request: pytest.FixtureRequest) -> Iterator[Device]:
    device = discovery.emulated(request.param)
    yield device
    device.close()


@pytest.fixture(scope="module")
def h100() -> Iterator[Device]:
    device = discovery.emulated("sm_90")
    yield device
    device.close()


def judged(device: Device, name: str) -> Judged:
    """One of the wrappers on the edges, judged."""
    plugged = next(p for p in device.describe(WRAPPERS) if p.kernel.name == name)
    return run_cell(Planned(plugged, CLAIM, "edges", device), case_named("edges").make(CLAIM))


# --- open answers ----------------------------------------------------------------------------------------------------


def test_a_fault_behind_an_open_answer_is_failed(h100: Device) -> None:
    """Half of every value, by a quotient whose last places are open: no answer of the division explains that."""
    row, message = (found := judged(h100, "scale_is_missing")).row, found.message
    assert (row.result, row.models) == ("failed", {CVT: False, DIV: True})
    assert row.open_answers is not None
    assert row.open_answers.tried == CHOICES
    assert row.open_answers.beyond > 1000
    assert (
        f"5 choices of the open answers of {DIV} were tried; none explains {row.open_answers.beyond:,} of the"
        in message
    )
    assert f"emulated with models: {DIV}, {CVT}" in message
    assert Row.from_json(row.to_json()) == row


def test_the_last_place_behind_an_open_answer_is_disputed(h100: Device) -> None:
    """One place too much before the division: ties part, and an allowed quotient may bring them back."""
    row, message = (found := judged(h100, "one_place_off")).row, found.message
    assert row.result == "disputed"
    assert row.open_answers is not None
    assert (row.open_answers.beyond, row.open_answers.within) == (0, sum(row.differences.values()))
    assert f"they explain all {row.open_answers.within:,} of the codes" in message
    assert Row.from_json(row.to_json()) == row


def test_an_open_answer_of_one_kernel_does_not_reach_the_next(h100: Device) -> None:
    assert judged(h100, "right").row.models == {CVT: False, DIV: True}
    after = judged(h100, "wrong_product").row
    assert (after.result, after.models, after.open_answers) == ("failed", {CVT: False}, None)


# --- launches --------------------------------------------------------------------------------------------------------


def test_a_kernel_launched_again_after_another_is_itself(h100: Device) -> None:
    assert judged(h100, "a_b_a").row.result == "passed"


def test_the_first_valid_configuration_is_said(either: Device) -> None:
    row = judged(either, "tuned").row
    assert row.result == "passed", row.reason
    (note,) = row.notes
    assert note.startswith(TUNED)
    assert judged(either, "tuned").row.notes == row.notes  # from the tuner's memory
    assert judged(either, "a_b_a").row.notes == ()


def test_what_does_not_fit_raises_what_it_raises_on_hardware(h100: Device) -> None:
    row = judged(h100, "does_not_fit").row
    assert (row.result, row.outcome) == ("failed", "raised")
    assert "OutOfResources: out of resource: shared memory" in row.reason


# --- torch -----------------------------------------------------------------------------------------------------------


def test_torch_answers_for_the_target(either: Device) -> None:
    found = judged(either, "asks_torch")
    assert found.row.result == "passed", found.message
    assert either.facts()["gpus"] == []
    assert either.facts()["torch"]["hip"] is None  # the facts are this machine's


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("asks_for_memory", "torch.cuda.memory.mem_get_info is not answered on emulated:sm_90: it needs a real GPU"),
        ("asks_for_an_unknown_property", "torch.cuda.get_device_properties().total_memory is not answered"),
        ("calls_an_operator", "extension torch.ops._C.scaled_fp8_quant: emulated:sm_90 runs Triton kernels"),
        ("calls_an_operator_of_a_gpu", "extension owners::quantize: "),
        ("loads_a_library", "extension libowners.so.2: "),
        ("imports_an_extension", "extension owners_compiled_code (No module named"),
        ("builds_an_extension", "extension to build ("),
    ],
)
def test_what_only_a_gpu_has_is_not_executed(h100: Device, name: str, reason: str) -> None:
    row = judged(h100, name).row
    assert (row.result, row.outcome) == ("not_executed", "not_executed")
    assert row.reason.startswith(reason)


def test_the_owners_own_mistake_is_none_of_that(h100: Device) -> None:
    row = judged(h100, "fails_by_itself").row
    assert (row.result, row.outcome) == ("failed", "raised")


# --- the porting question --------------------------------------------------------------------------------------------


def test_the_code_of_mi300_is_run_and_verified_without_one(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "narrowgauge", "test", "-m", "fnuz", "--kernels", WRAPPERS, "-k", "port-"]
    done = subprocess.run(
        [*command, "--device=emulated:gfx942", "--require-verified"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "porting to FNUZ: READY: 1 of 1 paths verified" in done.stdout


@pytest.mark.parametrize(
    ("results", "text"),
    [
        ({"passed": ""}, "READY: 1 of 1 paths verified"),
        ({"passed": "", "not_executed": "opcode X"}, "not executed for gfx942 (opcode X)"),
        ({"passed": "", "disputed": ""}, "executed for gfx942, and disputed"),
        ({"passed": "", "waived": ""}, "executed for gfx942, and waived"),
        ({"passed": "", "failed": ""}, "NOT READY: port failed"),
    ],
)
def test_what_the_answer_says_of_each_result(results: dict[Result, str], text: str) -> None:
    rows = [
        Row(
            id=result, operation="cast", rule="r", source="float32", format="float8_e4m3fnuz", case=result,
            kernel="port", owner="o", own=False, target="emulated-gfx942", device="emulated:gfx942", how="emulated",
            backend="triton", result=result, reason=reason,
        )
        for result, reason in results.items()
    ]  # fmt: skip
    assert text in port_verdict(Ledger([], rows, {}, {}, "")).text
