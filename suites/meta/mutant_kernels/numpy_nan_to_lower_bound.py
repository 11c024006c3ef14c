"""NaN becomes the lower bound of the clamp: tilelang#3024 (``T.clamp`` in the shipped per-token fp8 examples).

The mistake: C's fmax comes first and returns the operand that is a number, so NaN is -448 (0xFE) and not NaN.
"""

from __future__ import annotations

import numpy as np

from narrowgauge import Cast, kernel
from narrowgauge.suites.meta.mutant_kernels.encode_numpy import finish, magnitude_codes, split


@kernel(Cast(policy="ocp_saturate"), formats=["float8_e4m3fn"], sources=["float32"], backend="numpy")
def numpy_nan_to_lower_bound(x, format):
    x = np.where(x > -448, x, np.float32(-448))  # wrong: right is a comparison that lets NaN through
    x = np.where(x < 448, x, np.float32(448))
    negative, magnitude, field, significand = split(x)
    return finish(magnitude_codes(field, significand, mantissa=3, bias=7), negative, magnitude, 0x7F)
