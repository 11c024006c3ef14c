"""The scale is stored as its reciprocal: modular#6600 (a checkpoint's divisor read as a multiplier).

The mistake: the codes are made with scale, and 1/scale is returned, so that ``codes * scale`` is not x.
"""

from __future__ import annotations

import torch

from narrowgauge import Quantize, kernel
from narrowgauge.suites.meta.mutant_kernels.encode import clamp_448, e4m3fn


@kernel(Quantize(recipe="vllm.fp8_per_token_dynamic"), formats=["float8_e4m3fn"], sources=["float32"])
def torch_inverted_scale(x, format):
    magnitudes = torch.where(x.isnan(), 0.0, x.abs())
    amax = torch.nn.functional.pad(magnitudes, (1, 0)).amax(dim=1, keepdim=True)  # seeded with a column of 0
    scale = (amax / torch.full_like(amax, 448.0)).clamp(min=1 / (448 * 512))  # a number would be a reciprocal on CUDA
    codes = e4m3fn(clamp_448(x / scale))
    return codes, scale.reciprocal()  # wrong: right is scale
