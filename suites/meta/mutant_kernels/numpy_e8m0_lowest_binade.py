"""The lowest binade of E8M0 is rounded up: onnxruntime#28435 (review); torch and ml_dtypes do the same.

The mistake: the exponent field is raised by the bits below it (guard, round and lowest bit of a normal number). The
values from 2^-127 to 2^-126 are subnormal in float32: the leading bit of 2^-127 is the guard bit, so 1.25 x 2^-127
looks like more than a half and gives 0x01 and not 0x00.
"""

from __future__ import annotations

import numpy as np

from narrowgauge import Cast, kernel
from narrowgauge.suites.meta.mutant_kernels.encode_numpy import split


@kernel(Cast(policy="torch_from_2_13"), formats=["float8_e8m0fnu"], sources=["float32"], backend="numpy")
def numpy_e8m0_lowest_binade(x, format):
    _, magnitude, _, _ = split(x)
    field = magnitude >> 23
    guard, below = magnitude >> 22 & 1, (magnitude & 0x3FFFFF) > 0
    up = (guard == 1) & (below | (field > 0))  # wrong: right is to look one bit further down where the field is 0
    return np.where(field == 255, 255, field + up).astype(np.uint8)
