"""Rounding up looks at a part of the fraction: onnx#7784 (``to_float8e8m0`` with round mode "up").

The mistake: the fraction is masked with 0x4FFFFF where it should be 0x7FFFFF. 1.125, whose only bit is not in the mask,
gives 0x7F and not 0x80.
"""

from __future__ import annotations

import numpy as np

from narrowgauge import Cast, CastPolicy, kernel
from narrowgauge.suites.meta.mutant_kernels.encode_numpy import split


@kernel(Cast(CastPolicy(rounding="up")), formats=["float8_e8m0fnu"], sources=["float32"], backend="numpy")
def numpy_e8m0_mask(x, format):
    negative, magnitude, _, _ = split(x)
    field, fraction = magnitude >> 23, magnitude & 0x4FFFFF  # wrong: right is 0x7FFFFF
    # Below 2^-126 float32 has no implicit bit: what is at most 2^-127 is code 0.
    codes = np.where(field == 0, magnitude & 0x7FFFFF > 0x400000, field + (fraction > 0))
    codes = np.where(negative == 1, 0, np.minimum(codes, 254))
    return np.where(magnitude > 0x7F800000, 255, codes).astype(np.uint8)
