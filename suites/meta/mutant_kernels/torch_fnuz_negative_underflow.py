"""Small negative values become NaN in a FNUZ format: onnxruntime#18473, onnx#5764, xla#17487, triton#3997.

The mistake: the sign bit is kept when the value underflows. FNUZ has no -0 and byte 0x80 is its NaN: -1e-8 (and -0.0)
gives 0x80 and not 0x00.
"""

from __future__ import annotations

import torch

from narrowgauge import Cast, kernel
from narrowgauge.suites.meta.mutant_kernels.encode import magnitude_codes, negative


@kernel(Cast(policy="fnuz_saturate"), formats=["float8_e4m3fnuz"], sources=["float32"])
def torch_fnuz_negative_underflow(x, format):
    codes = magnitude_codes(x, bias=8, largest=0x7F)
    codes = torch.where(negative(x), codes | 0x80, codes)  # wrong: right is to leave code 0 without a sign
    return torch.where(x.isnan(), 0x80, codes).to(torch.uint8)
