"""Readers of what quantizers wrote: codes and their scales become values of a wide format, rounded once."""

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl

from narrowgauge import Dequantize, kernel
from narrowgauge.kernels_under_test.claiming import ALL_SOURCES, BFLOAT16, E4M3, E5M2, FLOAT16, FNUZ, FP4
from narrowgauge.kernels_under_test.triton_codec import decode, decode_e8m0, decode_integer, store_float32_bits
from narrowgauge.kernels_under_test.triton_steps import bits, over, real
from narrowgauge.kernels_under_test.triton_tiling import by_strides, part_of, programs_of


@triton.jit
def from_e4m3fn(code):
    # narrowgauge: ignore[nan_code] the function's name has the format
    return real(decode(code, 3, 7, 0x7E, 0x80, -1, 0x7F, 0.001953125))


@triton.jit
def from_e4m3fnuz(code):
    return real(decode(code, 3, 8, 0x7F, 0x80, -1, 0x80, 0.0009765625))


@triton.jit
def from_e5m2(code):
    # narrowgauge: ignore[nan_code] the function's name has the format
    return real(decode(code, 2, 15, 0x7B, 0x80, 0x7C, 0x7E, 0.0000152587890625))


@triton.jit
def from_e2m3(code):
    return real(decode(code, 3, 1, 0x1F, 0x20, -1, -1, 0.125))


@triton.jit
def from_e3m2(code):
    return real(decode(code, 2, 3, 0x1F, 0x20, -1, -1, 0.0625))


@triton.jit
def from_e2m1(code):
    return real(decode(code, 1, 1, 7, 8, -1, -1, 0.5))


@triton.jit
def from_int8(code):
    return real(decode_integer(code, 0x80))


@triton.jit
def from_int4(code):
    return real(decode_integer(code, 8))


@triton.jit
def from_e8m0(code):
    return real(decode_e8m0(code))


@triton.jit
def from_float32(value):
    return value


READ = {
    "float8_e4m3fn": from_e4m3fn,
    "float8_e4m3fnuz": from_e4m3fnuz,
    "float8_e5m2": from_e5m2,
    "float6_e2m3fn": from_e2m3,
    "float6_e3m2fn": from_e3m2,
    "float4_e2m1fn": from_e2m1,
    "int8": from_int8,
    "int4": from_int4,
}


@triton.jit
def one_per_byte(codes, row, column, row_stride, column_stride, mask):
    return tl.load(codes + row * row_stride + column * column_stride, mask, other=0)


