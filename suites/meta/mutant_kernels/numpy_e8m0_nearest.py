"""The shared exponent is the nearest one: mlx#4353 (Metal and CPU mxfp8; CUDA rounds up).

The mistake: the scale is rounded to the nearest power of two, so that for half of all blocks it is too small and their
largest elements are clipped. 1.25 gives 0x7F and not 0x80.
"""

from __future__ import annotations

import numpy as np

from narrowgauge import Cast, CastPolicy, kernel
from narrowgauge.suites.meta.mutant_kernels.encode_numpy import split


@kernel(Cast(CastPolicy(rounding="up")), formats=["float8_e8m0fnu"], sources=["float32"], backend="numpy")
def numpy_e8m0_nearest(x, format):
    negative, magnitude, _, _ = split(x)
    with np.errstate(invalid="ignore"):
        significand, exponent = np.frexp(np.abs(x).astype(np.float64))  # x = significand * 2^exponent, from 0.5 on
    codes = exponent - 1 + (significand >= 0.75) + 127  # wrong: right is to go up from 0.5 already
    codes = np.where((negative == 1) | (magnitude == 0), 0, np.clip(codes, 0, 254))
    codes = np.where((magnitude == 0x7F800000) & (negative == 0), 254, codes)
    return np.where(magnitude > 0x7F800000, 255, codes).astype(np.uint8)
