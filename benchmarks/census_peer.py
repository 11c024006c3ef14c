"""The child that has torch: amax over the bytes of two files, on one thread.

It reads from standard input, a line each, and answers in a line: ``who``, ``mapped`` (bfloat16, the first file, mapped
anew), ``memory`` (the same in memory), ``bytes`` (the second file as int8, for torch has no amax of 8-bit floats).
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Arguments: the files."""
    import torch

    torch.set_num_threads(1)
    wide, narrow = sys.argv[1:3]

    def mapped(path: str, dtype: torch.dtype) -> torch.Tensor:
        return torch.from_file(path, shared=False, size=os.path.getsize(path) // dtype.itemsize, dtype=dtype)

    held = mapped(wide, torch.bfloat16).clone()
    cases = {
        "who": lambda: None,
        "mapped": lambda: mapped(wide, torch.bfloat16).amax(),
        "memory": held.amax,
        "bytes": lambda: mapped(narrow, torch.int8).amax(),
    }
    for line in sys.stdin:
        cases[line.strip()]()
        print(f"torch {torch.__version__}, amax", flush=True)
