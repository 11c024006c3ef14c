"""A small night that really ran: a kernel that passes, a wrong cast, a wrong quantizer, a known failure, and a kernel
on two targets; and the loss of a cell from it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import narrowgauge
from narrowgauge.ci.allure.gather import RESULTS
from narrowgauge.ci.records import JOURNAL, RUN, RunRecord, write_json

PACKAGE = Path(narrowgauge.__file__).parent
TIES_AWAY = Path(__file__).absolute().parent / "mutant_kernels" / "triton_ties_away.py"
KERNELS = """
import torch
from narrowgauge import kernel, Cast, Quantize

@kernel(Cast(policy="ocp_saturate"), formats=["float8_e4m3fn"], owner="cast-team")
def half_away(x, format):
    magnitude = x.abs().double().clamp(max=448.0)
    exponent = torch.frexp(magnitude).exponent.clamp(min=-5) - 4   # of the last place; subnormals share one
    rounded = torch.ldexp(torch.floor(torch.ldexp(magnitude, -exponent) + 0.5), exponent)
    return torch.copysign(rounded, x).to(torch.float8_e4m3fn)

@kernel(Quantize("vllm.fp8_per_token_dynamic"), formats=["float8_e4m3fn"])
def scale_of_the_first(x, format):
    scale = (x.abs().amax(dim=1, keepdim=True).float() / 448).clamp(min=1 / (448 * 512))
    scale = scale[:1].expand(scale.shape).contiguous()
    return (x.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale
"""
CASES = (
    "((half_away or triton_ties_away) and edges) or (scale_of_the_first and rows_128) "
    "or (ml_dtypes_astype and float8_e4m3fn-edges) or (torch_eager and float32-float8_e8m0fnu-edges)"
)
#: the cell that ``lose`` takes away
LOST = "test_cell[bfloat16-float8_e4m3fn-edges-ml_dtypes_astype-host]"


def make(folder: Path) -> Path:
    """Run it, as ``narrowgauge run`` does but for its preflight, on the two suites that it needs."""
    folder = folder.resolve()
    (folder / "kernels.py").write_text(KERNELS)
    out = folder / "night"
    command = [sys.executable, "-m", "pytest", "-c", str(PACKAGE / "pytest.toml"), f"--rootdir={PACKAGE.parent}"]
    command += ["-p", "no:cacheprovider", "-p", "narrowgauge.plugin.nightly", "--lane=cpu/cpu", f"--out={out}"]
    command += [f"--alluredir={out / RESULTS}", "--kernels=kernels.py", f"--kernels={TIES_AWAY}", "-k", CASES]
    command += [f"--device={name}" for name in ("host", "interpreter", "emulated:sm_90")]
    command += [str(PACKAGE / "suites" / name) for name in ("casts", "quantizers")]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)}, capture_output=True, text=True,
        timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    record = RunRecord(
        lane="cpu", target="cpu", shard=1, shards=1, attempt=1, depth="smoke", state="finished",
        started="2026-11-30T20:00:00+00:00", ended="2026-11-30T20:10:00+00:00", golden="0123456789abcdef" * 4,
        versions={"torch": "2.13.0"},
    )  # fmt: skip
    write_json(out / RUN, record.to_json())
    return out


def lose(night: Path, copy: Path) -> Path:
    """The same night with a cell that began and was lost with its process: no end, and no result."""
    shutil.copytree(night, copy)
    lines = (copy / JOURNAL).read_text().splitlines()
    kept = [line for line in lines if not (LOST in line and json.loads(line)["event"] == "end")]
    (copy / JOURNAL).write_text("\n".join(kept) + "\n")
    for path in (copy / RESULTS).glob("*-result.json"):
        if LOST in path.read_text():
            path.unlink()
    return copy
