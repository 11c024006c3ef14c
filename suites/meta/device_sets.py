"""What the tests of devices share: a claim, its inputs, and plug-in files."""

from __future__ import annotations

import textwrap
from pathlib import Path

from narrowgauge.contracts.operations import Claim
from narrowgauge.reference.inputs import case_named

FOLDER = Path(__file__).absolute().parent / "mutant_kernels"
BROKEN = str(FOLDER / "broken.py")
CLAIM = Claim.parse("cast/ocp_saturate/float32/float8_e4m3fn")
X = case_named("edges").make(CLAIM)


def plugin(folder: Path, body: str, name: str = "plug.py") -> str:
    path = folder / name
    path.write_text("import torch\nfrom narrowgauge import kernel, Cast\n" + textwrap.dedent(body))
    return str(path)


RIGHT = """
    @kernel(Cast("ocp_saturate"), ["float8_e4m3fn"])
    def right(x, format):
        return x.clamp(-448, 448).to(torch.float8_e4m3fn)
"""
