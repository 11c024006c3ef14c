"""Standalone scripts of products: run without narrowgauge, they print the differences that the ledger row lists."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from narrowgauge.devices.device import Device
from narrowgauge.devices.discovery import host
from narrowgauge.reference.inputs import case_named
from narrowgauge.suites import product_scripts
from narrowgauge.suites.judging import run_cell
from narrowgauge.suites.offline import write_inputs
from narrowgauge.suites.planning import plan_cases
from narrowgauge.suites.product_scripts import FILE
from narrowgauge.suites.script_lines import SHOWN

pytestmark = pytest.mark.meta

OWNERS_FILE = """
import torch
from narrowgauge import kernel, Matmul

@kernel(Matmul("vllm.fp8_token_channel"), formats=["bfloat16"], sources=["float8_e4m3fn"])
def forgets_a_scale(x, format, b, a_scale, b_scale):
    return ((x.float() @ b.float().T) * a_scale).to(torch.bfloat16)

@kernel(Matmul("plain.matmul"), formats=["float32"], sources=["float32"])
def forgets_a_row(x, format, b):
    y = x @ b.T
    y[0] = 0
    return y
"""


@pytest.fixture(scope="module")
def torch_host() -> Iterator[Device]:
    device = host()
    yield device
    device.close()


@pytest.mark.parametrize(
    ("kernel", "case", "held"),
    [("forgets_a_scale", "exact", 1 << 20), ("forgets_a_scale", "noise", 0), ("forgets_a_row", "one_row", 0)],
)
def test_a_script_shows_the_differences(
    kernel: str, case: str, held: int, torch_host: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it holds the tensors, or reads them from the file that `narrowgauge inputs` writes."""
    monkeypatch.setattr(product_scripts, "LARGEST", held)
    path = tmp_path / "owners.py"
    path.write_text(OWNERS_FILE)
    plugged = [p for p in torch_host.describe(str(path)) if p.kernel.name == kernel]
    (planned,) = (p for p in plan_cases(plugged, [torch_host], "matmul", "smoke") if p.case == case)
    judged = run_cell(planned, case_named(case, "matmul").inputs(planned.claim))
    assert (FILE in judged.script) == (held == 0)
    (tmp_path / "show.py").write_text("import sys; sys.modules['narrowgauge'] = None\n" + judged.script)
    if held == 0:
        write_inputs(planned.claim, "smoke", tmp_path / FILE)
    done = subprocess.run(
        [sys.executable, "show.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    printed = re.findall(r"codes\[(\d+), (\d+)\]: got (0x\w+) want (.+)", done.stdout)
    listed = [(*map(str, m.index), int(m.got.split("(")[1][:-1], 16), m.want) for m in judged.row.mismatches[:SHOWN]]
    assert [(row, column, int(got, 16), want) for row, column, got, want in printed] == listed
    assert listed
