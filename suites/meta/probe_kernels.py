"""Products of matrices in NumPy for the tests of ``narrowgauge probe``."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge import Matmul, kernel

Array = npt.NDArray[Any]


def half(x: Array, b: Array, length: int) -> Array:
    """Sums of so many products of float16 numbers, one after the other in float32; and these added up."""
    one, other = x.astype(np.float32), b.astype(np.float32)
    total = np.zeros((len(x), len(b)), np.float32)
    for start in range(0, x.shape[1], length):
        part = np.zeros_like(total)
        for k in range(start, min(start + length, x.shape[1])):
            part += one[:, k : k + 1] * other[:, k]  # exact
        total += part
    return total


@kernel(Matmul("plain.matmul", portrait={"promotion": "none"}), ["float16"], ["float16"], backend="numpy")
def promoted_although_it_says_not(x: Array, format: str, b: Array) -> Array:
    return half(x, b, 64).astype(np.float16)


@kernel(Matmul("plain.matmul"), ["float16"], ["float16"], backend="numpy")
def refuses(x: Array, format: str, b: Array) -> Array:
    raise ValueError(f"K of {x.shape[1]} is not for me")
