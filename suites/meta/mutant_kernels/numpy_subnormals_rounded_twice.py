"""Subnormals are rounded twice: openvino#30057 (float16 to e4m3).

The mistake: the significand is first rounded to the destination's four bits, and where the result is subnormal it is
shifted and rounded again. 0.00292205810546875 (just below 1.5 x 2^-9) is first 1.5 x 2^-9, a tie, and then 0x02.
"""

from __future__ import annotations

import numpy as np

from narrowgauge import Cast, kernel
from narrowgauge.suites.meta.mutant_kernels.encode_numpy import finish, magnitude_codes, nearest_even, split


@kernel(Cast(policy="ocp_saturate"), formats=["float8_e4m3fn"], sources=["float16"], backend="numpy")
def numpy_subnormals_rounded_twice(x, format):
    negative, magnitude, field, significand = split(x.astype(np.float32))
    significand = nearest_even(significand, 20) << 20  # wrong: right is one rounding, at the place of the result
    codes = np.minimum(magnitude_codes(field, significand, mantissa=3, bias=7), 0x7E)
    return finish(codes, negative, magnitude, 0x7F)
