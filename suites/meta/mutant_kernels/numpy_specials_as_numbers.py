"""Infinity and NaN are widened like numbers: triton#11784 and intel-xpu-backend-for-triton#7771 (fp8 to bf16).

The mistake: the code is shifted to where bfloat16 has its fields and the bias is mended by a product. 0x7C of e5m2
gives 65536 and not infinity.
"""

from __future__ import annotations

import numpy as np

from narrowgauge import Cast, kernel


@kernel(Cast(policy="ieee"), formats=["bfloat16"], sources=["float8_e5m2"], backend="numpy")
def numpy_specials_as_numbers(x, format):
    codes = x.view(np.uint8).astype(np.uint32)
    shifted = (codes & 0x7F) << 21  # two bits of fraction below the exponent field of float32
    value = shifted.view(np.float32) * np.float32(2.0**112)  # wrong: right is to mend what had the top exponent
    bits = value.view(np.uint32) >> 16 | (codes & 0x80) << 8
    return bits.astype(np.uint16)
