"""Casts in Triton: ``soft`` ones encode by integers, ``native`` ones use the hardware's (or Triton's) conversion."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from narrowgauge import Cast, kernel
from narrowgauge.contracts.formats import format_named
from narrowgauge.kernels_under_test.triton_codec import (
    LAYOUTS,
    block_of,
    decode,
    decode_e8m0,
    decode_integer,
    encode,
    encode_e8m0,
    encode_integer,
    load_float32_bits,
    store_float32_bits,
)

SOURCES = ("float32", "bfloat16", "float16")
OCP, FNUZ = ("float8_e4m3fn", "float8_e5m2"), ("float8_e4m3fnuz", "float8_e5m2fnuz")
IEEE_LIKE = ("float8_e4m3", "float8_e3m4")
FINITE = ("float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn")
E8M0, INTEGERS = "float8_e8m0fnu", ("int8", "uint8", "int4", "uint4")
NARROW = (*OCP, *FNUZ, *IEEE_LIKE, "float8_e4m3b11fnuz", *FINITE)
TRITON_TYPES = {
    "float8_e4m3fn": tl.float8e4nv,
    "float8_e4m3fnuz": tl.float8e4b8,
    "float8_e5m2": tl.float8e5,
    "float8_e5m2fnuz": tl.float8e5b16,
}


@triton.jit
def soft_cast(
    x, codes, count, BF16: tl.constexpr, MANTISSA: tl.constexpr, BIAS: tl.constexpr, TOP: tl.constexpr,
    SIGN: tl.constexpr, OVER: tl.constexpr, INFINITY: tl.constexpr, NAN_PLUS: tl.constexpr, NAN_MINUS: tl.constexpr,
    NEGATIVE_ZERO: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    bits = load_float32_bits(x, offsets, mask, BF16)
    code = encode(bits, MANTISSA, BIAS, TOP, SIGN, OVER, INFINITY, NAN_PLUS, NAN_MINUS, NEGATIVE_ZERO)
    tl.store(codes + offsets, code.to(tl.uint8), mask)


@triton.jit
def soft_e8m0(x, codes, count, BF16: tl.constexpr, UP: tl.constexpr, OVER: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    code = encode_e8m0(load_float32_bits(x, offsets, mask, BF16), UP, OVER)
    tl.store(codes + offsets, code.to(tl.uint8), mask)


@triton.jit
def soft_integer(
    x, codes, count, BF16: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, MASK: tl.constexpr, BLOCK: tl.constexpr
):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    code = encode_integer(load_float32_bits(x, offsets, mask, BF16), LOW, HIGH, MASK)
    tl.store(codes + offsets, code.to(tl.uint8), mask)


@triton.jit
def soft_decode(
    codes, out, count, TO: tl.constexpr, MANTISSA: tl.constexpr, BIAS: tl.constexpr, TOP: tl.constexpr,
    SIGN: tl.constexpr, INFINITY: tl.constexpr, NAN: tl.constexpr, TINY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    code = tl.load(codes + offsets, mask, other=0).to(tl.int32)
    store_float32_bits(out, offsets, decode(code, MANTISSA, BIAS, TOP, SIGN, INFINITY, NAN, TINY), mask, TO)


@triton.jit
def soft_decode_e8m0(codes, out, count, TO: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    code = tl.load(codes + offsets, mask, other=0).to(tl.int32)
    store_float32_bits(out, offsets, decode_e8m0(code), mask, TO)


@triton.jit
def soft_decode_integer(codes, out, count, TO: tl.constexpr, SIGN: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    code = tl.load(codes + offsets, mask, other=0).to(tl.int32)
    store_float32_bits(out, offsets, decode_integer(code, SIGN), mask, TO)


@triton.jit
def native_cast(x, codes, count, TO: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    value = tl.load(x + offsets, mask, other=0.0)
    tl.store(codes + offsets, value.to(TO).to(tl.uint8, bitcast=True), mask)


@triton.jit
def native_decode(codes, out, count, FROM: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    value = tl.load(codes + offsets, mask, other=0).to(FROM, bitcast=True)
    tl.store(out + offsets, value.to(out.dtype.element_ty), mask)


def _grid(x):
    return (triton.cdiv(x.numel(), block_of(x.numel())),)


def _fresh_codes(x):
    return torch.empty(x.shape, dtype=torch.uint8, device=x.device)


def _launch(jitted, x, *constants):
    """Codes of ``x``, any shape."""
    x = x.contiguous()
    codes, bf16 = _fresh_codes(x), x.dtype == torch.bfloat16
    if x.numel():
        jitted[_grid(x)](x.view(torch.int16) if bf16 else x, codes, x.numel(), bf16, *constants, block_of(x.numel()))
    return codes


def launch_soft(x, format, saturate):
    """``saturate`` decides what stands beyond the largest value; a NaN becomes the largest in a format without one."""
    layout = LAYOUTS[format]
    over = layout.top if saturate else layout.special
    nan = layout.nan if layout.nan >= 0 else layout.top
    return _launch(
        soft_cast, x, layout.mantissa, layout.bias, layout.top, layout.sign, over, over, nan, nan, layout.negative_zero
    )


def launch_native(x, format):
    """Codes of ``x``, any shape, by ``.to()`` inside the kernel."""
    x, codes = x.contiguous(), _fresh_codes(x)
    if x.numel():
        native_cast[_grid(x)](x, codes, x.numel(), TRITON_TYPES[format], block_of(x.numel()))
    return codes


def launch_decode(codes, source, format):
    """Values of codes, any shape, as patterns of float32, bfloat16 or float16."""
    fmt, to = format_named(source), SOURCES.index(format)
    codes = codes.contiguous().view(torch.uint8)
    out = torch.empty(codes.shape, dtype=torch.int32 if to == 0 else torch.int16, device=codes.device)
    if not codes.numel():
        return out
    if source == E8M0:
        soft_decode_e8m0[_grid(codes)](codes, out, codes.numel(), to, block_of(codes.numel()))
    elif source in INTEGERS:
        soft_decode_integer[_grid(codes)](codes, out, codes.numel(), to, fmt.sign_bit, block_of(codes.numel()))
    else:
        layout, tiny = LAYOUTS[source], 2.0 ** (1 - fmt.bias - fmt.mantissa)
        soft_decode[_grid(codes)](
            codes, out, codes.numel(), to, layout.mantissa, layout.bias, layout.top, layout.sign, layout.infinity,
            layout.nan, tiny, block_of(codes.numel()),
        )  # fmt: skip
    return out


# --- the kernels -----------------------------------------------------------------------------------------------------


@kernel(Cast("ocp_saturate"), OCP, SOURCES, owner="narrowgauge", conversion="soft")
def triton_soft_ocp_saturate(x, format):
    return launch_soft(x, format, saturate=True)


@kernel(Cast("ocp_nonsaturate"), OCP, SOURCES, owner="narrowgauge", conversion="soft")
def triton_soft_ocp_nonsaturate(x, format):
    return launch_soft(x, format, saturate=False)


@kernel(Cast("fnuz_saturate"), FNUZ, SOURCES, owner="narrowgauge", conversion="soft")
def triton_soft_fnuz_saturate(x, format):
    return launch_soft(x, format, saturate=True)


@kernel(Cast("fnuz_nonsaturate"), FNUZ, SOURCES, owner="narrowgauge", conversion="soft")
def triton_soft_fnuz_nonsaturate(x, format):
    return launch_soft(x, format, saturate=False)


@kernel(Cast("ieee"), IEEE_LIKE, SOURCES, owner="narrowgauge", conversion="soft")
def triton_soft_ieee(x, format):
    return launch_soft(x, format, saturate=False)


@kernel(Cast("ptx_satfinite"), FINITE, SOURCES, owner="narrowgauge", conversion="soft")
def triton_soft_finite(x, format):
    return launch_soft(x, format, saturate=True)


@kernel(Cast("ptx_ue8m0_rp_satfinite"), [E8M0], SOURCES, owner="narrowgauge", conversion="soft")
def triton_soft_e8m0_up(x, format):
    return _launch(soft_e8m0, x, 1, 254)


@kernel(Cast("ptx_ue8m0_rz_satfinite"), [E8M0], SOURCES, owner="narrowgauge", conversion="soft")
def triton_soft_e8m0_down(x, format):
    return _launch(soft_e8m0, x, 0x800000, 254)


@kernel(Cast("integer_nearest"), INTEGERS, SOURCES, owner="narrowgauge", conversion="soft")
def triton_soft_integer(x, format):
    fmt = format_named(format)
    low, high = (-fmt.sign_bit, fmt.sign_bit - 1) if fmt.signed else (0, fmt.code_count - 1)
    return _launch(soft_integer, x, low, high, fmt.code_count - 1)


@kernel(Cast("ieee"), SOURCES, (*NARROW, E8M0, *INTEGERS), owner="narrowgauge", conversion="soft")
def triton_soft_decode(x, format, source):
    return launch_decode(x, source, format)


@kernel(Cast("ocp_saturate"), OCP, SOURCES, owner="triton", conversion="native", library="triton")
def triton_native_ocp(x, format):
    return launch_native(x, format)


@kernel(Cast("triton_amd_fnuz"), FNUZ, SOURCES, owner="triton", conversion="native", library="triton")
def triton_native_fnuz(x, format):
    return launch_native(x, format)


@kernel(Cast("ieee"), SOURCES, (*OCP, *FNUZ), owner="triton", conversion="native", library="triton")
def triton_native_decode(x, format, source):
    codes = x.contiguous().view(torch.uint8)
    out = torch.empty(codes.shape, dtype=getattr(torch, format), device=codes.device)
    if codes.numel():
        native_decode[_grid(codes)](codes, out, codes.numel(), TRITON_TYPES[source], block_of(codes.numel()))
    return out
