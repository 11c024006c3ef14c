"""Overflow becomes NaN for want of a clamp before the cast: transformers#42746, vllm#4614 (static fp8 activations).

The mistake: a finite value that rounds beyond 448 takes the next code, which is NaN: 465 gives 0x7F and not 0x7E, -465
gives 0xFF and not 0xFE. 464 (a tie, to 448), infinity and NaN come out right. By integers, as torch's own cast
saturates since 2.13.
"""

from __future__ import annotations

import torch

from narrowgauge import Cast, kernel
from narrowgauge.suites.meta.mutant_kernels.encode import magnitude_codes, negative


@kernel(Cast(policy="ocp_saturate"), formats=["float8_e4m3fn"], sources=["float32"])
def torch_overflow_to_nan(x, format):
    codes = magnitude_codes(x, bias=7, largest=0x7F)  # wrong: right is 0x7E
    codes = torch.where(x.isinf(), 0x7E, codes)
    codes = torch.where(negative(x), codes | 0x80, codes)
    return torch.where(x.isnan(), 0x7F, codes).to(torch.uint8)
