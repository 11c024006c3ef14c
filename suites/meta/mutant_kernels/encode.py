"""The right float32 -> fp8 encoding by integer operations, for the torch mutants to start from."""

from __future__ import annotations

import torch


def magnitude_codes(x: torch.Tensor, bias: int, largest: int) -> torch.Tensor:
    """Codes (int32) of ``|x|`` for a sign-E4M3 format: ties to even, overflow, inf and NaN to ``largest``."""
    magnitude = x.view(torch.int32) & 0x7FFFFFFF
    exponent = (magnitude >> 23).clamp(min=1)
    significand = torch.where(magnitude >= 0x800000, magnitude & 0x7FFFFF | 0x800000, magnitude)
    binade = exponent.clamp(min=128 - bias)  # below it the destination is subnormal
    shift = (20 + binade - exponent).clamp(max=25)
    half = 1 << (shift - 1)
    rounded = (significand + half - 1 + (significand >> shift & 1)) >> shift
    return (rounded + (binade - (128 - bias) << 3)).clamp(max=largest)


def negative(x: torch.Tensor) -> torch.Tensor:
    """Whether the sign bit is set, of zeros and NaNs too."""
    return x.view(torch.int32) < 0


def e4m3fn(x: torch.Tensor) -> torch.Tensor:
    """``ocp_saturate``: overflow and inf -> 0x7E with the sign, NaN -> 0x7F."""
    codes = magnitude_codes(x, bias=7, largest=0x7E)
    codes = torch.where(negative(x), codes | 0x80, codes)
    return torch.where(x.isnan(), 0x7F, codes).to(torch.uint8)


def clamp_448(y: torch.Tensor) -> torch.Tensor:
    """``fmax(-448, fmin(y, 448))``: NaN becomes +448. By comparisons, as ``torch.fmin`` keeps a signalling NaN."""
    y = torch.where(y < 448.0, y, 448.0)
    return torch.where(y > -448.0, y, -448.0)
