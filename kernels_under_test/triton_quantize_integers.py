"""Quantizers to int8 and int4: symmetric, and with a zero point."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from narrowgauge.kernels_under_test.claiming import TWO_SOURCES, soft
from narrowgauge.kernels_under_test.triton_codec import load_float32_bits
from narrowgauge.kernels_under_test.triton_steps import nearest_whole, over, real, to_bfloat16, zero_to
from narrowgauge.kernels_under_test.triton_targets import to_int8_away, to_int8_cut
from narrowgauge.kernels_under_test.triton_tiling import (
    by_groups,
    by_tensor,
    elements_of,
    groups_of,
)

INT8, INT4 = ("int8",), ("int4",)
#: half of the range of codes, which stands for amax
HALF_RANGE = 127.5


@triton.jit
def vllm_token(x, amax, bound):
    return over(amax, bound), x * tl.where(amax == 0.0, 0.0, over(bound, amax))


@triton.jit
def sglang_token(x, amax, bound):
    lowest = tl.maximum(amax, 1e-10)
    return over(lowest, bound), x * over(bound, lowest)


@triton.jit
def aiter_token(x, amax, bound):
    scale = over(amax, bound)
    return scale, x * over(1.0, scale)


@triton.jit
def group(x, amax, bound):
    """Only a NaN reaches -128."""
    scale = over(tl.maximum(amax, 1e-10), bound)
    return scale, tl.minimum(tl.maximum(x * over(1.0, scale), -128.0), bound)


@triton.jit
def group_over(x, amax, bound):
    scale = over(tl.maximum(amax, 1e-10), bound)
    return scale, tl.minimum(tl.maximum(over(x, scale), -128.0), bound)


@triton.jit
def compressed_tensors(x, amax, bound):
    scale = zero_to(over(amax, bound), 1.1920928955078125e-07)
    return scale, over(x, scale)


@triton.jit
def compressed_tensors_bf16(x, amax, bound):
    """Each step is rounded to bfloat16, as torch does with a bfloat16 tensor."""
    scale = zero_to(to_bfloat16(over(amax, bound)), 0.0078125)
    return scale, to_bfloat16(over(x, scale))


@soft("vllm.int8_per_token_dynamic", INT8, TWO_SOURCES)
def triton_soft_vllm_int8_per_token(x, format):
    return by_groups(x, vllm_token, format)


@soft("sglang.int8_per_token", INT8)
def triton_soft_sglang_int8_per_token(x, format):
    return by_groups(x, sglang_token, format, code=to_int8_away)


@soft("aiter.int8_triton", INT8)
def triton_soft_aiter_int8(x, format):
    return by_groups(x, aiter_token, format, nan="all", code=to_int8_cut)


@soft("vllm.int8_group", INT8, TWO_SOURCES)
def triton_soft_vllm_int8_group(x, format):
    return by_groups(x, group, format, 128, code=to_int8_cut)


@soft("vllm.int8_group_triton", INT8)
def triton_soft_vllm_int8_group_triton(x, format):
    return by_groups(x, group_over, format, 128, code=to_int8_cut)


@soft("compressed_tensors.int8_channel", INT8)
def triton_soft_compressed_tensors_int8_channel(x, format):
    return by_groups(x, compressed_tensors, format, nan="keep", bound=HALF_RANGE)


@soft("compressed_tensors.int8_tensor", INT8)
def triton_soft_compressed_tensors_int8_tensor(x, format):
    return by_tensor(x, compressed_tensors, format, nan="keep", bound=HALF_RANGE)


@soft("compressed_tensors.int4_group", INT4, TWO_SOURCES)
def triton_soft_compressed_tensors_int4_group(x, format):
    recipe = compressed_tensors_bf16 if x.dtype == torch.bfloat16 else compressed_tensors
    return by_groups(x, recipe, format, 128, nan="keep")


@soft("compressed_tensors.int4_channel", INT4)
def triton_soft_compressed_tensors_int4_channel(x, format):
    return by_groups(x, compressed_tensors, format, nan="keep")


# --- with a zero point -----------------------------------------------------------------------------------------------


@triton.jit
def with_zero(x, encode, zero):
    """Codes: x times encode as a whole number, held to int32 where infinite, 0 for NaN; and zero (int32) added."""
    whole = nearest_whole(x * encode)
    held = tl.minimum(tl.maximum(tl.where(whole != whole, 0.0, whole), -8589934592.0), 8589934592.0).to(tl.int64)
    held = tl.where(whole == float("inf"), 2147483647, tl.where(whole == float("-inf"), -2147483648, held))
    return tl.minimum(tl.maximum(held + zero, -128), 127) & 0xFF


@triton.jit(do_not_specialize=["rows", "columns", "row_stride"])
def quantize_asymmetric(
    x, codes, scales, zeros, rows, columns, row_stride, column_stride,
    BF16: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """ROWS rows a program, each whole. NaN elements count neither as smallest nor as largest."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, COLUMNS)[None, :]
    mask = (row < rows) & (column < columns)
    value = real(load_float32_bits(x, row * row_stride + column * column_stride, mask, BF16))
    counts = mask & (value == value)
    largest = tl.max(tl.where(counts, value, float("-inf")), 1)[:, None]
    smallest = tl.min(tl.where(counts, value, float("inf")), 1)[:, None]
    none = smallest > largest
    largest, smallest = tl.where(none, 0.0, largest), tl.where(none, 0.0, smallest)
    scale = over(largest - smallest, 255.0)
    zero = nearest_whole(-128.0 - over(smallest, scale))
    held = tl.where(zero == zero, tl.minimum(tl.maximum(zero, -2147483648.0), 2147483520.0), 0.0).to(tl.int32)
    held = tl.where(zero >= 2147483648.0, 2147483647, held)
    tl.store(codes + row * columns + column, with_zero(value, over(1.0, scale), held).to(tl.uint8), mask)
    tl.store(scales + row, scale, row < rows)
    tl.store(zeros + row, held, row < rows)


@soft("vllm.int8_per_token_dynamic_azp", INT8, TWO_SOURCES)
def triton_soft_vllm_int8_asymmetric(x, format):
    rows, columns = x.shape
    codes = torch.empty((rows, columns), dtype=torch.uint8, device=x.device)
    scales = torch.empty((rows, 1), dtype=torch.float32, device=x.device)
    zeros = torch.empty((rows, 1), dtype=torch.int32, device=x.device)
    if rows:
        tile, width = groups_of(rows, columns)
        loaded, bf16 = elements_of(x)
        quantize_asymmetric[(triton.cdiv(rows, tile),)](
            loaded, codes, scales, zeros, rows, columns, *x.stride(), bf16, tile, width
        )
    return codes, scales, zeros
