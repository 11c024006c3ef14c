"""Subnormals are read by the formula of normal numbers: 1bit-MONSTER#300 and b12x#388 (small NVFP4 scales).

The mistake: the implicit one is put before every fraction but that of zero. 0x01 of e4m3fn gives 0.0087890625 and not
0.001953125.
"""

from __future__ import annotations

import numpy as np

from narrowgauge import Cast, kernel


@kernel(Cast(policy="ieee"), formats=["float16"], sources=["float8_e4m3fn"], backend="numpy")
def numpy_subnormals_as_normals(x, format):
    codes = x.view(np.uint8).astype(np.int64)
    magnitude = codes & 0x7F
    value = np.ldexp(1 + (magnitude & 7) / 8, (magnitude >> 3) - 7)  # wrong: right is 0.fraction x 2^-6 in the field 0
    value = np.where(magnitude == 0, 0.0, np.where(magnitude == 0x7F, np.nan, value))
    return np.where(codes >= 0x80, -value, value).astype(np.float16).view(np.uint16)
