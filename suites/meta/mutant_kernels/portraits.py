# SPDX-License-Identifier: Apache-2.0
"""One sum, product after product in float32, under a portrait that fits it and under one that does not."""

import numpy as np

from narrowgauge import Matmul, kernel

CHAIN = {"fused": "1", "promotion": "none", "width": "23", "rounding": "nearest_even", "split_k": "none"}
HOPPER = {"fused": "32", "promotion": "128", "width": "13"}
FLOAT32, FLOAT16 = ["float32"], ["float16"]


def chained(x, b):
    total = np.zeros((len(x), len(b)), np.float32)
    for one, other in zip(x.astype(np.float32).T, b.astype(np.float32).T, strict=True):
        total += np.outer(one, other)
    return total


@kernel(Matmul("plain.matmul", portrait=CHAIN), FLOAT32, FLOAT16, backend="numpy")
def chain_as_it_says(x, format, b):
    return chained(x, b)


@kernel(Matmul("plain.matmul", portrait=HOPPER), FLOAT32, FLOAT16, backend="numpy")
def chain_that_says_hopper(x, format, b):
    return chained(x, b)
