"""Subnormal results become zero: FBGEMM#2714 (software fp8 in Triton on AMD), rocm-libraries#7517 (portable OCP fp8).

Both report wrong subnormals; re-enacted as a flush. The mistake: a code that is subnormal after rounding is replaced by
the zero of its sign: 2^-9 gives 0x00 and not 0x01. What rounds up to 2^-6 is kept.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from narrowgauge import Cast, kernel
from narrowgauge.suites.meta.mutant_kernels.encode_triton import BLOCK, e4m3fn


@triton.jit
def _cast(x_ptr, codes_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    code = e4m3fn(tl.load(x_ptr + at, mask=at < size, other=0.0))
    code = tl.where((code & 0x7F) < 0x08, code & 0x80, code)  # wrong: right is to leave the code alone
    tl.store(codes_ptr + at, code, mask=at < size)


@kernel(Cast(policy="ocp_saturate"), formats=["float8_e4m3fn"], sources=["float32"], backend="triton")
def triton_subnormals_flushed(x, format):
    codes = torch.empty(x.shape, dtype=torch.uint8, device=x.device)
    _cast[(triton.cdiv(x.numel(), BLOCK),)](x.contiguous(), codes, x.numel(), BLOCK)
    return codes
