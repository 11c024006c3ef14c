"""NaN becomes a number in the clamp: tilelang#3024 and #3205 (``T.clamp`` in the shipped fp8 examples).

The mistake: the value is clamped by C's fmin and fmax, which return the operand that is a number, before it is cast.
NaN gives 0x7E (+448; in the reports the lower bound came first, so -448) and not 0x7F.
"""

from __future__ import annotations

from narrowgauge import Cast, kernel
from narrowgauge.suites.meta.mutant_kernels.encode import clamp_448, e4m3fn


@kernel(Cast(policy="ocp_saturate"), formats=["float8_e4m3fn"], sources=["float32"])
def torch_nan_lost(x, format):
    return e4m3fn(clamp_448(x))  # wrong: right is to saturate without touching NaN
