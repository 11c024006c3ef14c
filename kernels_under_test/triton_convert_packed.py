"""Converters that move codes: four-bit weights between packings, scales into tiles and back, MXFP4 of gpt-oss."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from narrowgauge import Convert, kernel
from narrowgauge.kernels_under_test.claiming import BFLOAT16, E4M3, FP4
from narrowgauge.kernels_under_test.convert_checks import check_codes
from narrowgauge.kernels_under_test.triton_codec import block_of, encode, load_float32_bits
from narrowgauge.kernels_under_test.triton_dequantize import by_32
from narrowgauge.kernels_under_test.triton_packed import as_gptq, awq, in_tiles, nibble, packed
from narrowgauge.kernels_under_test.triton_tiling import elements_of, groups_of

UINT4, INT4, E8M0 = ("uint4",), ("int4",), ("float8_e8m0fnu",)


def converter(conversion, formats=UINT4, sources=UINT4):
    return kernel(Convert(conversion), formats, sources, owner="narrowgauge", conversion="soft")


# --- integer weights -------------------------------------------------------------------------------------------------


@triton.jit
def in_row(words, row, column, row_stride, column_stride, mask):
    """Of words [K, N / 8] in plain order: a zero point of column ``row`` and group ``column``."""
    word = tl.load(words + column * row_stride + row // 8 * column_stride, mask, other=0)
    return word >> (row % 8 * 4).to(tl.int32) & 0xF


@triton.jit
def along_columns(words, row, column, row_stride, column_stride, mask):
    """Of words [rows, columns / 8]."""
    word = tl.load(words + row * row_stride + column // 8 * column_stride, mask, other=0)
    return word >> (column % 8 * 4).to(tl.int32) & 0xF


@triton.jit
def unpack_words(words, out, rows, columns, row_stride, column_stride, add, LOAD: tl.constexpr, BLOCK: tl.constexpr):
    """Codes [rows, columns], each plus a number, modulo 16."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = place < rows * columns
    code = LOAD(words, place // columns, place % columns, row_stride, column_stride, mask)
    tl.store(out + place, ((code + add) & 0xF).to(tl.uint8), mask)


def unpacked(words, rows, columns, load, add=0):
    out = torch.empty((rows, columns), dtype=torch.uint8, device=words.device)
    if out.numel():
        block = block_of(out.numel())
        unpack_words[(triton.cdiv(out.numel(), block),)](words, out, rows, columns, *words.stride(), add, load, block)
    return out


def in_rows(zeros):
    """Zero points [N, G] as words [G, N / 8] in plain order."""
    columns, groups = zeros.shape
    image = torch.empty((groups, columns // 8), dtype=torch.int32, device=zeros.device)
    return packed(zeros, image, 1, 8 * groups, groups, 8)


def down(zeros):
    """Zero points [N, G] as words [N / 8, G]."""
    columns, groups = zeros.shape
    image = torch.empty((columns // 8, groups), dtype=torch.int32, device=zeros.device)
    return packed(zeros, image, 8 * groups, 1, groups, 8)


def check_weight(x, scale, zero_point, rows, columns):
    """K a whole number of groups of 128; a scale and a zero point for each group of each column."""
    check_codes(x)
    groups = rows // 128
    if rows % 128 or columns % 8:
        raise ValueError(f"a weight is [K, N] {[rows, columns]}; expected multiples of 128 and of 8")
    if tuple(scale.shape) != (groups, columns):
        raise ValueError(f"scale is {list(scale.shape)}; expected {[groups, columns]}, one for each group")
    if zero_point.dtype != torch.int32 or zero_point.numel() * 8 != groups * columns:
        raise ValueError(
            f"zero_point is {zero_point.dtype} {list(zero_point.shape)}; expected words of {groups} groups"
        )
    return groups


def of_awq(x, scale, zero_point, add):
    """Codes [N, K] and zero points [N, G], and where each row belongs."""
    rows, columns = x.shape[0], x.shape[1] * 8
    groups = check_weight(x, scale, zero_point, rows, columns)
    return unpacked(x, columns, rows, awq), unpacked(zero_point, columns, groups, awq, add)


def group_index(rows, device):
    return (torch.arange(rows, device=device) // 128).to(torch.int32)[:, None]


@converter("awq_to_gptq")
def triton_awq_to_gptq(x, format, scale, zero_point):
    codes, zeros = of_awq(x, scale, zero_point, -1)
    index = group_index(x.shape[0], x.device)
    return {"codes": as_gptq(codes), "scale": scale, "zero_point": in_rows(zeros), "g_idx": index}


@converter("awq_to_gptq_v2")
def triton_awq_to_gptq_v2(x, format, scale, zero_point):
    codes, zeros = of_awq(x, scale, zero_point, 0)
    index = group_index(x.shape[0], x.device)
    return {"codes": as_gptq(codes), "scale": scale, "zero_point": in_rows(zeros), "g_idx": index}


@converter("vllm.awq_to_standard")
def triton_awq_to_standard(x, format, scale, zero_point):
    codes, zeros = of_awq(x, scale, zero_point, 0)
    return {"codes": as_gptq(codes), "scale": scale, "zero_point": down(zeros)}


def other_zeros(x, scale, zero_point, add):
    rows, columns = x.shape[0] * 8, x.shape[1]
    groups = check_weight(x, scale, zero_point, rows, columns)
    zeros = in_rows(unpacked(zero_point, columns, groups, in_row, add))
    return {"codes": x, "scale": scale, "zero_point": zeros}


@converter("gptq_v1_to_v2")
def triton_gptq_v1_to_v2(x, format, scale, zero_point):
    return other_zeros(x, scale, zero_point, 1)


@converter("gptq_v2_to_v1")
def triton_gptq_v2_to_v1(x, format, scale, zero_point):
    return other_zeros(x, scale, zero_point, -1)


@converter("compressed_tensors.int4_packed", UINT4, INT4)
def triton_int4_packed(x, format):
    check_codes(x)
    rows, columns = x.shape
    offset = torch.nn.functional.pad(x.view(torch.uint8) ^ 8, (0, -columns % 8))
    image = torch.empty((rows, offset.shape[1] // 8), dtype=torch.int32, device=x.device)
    return {"codes": packed(offset, image, offset.shape[1], 8, 1, 8)}


@converter("compressed_tensors.int4_unpacked", INT4, UINT4)
def triton_int4_unpacked(x, format, shape):
    return {"codes": unpacked(x, shape[0], shape[1], along_columns, 8)}


# --- scales ----------------------------------------------------------------------------------------------------------


@triton.jit
def in_tiles_of_8(row, column, row_stride, column_stride):
    """Tiles of 8 rows and 4 columns. ``row_stride``: tiles in a row."""
    return (row // 8 * row_stride + column // 4) * 32 + row % 8 * 4 + column % 4


@triton.jit
def for_cdna4(row, column, row_stride, column_stride):
    """32 rows and 8 columns: four columns apart stand together, then rows, then pairs of columns, then halves."""
    tile = row // 32 * row_stride + column // 8
    within = column % 4 * 64 + row % 16 * 4 + column % 8 // 4 * 2 + row % 32 // 16
    return tile * 256 + within


@triton.jit
def move_scales(x, out, rows, columns, tiles, BACK: tl.constexpr, PLACE: tl.constexpr, BLOCK: tl.constexpr):
    """Bytes of a matrix to their places in an image, or back."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    place = PLACE(at // columns, at % columns, tiles, 1)
    mask = at < rows * columns
    if BACK:
        tl.store(out + at, tl.load(x + place, mask, other=0), mask)
    else:
        tl.store(out + place, tl.load(x + at, mask, other=0), mask)


#: where a scale stands, and rows and columns of a tile
TILES = {
    "scales_128x4": (in_tiles, 128, 4),
    "scales_8x4": (in_tiles_of_8, 8, 4),
    "cdna4_mx_scales": (for_cdna4, 32, 8),
}


def moved(x, layout, shape, back):
    place, high, wide = TILES[layout]
    down_, across = triton.cdiv(shape[0], high), triton.cdiv(shape[1], wide)
    size = shape if back else (down_ * across * high * wide,)
    out = torch.zeros(size, dtype=torch.uint8, device=x.device)
    count = shape[0] * shape[1]
    if count:
        block = block_of(count)
        move_scales[(triton.cdiv(count, block),)](x.view(torch.uint8), out, *shape, across, back, place, block)
    return {"codes": out}


@converter("plain_to_scales_128x4", E4M3, E4M3)
def triton_to_128x4(x, format):
    return moved(x, "scales_128x4", x.shape, False)


@converter("plain_to_scales_128x4", E8M0, E8M0)
def triton_to_128x4_e8m0(x, format):
    return moved(x, "scales_128x4", x.shape, False)


@converter("scales_128x4_to_plain", E4M3, E4M3)
def triton_from_128x4(x, format, shape):
    return moved(x, "scales_128x4", shape, True)


@converter("scales_128x4_to_plain", E8M0, E8M0)
def triton_from_128x4_e8m0(x, format, shape):
    return moved(x, "scales_128x4", shape, True)


@converter("plain_to_scales_8x4", E4M3, E4M3)
def triton_to_8x4(x, format):
    return moved(x, "scales_8x4", x.shape, False)


@converter("plain_to_scales_8x4", E8M0, E8M0)
def triton_to_8x4_e8m0(x, format):
    return moved(x, "scales_8x4", x.shape, False)


@converter("scales_8x4_to_plain", E4M3, E4M3)
def triton_from_8x4(x, format, shape):
    return moved(x, "scales_8x4", shape, True)


@converter("scales_8x4_to_plain", E8M0, E8M0)
def triton_from_8x4_e8m0(x, format, shape):
    return moved(x, "scales_8x4", shape, True)


@converter("plain_to_cdna4_mx_scales", E8M0, E8M0)
def triton_to_cdna4(x, format):
    return moved(x, "cdna4_mx_scales", x.shape, False)


@converter("cdna4_mx_scales_to_plain", E8M0, E8M0)
def triton_from_cdna4(x, format, shape):
    return moved(x, "cdna4_mx_scales", shape, True)


# --- gpt-oss, and casts that say what they lose ----------------------------------------------------------------------


@converter("gpt_oss_to_bfloat16", BFLOAT16, FP4)
def triton_gpt_oss_to_bfloat16(x, format, source, scale, shape):
    return {"codes": by_32(x, format, source, scale, shape=shape, load=nibble).T.contiguous()}


@triton.jit(do_not_specialize=["rows", "columns"])
def cast_and_count(
    x, codes, over, first_over, flushed, first_flushed, rows, columns, BF16: tl.constexpr,
    MANTISSA: tl.constexpr, BIAS: tl.constexpr, INFINITY: tl.constexpr, QUIET: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """ROWS rows a program: codes of 16 bits, and what became infinite or 0 in each row."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    mask = (row < rows) & (column < columns)
    bits = load_float32_bits(x, row * columns + column, mask, BF16)
    code = encode(
        bits, MANTISSA, BIAS, INFINITY - 1, 0x8000, INFINITY, INFINITY, INFINITY | QUIET, INFINITY | QUIET, True
    )
    tl.store(codes + row * columns + column, code.to(tl.int16), mask)
    magnitude = bits & 0x7FFFFFFF
    lost = mask & (magnitude < 0x7F800000) & ((code & 0x7FFF) == INFINITY)
    gone = mask & (magnitude != 0) & ((code & 0x7FFF) == 0)
    place = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    some = place < rows
    tl.store(over + place, tl.sum(lost.to(tl.int32), 1), some)
    tl.store(flushed + place, tl.sum(gone.to(tl.int32), 1), some)
    for_over = tl.min(tl.where(lost, column, 0x7FFFFFFF), 1)
    for_gone = tl.min(tl.where(gone, column, 0x7FFFFFFF), 1)
    tl.store(first_over + place, tl.where(for_over == 0x7FFFFFFF, -1, for_over), some)
    tl.store(first_flushed + place, tl.where(for_gone == 0x7FFFFFFF, -1, for_gone), some)


#: mantissa, bias, infinity, quiet bit
_TO = {"float16": (10, 15, 0x7C00, 0x200), "bfloat16": (7, 127, 0x7F80, 0x40)}
COUNTS = ("overflowed", "first_overflowed", "flushed", "first_flushed")


def counted(x, format):
    check_codes(x)
    rows, columns = x.shape
    codes = torch.empty((rows, columns), dtype=torch.int16, device=x.device)
    counts = [torch.empty((rows, 1), dtype=torch.int32, device=x.device) for _ in COUNTS]
    if codes.numel():
        tile, width = groups_of(rows, columns)
        loaded, bf16 = elements_of(x.contiguous())
        cast_and_count[(triton.cdiv(rows, tile),)](
            loaded, codes, *counts, rows, columns, bf16, *_TO[format], tile, width
        )
    return {"codes": codes, **dict(zip(COUNTS, counts, strict=True))}


@converter("counted", ("float16",), ("bfloat16", "float32"))
def triton_to_float16_counted(x, format):
    return counted(x, format)


@converter("counted", BFLOAT16, ("float16", "float32"))
def triton_to_bfloat16_counted(x, format):
    return counted(x, format)
