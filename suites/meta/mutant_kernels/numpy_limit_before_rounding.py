"""The limit is compared before rounding: Triton's AMD software conversion of float16 to fp8e4nv.

The mistake: magnitudes from 480 on are set to 448, 480 being the value that the code after the largest would have. But
what lies between 464 and 480 rounds to that code, which is NaN: 472 gives 0x7F and not 0x7E.
"""

from __future__ import annotations

import numpy as np

from narrowgauge import Cast, kernel
from narrowgauge.suites.meta.mutant_kernels.encode_numpy import finish, magnitude_codes, split


@kernel(Cast(policy="ocp_saturate"), formats=["float8_e4m3fn"], sources=["float16"], backend="numpy")
def numpy_limit_before_rounding(x, format):
    negative, magnitude, field, significand = split(x.astype(np.float32))
    codes = magnitude_codes(field, significand, mantissa=3, bias=7)
    codes = np.where(
        magnitude >= 0x43F00000, 0x7E, codes
    )  # wrong: right is to look at the code, or to compare with 464
    return finish(codes, negative, magnitude, 0x7F)
