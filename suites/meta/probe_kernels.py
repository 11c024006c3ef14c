"""Products of matrices in NumPy for the tests of ``narrowgauge probe``."""

import numpy as np

from narrowgauge import Matmul, kernel


def sums(x, b, length):
    """Sums of so many products, one after the other in float32; and these added up."""
    total = np.zeros((len(x), len(b)), np.float32)
    for start in range(0, x.shape[1], length):
        part = np.zeros_like(total)
        for k in range(start, min(start + length, x.shape[1])):
            part += x[:, k : k + 1] * b[:, k]  # exact products of float16 numbers
        total += part
    return total


def half(x, b, length):
    return sums(x.astype(np.float32), b.astype(np.float32), length)


@kernel(Matmul("plain.matmul", portrait={"promotion": "none"}), ["float16"], ["float16"], backend="numpy")
def promoted_although_it_says_not(x, format, b):
    return half(x, b, 64).astype(np.float16)


@kernel(Matmul("plain.matmul"), ["float16"], ["float16"], backend="numpy")
def refuses(x, format, b):
    raise ValueError(f"K of {x.shape[1]} is not for me")
