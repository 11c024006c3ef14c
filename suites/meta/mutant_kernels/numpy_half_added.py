"""Half is added in float32 before cutting: vLLM's int8 KV cache (per token and head), as it was read and measured.

The mistake: x + 0.5 is rounded to float32 before the fraction is cut. 0.49999997 + 0.5 is 1.0, so 0.49999997 gives 1
and not 0; and ties go away from zero.
"""

from __future__ import annotations

import numpy as np

from narrowgauge import Cast, kernel


@kernel(Cast(policy="integer_nearest"), formats=["int8"], sources=["float32"], backend="numpy")
def numpy_half_added(x, format):
    with np.errstate(invalid="ignore"):
        rounded = np.trunc(x + np.copysign(np.float32(0.5), x))  # wrong: right is to round x itself
    rounded = np.clip(np.nan_to_num(rounded, nan=0.0, posinf=127, neginf=-128), -128, 127)
    return rounded.astype(np.int8).view(np.uint8)
