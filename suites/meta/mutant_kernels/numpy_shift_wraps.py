"""A shift count that wraps: rocm-systems#10591 and ocannl#647 (amd_hip_fp8.h, cast_to_f8), composable_kernel#2571.

The mistake: the significand of a value far below the destination's smallest normal is shifted right by the difference
of the exponents, in a 64-bit integer. A processor takes the count modulo 64. In e5m2 2^-78 is then shifted by 0 and not
by 64, and gives 0x04 (2^-14) and not 0x00.
"""

from __future__ import annotations

import numpy as np

from narrowgauge import Cast, kernel
from narrowgauge.suites.meta.mutant_kernels.encode_numpy import finish, split


@kernel(Cast(policy="ocp_saturate"), formats=["float8_e5m2"], sources=["float32"], backend="numpy")
def numpy_shift_wraps(x, format):
    negative, magnitude, field, significand = split(x)
    below = np.maximum(113 - field, 0)  # 113 is the field of 2^-14
    lost = np.where(below < 64, significand & (1 << np.minimum(below, 40)) - 1, 0)
    significand = significand >> (below & 63)  # wrong: right is no significand at all from 64 on
    cut, kept = significand & 0x1FFFFF, significand >> 21
    up = (cut > 1 << 20) | ((cut == 1 << 20) & ((lost > 0) | (kept & 1 == 1)))
    codes = kept + up + (np.maximum(field - 113, 0) << 2)
    return finish(np.minimum(codes, 0x7B), negative, magnitude, 0x7F)
