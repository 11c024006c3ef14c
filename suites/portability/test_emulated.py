"""An emulated device: the owner's launches run unchanged, compile for the target, and end as not executed."""

from __future__ import annotations

from pathlib import Path

import pytest

from narrowgauge.contracts.operations import Claim
from narrowgauge.devices import discovery
from narrowgauge.devices.targets import EMULATED
from narrowgauge.reference.inputs import case_named

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
    tl.store(o + i, tl.load(x + i, i < n, other=0.0).to(tl.uint8), i < n)

@kernel(Cast("ocp_saturate"), ["float8_e4m3fn"])
def theirs(x, format):
    o = torch.empty(x.shape, dtype=torch.uint8, device=x.device)
    copy[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, o, x.numel())
    return o
"""


@pytest.mark.parametrize("target", EMULATED)
def test_every_target_compiles_our_soft_cast(target: str) -> None:
    device = discovery.emulated(target)
    try:
        soft = next(
            p for p in device.describe("narrowgauge.kernels_under_test.triton_cast")
            if p.kernel.name == "triton_soft_ocp_saturate"
        )  # fmt: skip
        outcome = device.run(soft, CLAIM, case_named("edges").make(CLAIM))
    finally:
        device.close()
    assert outcome.kind == "not_executed"
    assert outcome.reason.startswith(f"emulator absent: would run soft_cast compiled for {target}, grid 2x1x1, 4 warps")
    assert int(outcome.reason.split()[-2]) > 20


def test_an_autotuned_launch_of_somebody_else_arrives(tmp_path: Path) -> None:
    path = tmp_path / "theirs.py"
    path.write_text(OWNERS_WRAPPER)
    device = discovery.emulated("gfx942")
    try:
        (theirs,) = device.describe(str(path))
        assert theirs.kernel.backend == "triton"
        outcome = device.run(theirs, CLAIM, case_named("edges").make(CLAIM))
    finally:
        device.close()
    assert outcome.kind == "not_executed"
    assert "would run copy compiled for gfx942" in outcome.reason
