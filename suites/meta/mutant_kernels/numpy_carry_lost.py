"""The carry out of the fraction is lost: triton#8322 and triton#11897 (the interpreter's ``_convert_float``).

The mistake: exponent and rounded fraction are put together by "or", the fraction cut to its width. Where rounding fills
the fraction up, nothing is added to the exponent: 1.97 gives 0x38 (1.0) and not 0x40 (2.0), 126.24 gives 64.
"""

from __future__ import annotations

import numpy as np

from narrowgauge import Cast, kernel
from narrowgauge.suites.meta.mutant_kernels.encode_numpy import finish, nearest_even, split


@kernel(Cast(policy="ocp_saturate"), formats=["float8_e4m3fn"], sources=["float32"], backend="numpy")
def numpy_carry_lost(x, format):
    negative, magnitude, field, significand = split(x)
    binade = np.maximum(field, 121)
    rounded = nearest_even(significand, np.minimum(20 + binade - field, 25))
    exponent = np.where(field >= 121, field - 120, 0)
    codes = exponent << 3 | rounded & 7  # wrong: right is to add
    largest = magnitude >= 0x43E80001  # all above 464
    codes = np.where(largest, 0x7E, codes)
    return finish(codes, negative, magnitude, 0x7F)
