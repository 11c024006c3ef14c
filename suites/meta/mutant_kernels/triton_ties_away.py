"""Half rounds away from zero: triton#11753 (software E5M2 before Ada), aiter#3992 (``>=`` at every FP4 midpoint).

Re-enacted for e4m3fn. The mistake: half a unit is added to every significand and cut off, with nothing to send a tie
to the even code. A tie above an even code comes out one code too large: 1.0625 gives 0x39 and not 0x38.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from narrowgauge import Cast, kernel
from narrowgauge.suites.meta.mutant_kernels.encode_triton import BLOCK


@triton.jit
def _cast(x_ptr, codes_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(x_ptr + at, mask=at < size, other=0.0).to(tl.int32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    exponent = tl.maximum(magnitude >> 23, 1)
    significand = tl.where(magnitude >= 0x800000, magnitude & 0x7FFFFF | 0x800000, magnitude)
    binade = tl.maximum(exponent, 121)
    shift = tl.minimum(20 + binade - exponent, 25)
    rounded = (significand + (1 << (shift - 1))) >> shift  # wrong: right is half - 1 + the lowest bit that stays
    code = tl.minimum(rounded + (binade - 121 << 3), 0x7E)
    code = tl.where(bits < 0, code | 0x80, code)
    code = tl.where(magnitude > 0x7F800000, 0x7F, code)
    tl.store(codes_ptr + at, code.to(tl.uint8), mask=at < size)


@kernel(Cast(policy="ocp_saturate"), formats=["float8_e4m3fn"], sources=["float32"], backend="triton")
def triton_ties_away(x, format):
    codes = torch.empty(x.shape, dtype=torch.uint8, device=x.device)
    _cast[(triton.cdiv(x.numel(), BLOCK),)](x.contiguous(), codes, x.numel(), BLOCK)
    return codes
