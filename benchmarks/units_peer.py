"""The child that has torch and mmasim: its matrix units on matrices of drawn codes.

Arguments: M, N and K. It reads ``who CASE`` and ``run CASE`` from standard input, a line each, and answers in a line.
"""

from __future__ import annotations

import importlib.metadata
import sys
from typing import Any


def main() -> None:
    """Answer until the input ends."""
    import torch
    from mmasim import amd, nv_ptx

    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows, columns, depth = map(int, sys.argv[1:4])
    operations: dict[str, Any] = {
        "hopper": nv_ptx.WGMMA("Hopper", "m64n8k32.f32.e4m3.e4m3"),
        "ampere": nv_ptx.MMA("Ampere", "m16n8k16.f32.bf16.bf16.f32"),
        "mi300": amd.MFMA("CDNA3", "f32_32x32x16_fp8_fp8"),
    }
    a, b, c = torch.randn(rows, depth), torch.randn(depth, columns), torch.zeros(rows, columns)
    operands = {case: (a.to(made.a_type), b.to(made.b_type), c) for case, made in operations.items()}
    for line in sys.stdin:
        verb, case = line.split()
        if verb == "run":
            operations[case](*operands[case])
        print(f"mmasim {importlib.metadata.version('mmasim')}", flush=True)
