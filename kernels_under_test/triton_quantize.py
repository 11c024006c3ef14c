"""Per-token dynamic fp8 quantizers in Triton, one per engine recipe.

``soft`` ones encode by integers. ``native`` ones leave the last conversion to the hardware: the cast is what they are
there to test.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from narrowgauge import Quantize, kernel
from narrowgauge.kernels_under_test.triton_cast import TRITON_TYPES
from narrowgauge.kernels_under_test.triton_codec import INTERPRETED, LAYOUTS, encode, load_float32_bits

SOURCES = ("float32", "bfloat16", "float16")
FORMATS = ("float8_e4m3fn", "float8_e4m3fnuz")
#: what both engines divide by: the OCP maximum, and half of it on FNUZ
BOUNDS = {"float8_e4m3fn": 448.0, "float8_e4m3fnuz": 224.0}
#: elements of one tile: rows times padded columns
TILE = 65536 if INTERPRETED else 8192


@triton.jit
def quantize_rows(
    x, codes, scales, rows, columns, row_stride, bound, minimum,
    RECIPROCAL: tl.constexpr, NATIVE: tl.constexpr, TO: tl.constexpr, BF16: tl.constexpr,
    MANTISSA: tl.constexpr, BIAS: tl.constexpr, TOP: tl.constexpr, SIGN: tl.constexpr, NAN: tl.constexpr,
    NEGATIVE_ZERO: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """ROWS rows a program, each whole. ``minimum`` is the floor under the scale, 0 for none."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, COLUMNS)[None, :]
    mask = (row < rows) & (column < columns)
    bits = load_float32_bits(x, row * row_stride + column, mask, BF16)
    value = bits.to(tl.float32, bitcast=True)
    # Integer maximum over magnitudes: NaN is left out by value, not by what a float maximum does with it.
    magnitude = bits & 0x7FFFFFFF
    amax = tl.max(tl.where(magnitude > 0x7F800000, 0, magnitude), 1)[:, None].to(tl.float32, bitcast=True)
    scale = tl.maximum(tl.div_rn(amax, tl.zeros_like(amax) + bound), minimum)
    if RECIPROCAL:
        scaled = value * tl.div_rn(tl.zeros_like(scale) + 1.0, scale)
    else:
        scaled = tl.div_rn(value, tl.broadcast_to(scale, (ROWS, COLUMNS)))
    # fmin first: the engines' clamp turns NaN into +bound.
    scaled = tl.where(scaled != scaled, bound, scaled)
    clamped = tl.maximum(tl.minimum(scaled, bound), -bound)
    if NATIVE:
        code = clamped.to(TO).to(tl.uint8, bitcast=True)
    else:
        pattern = clamped.to(tl.int32, bitcast=True)
        code = encode(pattern, MANTISSA, BIAS, TOP, SIGN, TOP, TOP, NAN, NAN, NEGATIVE_ZERO).to(tl.uint8)
    tl.store(codes + row * columns + column, code, mask)
    tl.store(scales + row, scale, row < rows)


def launch(x, format, reciprocal, minimum, native=False):
    """``codes`` [rows, columns] uint8 and ``scale`` [rows, 1] float32 of a matrix, strided or not."""
    rows, columns = x.shape
    codes = torch.empty((rows, columns), dtype=torch.uint8, device=x.device)
    scales = torch.empty((rows, 1), dtype=torch.float32, device=x.device)
    if x.numel() == 0:
        return codes, scales
    x = x if x.stride(1) == 1 else x.contiguous()
    layout, bf16 = LAYOUTS[format], x.dtype == torch.bfloat16
    padded = triton.next_power_of_2(columns)
    tile_rows = max(1, TILE // padded) if INTERPRETED else 1
    quantize_rows[(triton.cdiv(rows, tile_rows),)](
        x.view(torch.int16) if bf16 and not native else x, codes, scales, rows, columns, x.stride(0),
        BOUNDS[format], minimum,
        reciprocal, native, TRITON_TYPES[format], bf16 and not native,
        layout.mantissa, layout.bias, layout.top, layout.sign, layout.nan, layout.negative_zero,
        triton.next_power_of_2(tile_rows), padded,
    )  # fmt: skip
    return codes, scales


def _vllm_minimum(format):
    return 1.0 / (BOUNDS[format] * 512.0)


@kernel(Quantize("vllm.fp8_per_token_dynamic"), FORMATS, SOURCES, owner="narrowgauge", conversion="soft")
def triton_soft_vllm_per_token(x, format):
    return launch(x, format, reciprocal=False, minimum=_vllm_minimum(format))


@kernel(Quantize("sglang.fp8_per_token_cta"), FORMATS, SOURCES, owner="narrowgauge", conversion="soft")
def triton_soft_sglang_per_token(x, format):
    return launch(x, format, reciprocal=True, minimum=0.0)


@kernel(Quantize("vllm.fp8_per_token_dynamic"), FORMATS, SOURCES, owner="narrowgauge", conversion="native")
def triton_native_vllm_per_token(x, format):
    return launch(x, format, reciprocal=False, minimum=_vllm_minimum(format), native=True)


@kernel(Quantize("sglang.fp8_per_token_cta"), FORMATS, SOURCES, owner="narrowgauge", conversion="native")
def triton_native_sglang_per_token(x, format):
    return launch(x, format, reciprocal=True, minimum=0.0, native=True)
