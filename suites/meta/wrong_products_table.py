# SPDX-License-Identifier: Apache-2.0
"""Wrong products of matrices, by the name of their kernel: the file, and in which words their report tells the mistake.

The words stand with each kernel, as its docstring; this reads them without importing torch.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).absolute().parent / "mutant_kernels"
FILES = ("wrong_products", "wrong_products_weights", "wrong_products_numpy", "wrong_products_triton")


@dataclass(frozen=True)
class Wrong:
    """One wrong kernel."""

    file: str  #: without its suffix, below ``FOLDER``
    words: str  #: the mistake, and the report


def _kernels(file: str) -> dict[str, Wrong]:
    functions = [n for n in ast.parse((FOLDER / f"{file}.py").read_text()).body if isinstance(n, ast.FunctionDef)]
    marked = [f for f in functions if any(ast.unparse(d).startswith("kernel(") for d in f.decorator_list)]
    return {f.name: Wrong(file, " ".join((ast.get_docstring(f) or "").split())) for f in marked}


WRONG: dict[str, Wrong] = {name: wrong for file in FILES for name, wrong in _kernels(file).items()}
