"""An emulated device: the owner's launches run unchanged and compile for the target, and the code is executed."""

from __future__ import annotations

from pathlib import Path

import pytest

from narrowgauge.contracts.operations import Claim
from narrowgauge.contracts.outcome import Outcome
from narrowgauge.devices import discovery
from narrowgauge.reference.inputs import case_named
from narrowgauge.reference.judge import judge

pytestmark = [
    pytest.mark.meta,
    pytest.mark.emulated,
    pytest.mark.skipif(not discovery.has_triton(), reason="triton is not installed: nothing compiles for a target"),
]

CLAIM = Claim.parse("cast/ocp_saturate/float32/float8_e4m3fn")
OWNERS_WRAPPER = """
import torch, triton, triton.language as tl
from narrowgauge import kernel, Cast

@triton.autotune(configs=[triton.Config({"BLOCK": 256}, num_warps=2), triton.Config({"BLOCK": 512})], key=["n"])
@triton.jit
def copy(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, i < n, other=0.0)
    inside = (v >= 0) & (v < 256)  # beyond, LLVM leaves open what a conversion gives
    tl.store(o + i, tl.where(inside, v, 0.0).to(tl.uint8), i < n)

@kernel(Cast("ocp_saturate"), ["float8_e4m3fn"])
def theirs(x, format):
    o = torch.empty(x.shape, dtype=torch.uint8, device=x.device)
    copy[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, o, x.numel())
    return o
"""


def _outcome(target: str, name: str, claim: Claim = CLAIM) -> Outcome:
    """What came of running one of our casts on the edges of a claim."""
    device = discovery.emulated(target)
    try:
        described = device.describe("narrowgauge.kernels_under_test.triton_cast")
        cast = next(p for p in described if p.kernel.name == name)
        return device.run(cast, claim, case_named("edges").make(claim))
    finally:
        device.close()


@pytest.mark.parametrize("target", ["sm_120", "gfx1100"])
def test_a_compiled_soft_cast_is_executed_and_right(target: str) -> None:
    """From the device to the verdict; test_native_facts.py runs the same cast on every target, in one process."""
    outcome = _outcome(target, "triton_soft_ocp_saturate")
    assert outcome.kind == "returned", outcome.reason
    verdict = judge(CLAIM, case_named("edges").make(CLAIM), outcome.outputs, outcome.malformed)
    assert verdict.result == "passed"


def _theirs(folder: Path, target: str, text: str) -> Outcome:
    """What came of running the one kernel of somebody's file on the edges of a claim."""
    path = folder / "theirs.py"
    path.write_text(text)
    device = discovery.emulated(target)
    try:
        (theirs,) = device.describe(str(path))
        return device.run(theirs, CLAIM, case_named("edges").make(CLAIM))
    finally:
        device.close()


def test_a_wrong_claim_about_compiled_code_is_found() -> None:
    """The saturating cast, taken for one that gives NaN beyond the largest value."""
    other = Claim.parse("cast/ocp_nonsaturate/float32/float8_e4m3fn")
    outcome = _outcome("sm_90", "triton_soft_ocp_saturate")
    verdict = judge(other, case_named("edges").make(other), outcome.outputs, outcome.malformed)
    assert verdict.result == "failed"


@pytest.mark.parametrize("target", ["gfx942"])
def test_a_store_out_of_bounds_names_kernel_line_and_address(tmp_path: Path, target: str) -> None:
    beyond = OWNERS_WRAPPER.replace(".to(tl.uint8), i < n)", ".to(tl.uint8))")
    outcome = _theirs(tmp_path, target, beyond)
    assert outcome.kind == "raised"
    assert "KernelError: copy at theirs.py:11" in outcome.reason
    assert "out of bounds: store of" in outcome.reason
    assert "of argument 'o'" in outcome.reason


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_an_autotuned_launch_of_somebody_else_is_executed(tmp_path: Path, target: str) -> None:
    outcome = _theirs(tmp_path, target, OWNERS_WRAPPER)
    assert outcome.kind == "returned", outcome.reason
    assert outcome.malformed == ()
