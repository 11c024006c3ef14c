"""One flavour's bytes in the other's buffer: vllm#45562 (a KV cache read as e4m3fn that was written as e4m3fnuz).

The mistake: float8_e4m3fnuz is claimed and float8_e4m3fn is written. Read as FNUZ, each finite value is half of what it
should be, -0.0 is NaN, and NaN is +240.
"""

from __future__ import annotations

from narrowgauge import Cast, kernel
from narrowgauge.suites.meta.mutant_kernels.encode import e4m3fn


@kernel(Cast(policy="fnuz_saturate"), formats=["float8_e4m3fnuz"], sources=["float32"])
def torch_fnuz_bytes_as_ocp(x, format):
    return e4m3fn(x)  # wrong: right is the FNUZ code
