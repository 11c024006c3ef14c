"""Casts in Triton: ``soft`` ones encode by integers, ``native`` ones use the hardware's (or Triton's) conversion."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from narrowgauge import Cast, kernel
from narrowgauge.kernels_under_test.triton_codec import BLOCK, LAYOUTS, encode, load_float32_bits

SOURCES = ("float32", "bfloat16", "float16")
TRITON_TYPES = {"float8_e4m3fn": tl.float8e4nv, "float8_e4m3fnuz": tl.float8e4b8}


@triton.jit
def soft_cast(
    x, codes, count,
    BF16: tl.constexpr, BIAS: tl.constexpr, TOP: tl.constexpr, NAN: tl.constexpr, OVER: tl.constexpr,
    NEGATIVE_ZERO: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    bits = load_float32_bits(x, offsets, mask, BF16)
    tl.store(codes + offsets, encode(bits, BIAS, TOP, NAN, OVER, NEGATIVE_ZERO), mask)


@triton.jit
def native_cast(x, codes, count, TO: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    value = tl.load(x + offsets, mask, other=0.0)
    tl.store(codes + offsets, value.to(TO).to(tl.uint8, bitcast=True), mask)


def _grid(x):
    return (triton.cdiv(x.numel(), BLOCK),)


def launch_soft(x, format, saturate):
    """Codes of ``x``, any shape; ``saturate`` decides what stands beyond the largest finite value."""
    x = x.contiguous()
    codes = torch.empty(x.shape, dtype=torch.uint8, device=x.device)
    layout, bf16 = LAYOUTS[format], x.dtype == torch.bfloat16
    over = layout.top if saturate else layout.nan
    if x.numel():
        soft_cast[_grid(x)](
            x.view(torch.int16) if bf16 else x, codes, x.numel(),
            bf16, layout.bias, layout.top, layout.nan, over, layout.negative_zero, BLOCK,
        )  # fmt: skip
    return codes


def launch_native(x, format):
    """Codes of ``x``, any shape, by ``.to()`` inside the kernel."""
    x = x.contiguous()
    codes = torch.empty(x.shape, dtype=torch.uint8, device=x.device)
    if x.numel():
        native_cast[_grid(x)](x, codes, x.numel(), TRITON_TYPES[format], BLOCK)
    return codes


@kernel(Cast("ocp_saturate"), ["float8_e4m3fn"], SOURCES, owner="narrowgauge", conversion="soft")
def triton_soft_ocp_saturate(x, format):
    return launch_soft(x, format, saturate=True)


@kernel(Cast("ocp_nonsaturate"), ["float8_e4m3fn"], SOURCES, owner="narrowgauge", conversion="soft")
def triton_soft_ocp_nonsaturate(x, format):
    return launch_soft(x, format, saturate=False)


@kernel(Cast("fnuz_saturate"), ["float8_e4m3fnuz"], SOURCES, owner="narrowgauge", conversion="soft")
def triton_soft_fnuz_saturate(x, format):
    return launch_soft(x, format, saturate=True)


@kernel(Cast("fnuz_nonsaturate"), ["float8_e4m3fnuz"], SOURCES, owner="narrowgauge", conversion="soft")
def triton_soft_fnuz_nonsaturate(x, format):
    return launch_soft(x, format, saturate=False)


@kernel(Cast("ocp_saturate"), ["float8_e4m3fn"], SOURCES, owner="triton", conversion="native", library="triton")
def triton_native_ocp(x, format):
    return launch_native(x, format)


@kernel(Cast("triton_amd_fnuz"), ["float8_e4m3fnuz"], SOURCES, owner="triton", conversion="native", library="triton")
def triton_native_fnuz(x, format):
    return launch_native(x, format)
