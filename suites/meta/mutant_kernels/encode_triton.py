"""The right float32 -> e4m3fn encoding by integer operations, for the Triton mutants to start from."""

from __future__ import annotations

import os

import triton
import triton.language as tl

#: elements of one program: the interpreter takes a millisecond for each
BLOCK = 65536 if os.environ.get("TRITON_INTERPRET") else 1024


@triton.jit
def e4m3fn(x):
    """``ocp_saturate``: ties to even, overflow and inf -> 0x7E with the sign, NaN -> 0x7F."""
    bits = x.to(tl.int32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    exponent = tl.maximum(magnitude >> 23, 1)
    significand = tl.where(magnitude >= 0x800000, magnitude & 0x7FFFFF | 0x800000, magnitude)
    binade = tl.maximum(exponent, 121)  # below it the destination is subnormal
    shift = tl.minimum(20 + binade - exponent, 25)
    half = 1 << (shift - 1)
    rounded = (significand + half - 1 + (significand >> shift & 1)) >> shift
    code = tl.minimum(rounded + (binade - 121 << 3), 0x7E)
    code = tl.where(bits < 0, code | 0x80, code)
    return tl.where(magnitude > 0x7F800000, 0x7F, code).to(tl.uint8)