@triton.jit(
    do_not_specialize=[
        "rows", "columns", "row_stride", "block_rows", "block_columns",
        "scale_row_stride", "scale_column_stride", "beside_row_stride",
    ]
)  # fmt: skip
def dequantize_blocks(
    codes, out, scales, beside, rows, columns, row_stride, column_stride, block_rows, block_columns,
    scale_row_stride, scale_column_stride, beside_row_stride,
    LOAD: tl.constexpr, READ: tl.constexpr, PLACE: tl.constexpr, SCALE: tl.constexpr, VALUE: tl.constexpr,
    TO: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """ROWS by COLUMNS codes a program. ``beside``: another number of the tensor, or of each row, if VALUE uses one."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    mask = (row < rows) & (column < columns)
    code = READ(LOAD(codes, row, column, row_stride, column_stride, mask).to(tl.int32))
    place = PLACE(row // block_rows, column // block_columns, scale_row_stride, scale_column_stride)
    if scales.dtype.element_ty == tl.float32:
        scale = SCALE(tl.load(scales + place, mask, other=0.0))
    else:
        scale = SCALE(tl.load(scales + place, mask, other=0).to(tl.int32))
    if beside is None:
        value = VALUE(code, scale)
    else:
        value = VALUE(code, scale, tl.load(beside + row * beside_row_stride, row < rows, other=1))
    store_float32_bits(out, row * columns + column, bits(value), mask, TO)


@triton.jit
def times(code, scale):
    return code * scale


@triton.jit
def sixty_fourths(code, scale):
    return code * 0.015625 * scale


@triton.jit
def without_zero(code, scale, zero):
    return (code - zero.to(tl.float32)) * scale


@triton.jit
def over_divisor(code, scale, divisor):
    return code * over(scale, divisor)


@triton.jit
def times_multiplier(code, scale, multiplier):
    return code * (scale * multiplier)


def _strides(value):
    return [0 if n == 1 else s for n, s in zip(value.shape, value.stride(), strict=True)]


def read(
    x, format, source, scale, block_rows, block_columns, *, of_scale=from_float32, value=times, beside=None,
    shape=None, load=one_per_byte, strides=None, place=by_strides,
):  # fmt: skip
    """Values [rows, columns] as patterns of float32, bfloat16 or float16. 0 block rows or columns: all of them.

    ``load`` takes codes from a memory image x of a matrix of that ``shape``; ``place`` and ``strides`` say where a
    scale stands.
    """
    rows, columns = shape or x.shape
    to = ALL_SOURCES.index(format)
    out = torch.empty((rows, columns), dtype=torch.int32 if to == 0 else torch.int16, device=x.device)
    if out.numel():
        part = part_of(rows, columns)
        dequantize_blocks[programs_of(rows, columns, part)](
            x if x.dtype == torch.int32 else x.view(torch.uint8), out,
            scale if scale.dtype == torch.float32 else scale.view(torch.uint8), beside,
            rows, columns, *x.stride(), block_rows or rows, block_columns or columns, *(strides or _strides(scale)),
            0 if beside is None else _strides(beside)[0],
            load, READ[source], place, of_scale, value, to, *part,
        )  # fmt: skip
    return out


by_32 = partial(read, block_rows=1, block_columns=32, of_scale=from_e8m0)
by_16 = partial(read, block_rows=1, block_columns=16, of_scale=from_e4m3fn)


def soft(recipe, sources=E4M3, formats=BFLOAT16):
    return kernel(Dequantize(recipe), formats, sources, owner="narrowgauge", conversion="soft")


# --- float32 scales --------------------------------------------------------------------------------------------------


@soft("vllm.fp8_static_tensor", (*E4M3, *FNUZ))
def triton_soft_read_tensor(x, format, source, scale):
    return read(x, format, source, scale, 0, 0)


@soft("vllm.fp8_per_token_dynamic", (*E4M3, *FNUZ), ALL_SOURCES)
def triton_soft_read_token(x, format, source, scale):
    return read(x, format, source, scale, 1, 0)


@soft("vllm.fp8_static_channel")
def triton_soft_read_channel(x, format, source, scale):
    return read(x, format, source, scale, 0, 1)


@soft("vllm.fp8_group", E4M3, (*BFLOAT16, *FLOAT16))
def triton_soft_read_group(x, format, source, scale):
    return read(x, format, source, scale, 1, 128)


@soft("vllm.fp8_block")
def triton_soft_read_block(x, format, source, scale):
    return read(x, format, source, scale, 128, 128)


@soft("vllm.int8_per_token_dynamic", ("int8",))
def triton_soft_read_int8_token(x, format, source, scale):
    return read(x, format, source, scale, 1, 0)


@soft("vllm.int8_group", ("int8",))
def triton_soft_read_int8_group(x, format, source, scale):
    return read(x, format, source, scale, 1, 128)


@soft("vllm.int8_per_token_dynamic_azp", ("int8",))
def triton_soft_read_int8_asymmetric(x, format, source, scale, zero_point):
    return read(x, format, source, scale, 1, 0, value=without_zero, beside=zero_point)


@soft("compressed_tensors.int4_group", ("int4",), (*BFLOAT16, *FLOAT16))
def triton_soft_read_int4_group(x, format, source, scale):
    return read(x, format, source, scale, 1, 128)


@soft("compressed_tensors.int4_channel", ("int4",))
def triton_soft_read_int4_channel(x, format, source, scale):
    return read(x, format, source, scale, 1, 0)


# --- scales of 8 bits ------------------------------------------------------------------------------------------------


@soft("ocp.mxfp8_e4m3", E4M3, ALL_SOURCES[:2])
def triton_soft_read_mxfp8_e4m3(x, format, source, scale):
    return by_32(x, format, source, scale)


@soft("ocp.mxfp8_e5m2", E5M2)
def triton_soft_read_mxfp8_e5m2(x, format, source, scale):
    return by_32(x, format, source, scale)


@soft("ocp.mxfp6_e2m3", ("float6_e2m3fn",))
def triton_soft_read_mxfp6_e2m3(x, format, source, scale):
    return by_32(x, format, source, scale)


@soft("ocp.mxfp6_e3m2", ("float6_e3m2fn",))
def triton_soft_read_mxfp6_e3m2(x, format, source, scale):
    return by_32(x, format, source, scale)


@soft("ocp.mxfp4", FP4, ALL_SOURCES)
def triton_soft_read_mxfp4(x, format, source, scale):
    return by_32(x, format, source, scale)


@soft("ocp.mxint8", ("int8",))
def triton_soft_read_mxint8(x, format, source, scale):
    return by_32(x, format, source, scale, value=sixty_fourths)


@soft("nvidia.nvfp4_divisor", FP4, ALL_SOURCES[:2])
def triton_soft_read_nvfp4_divisor(x, format, source, scale, global_scale):
    return by_16(x, format, source, scale, value=over_divisor, beside=global_scale)


@soft("nvidia.nvfp4_multiplier", FP4)
def triton_soft_read_nvfp4_multiplier(x, format, source, scale, global_scale):
    return by_16(x, format, source, scale, value=times_multiplier, beside=global_scale)


@soft("vllm.nvfp4", FP4)
def triton_soft_read_vllm_nvfp4(x, format, source, scale, global_scale):
    return by_16(x, format, source, scale, value=over_divisor, beside=global_scale)
