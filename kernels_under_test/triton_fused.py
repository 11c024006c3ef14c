"""RMSNorm, or SiLU times a second half, and what comes of it quantized in the same kernel."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from narrowgauge import Then, kernel
from narrowgauge.kernels_under_test.claiming import E4M3, TWO_SOURCES
from narrowgauge.kernels_under_test.triton_codec import load_float32_bits
from narrowgauge.kernels_under_test.triton_quantize import times_inverse, vllm_token
from narrowgauge.kernels_under_test.triton_quantize_given import vllm
from narrowgauge.kernels_under_test.triton_quantize_groups import group
from narrowgauge.kernels_under_test.triton_quantize_mx import ocp
from narrowgauge.kernels_under_test.triton_steps import bits, over, real, to_bfloat16
from narrowgauge.kernels_under_test.triton_targets import BOUNDS, SOFT
from narrowgauge.kernels_under_test.triton_tiling import amax_of, elements_of, groups_of


@triton.jit
def normal_of(x, columns):
    """x / sqrt(mean(x²) + ε) of whole rows, padded with zeros."""
    mean = over(tl.sum(x * x, 1)[:, None], columns.to(tl.float32))
    return x * over(1.0, tl.sqrt_rn(mean + 1e-6))


@triton.jit
def rms_norm(x, weight, columns, ROUND: tl.constexpr):
    return normal_of(x, columns) * weight


@triton.jit
def rms_norm_twice_rounded(x, weight, columns, ROUND: tl.constexpr):
    return ROUND(normal_of(x, columns)) * weight


@triton.jit
def silu_mul(gate, up, columns, ROUND: tl.constexpr):
    return over(gate, 1.0 + tl.exp(-gate)) * up


@triton.jit
def silu_mul_twice_rounded(gate, up, columns, ROUND: tl.constexpr):
    return ROUND(over(gate, 1.0 + tl.exp(-gate))) * up


@triton.jit
def to_float32(x):
    return x


@triton.jit(do_not_specialize=["rows", "columns", "row_stride", "beside_row_stride", "per_row"])
def fused_rows(
    x, beside, codes, scales, found, rows, columns, row_stride, column_stride, beside_row_stride,
    beside_column_stride, per_row, bound,
    FIRST: tl.constexpr, ROUND: tl.constexpr, RECIPE: tl.constexpr, CODE: tl.constexpr, NAN: tl.constexpr,
    BF16: tl.constexpr, ROWS: tl.constexpr, GROUPS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """ROWS rows a program, each whole: GROUPS groups of WIDTH. ``beside``: weights, or the second half of x.

    ``found``: the scale of the tensor, if it is given.
    """
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, GROUPS * WIDTH)[None, :]
    mask = (row < rows) & (column < columns)
    one = real(load_float32_bits(x, row * row_stride + column * column_stride, mask, BF16))
    place = row * beside_row_stride + column * beside_column_stride
    other = real(load_float32_bits(beside, place, mask, BF16))
    value = tl.reshape(ROUND(FIRST(one, other, columns, ROUND)), (ROWS, GROUPS, WIDTH))
    limit = tl.full((1, 1, 1), bound, tl.float32)
    if found is None:
        scale, value = RECIPE(value, real(amax_of(bits(value), value == value, 2, NAN)[:, :, None]), limit)
        number = tl.arange(0, GROUPS)[None, :]
        place = row * per_row + number
        kept = tl.reshape(scale, (ROWS, GROUPS)).to(scales.dtype.element_ty)
        tl.store(scales + place, kept, (row < rows) & (number < per_row))
    else:
        _, value = RECIPE(value, tl.load(found), limit)
    code = tl.reshape(CODE(value), (ROWS, GROUPS * WIDTH))
    tl.store(codes + row * columns + column, code.to(tl.uint8), mask)


def fused(x, beside, columns, first, recipe, format, size=0, *, nan="drop", stored=torch.float32, found=None):
    """``codes`` [rows, columns], and the scale of each ``size`` columns (0: the row) unless it is given."""
    rows, size = x.shape[0], size or columns
    codes = torch.empty((rows, columns), dtype=torch.uint8, device=x.device)
    per_row = triton.cdiv(columns, size)
    scales = torch.empty((rows, per_row), dtype=stored, device=x.device) if found is None else None
    width = triton.next_power_of_2(size)
    groups = triton.next_power_of_2(per_row)
    tile, _ = groups_of(rows, groups * width)
    if rows:
        (loaded, bf16), (other, _) = elements_of(x), elements_of(beside)
        fused_rows[(triton.cdiv(rows, tile),)](
            loaded, other, codes, scales, found, rows, columns, *x.stride(), *beside.stride(), per_row, BOUNDS[format],
            first, to_bfloat16 if bf16 else to_float32, recipe, SOFT[format], nan, bf16, tile, groups, width,
        )  # fmt: skip
    return codes if scales is None else (codes, scales)


def normed(x, weight, *arguments, **more):
    return fused(x, weight.expand(x.shape), x.shape[1], *arguments, **more)


def gated(x, *arguments, **more):
    """x is [rows, 2 · columns], the gate in its first half."""
    columns = x.shape[1] // 2
    return fused(x, x[:, columns:], columns, *arguments, **more)


def soft(first, recipe, sources=TWO_SOURCES):
    return kernel(Then(recipe, first=first), E4M3, sources, owner="narrowgauge", conversion="soft")


@soft("rms_norm", "vllm.fp8_per_token_dynamic")
def triton_soft_rms_norm_vllm_token(x, format, weight):
    return normed(x, weight, rms_norm, vllm_token, format)


@soft("rms_norm_twice_rounded", "vllm.fp8_per_token_dynamic")
def triton_soft_rms_norm_twice_vllm_token(x, format, weight):
    return normed(x, weight, rms_norm_twice_rounded, vllm_token, format)


@soft("rms_norm_twice_rounded", "vllm.fp8_static_tensor")
def triton_soft_rms_norm_twice_vllm_static(x, format, weight, scale):
    return normed(x, weight, rms_norm_twice_rounded, vllm, format, found=scale)


@soft("rms_norm", "vllm.fp8_group")
def triton_soft_rms_norm_vllm_group(x, format, weight):
    return normed(x, weight, rms_norm, group, format, 128)


@soft("silu_mul", "sglang.fp8_per_token_cta")
def triton_soft_silu_mul_sglang_token(x, format):
    return gated(x, silu_mul, times_inverse, format)


@soft("silu_mul_twice_rounded", "vllm.fp8_static_tensor")
def triton_soft_silu_mul_twice_vllm_static(x, format, scale):
    return gated(x, silu_mul_twice_rounded, vllm, format, found=scale)


@soft("silu_mul", "vllm.fp8_group")
def triton_soft_silu_mul_vllm_group(x, format):
    return gated(x, silu_mul, group, format, 128)


@soft("silu_mul", "ocp.mxfp8_e4m3")
def triton_soft_silu_mul_mxfp8(x, format):
    return gated(x, silu_mul, ocp, format, 32, nan="keep", stored=torch.uint8)
