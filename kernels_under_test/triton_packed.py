"""Quantizers and readers whose codes or scales stand in memory as an engine's kernels expect them."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from narrowgauge import Dequantize, Quantize, kernel
from narrowgauge.kernels_under_test.claiming import E4M3, FP4
from narrowgauge.kernels_under_test.triton_codec import block_of
from narrowgauge.kernels_under_test.triton_dequantize import by_16, by_32, over_divisor, read
from narrowgauge.kernels_under_test.triton_quantize_groups import group
from narrowgauge.kernels_under_test.triton_quantize_integers import compressed_tensors
from narrowgauge.kernels_under_test.triton_quantize_mx import by_divisor, divisor_of, ocp, rounded_up, whole_scale
from narrowgauge.kernels_under_test.triton_tiling import amax_by_blocks, by_groups

NIBBLES, GPTQ, AWQ = {"codes": "nibbles_low_first"}, {"codes": "gptq_4bit^T"}, {"codes": "awq_4bit^T"}
TILES = {"codes": "nibbles_low_first", "scale": "scales_128x4"}
FLOAT32, BFLOAT16, INT4 = ("float32",), ("bfloat16",), ("int4",)


def writer(recipe, layouts, formats):
    return kernel(Quantize(recipe, layouts=layouts), formats, FLOAT32, owner="narrowgauge", conversion="soft")


def reader(recipe, layouts, sources):
    return kernel(Dequantize(recipe, layouts=layouts), BFLOAT16, sources, owner="narrowgauge", conversion="soft")


# --- codes of four bits ----------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["words", "width", "down", "across"])
def pack_words(
    codes, out, words, width, down, across, step, PLACES: tl.constexpr, AWQ: tl.constexpr, BLOCK: tl.constexpr
):
    """Words of PLACES codes, ``width`` words in a row of the image. ``down`` and ``across``: how far apart in ``codes``
    their first ones are; ``step``: how far a word's own. AWQ: the even ones of a word come first."""
    word = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    first = codes + word // width * down + word % width * across
    packed = tl.zeros((BLOCK,), tl.int32)
    for place in tl.static_range(PLACES):
        which = (2 * place) % 8 + place // 4 if AWQ else place
        packed |= tl.load(first + which * step, word < words, other=0).to(tl.int32) << (4 * place)
    tl.store(out + word, packed.to(out.dtype.element_ty), word < words)


def packed(codes, image, down, across, step, places, awq=False):
    """``image`` [rows, words], filled."""
    if image.numel():
        block = block_of(image.numel())
        pack_words[(triton.cdiv(image.numel(), block),)](
            codes, image, image.numel(), image.shape[1], down, across, step, places, awq, block
        )
    return image


def in_nibbles(codes):
    """[rows, columns / 2]: of two codes the first is the lower one."""
    rows, columns = codes.shape
    image = torch.empty((rows, columns // 2), dtype=torch.uint8, device=codes.device)
    return packed(codes, image, columns, 2, 1, 2)


def as_gptq(codes):
    """Codes [N, K] as words [K / 8, N]."""
    rows, columns = codes.shape
    image = torch.empty((columns // 8, rows), dtype=torch.int32, device=codes.device)
    return packed(codes, image, 8, columns, 1, 8)


def as_awq(codes):
    """Codes [N, K] as words [K, N / 8]."""
    rows, columns = codes.shape
    image = torch.empty((columns, rows // 8), dtype=torch.int32, device=codes.device)
    return packed(codes, image, 1, 8 * columns, columns, 8, awq=True)


@triton.jit
def nibble(codes, row, column, row_stride, column_stride, mask):
    byte = tl.load(codes + row * row_stride + column // 2 * column_stride, mask, other=0).to(tl.int32)
    return byte >> (column % 2 * 4).to(tl.int32) & 0xF


@triton.jit
def gptq(words, row, column, row_stride, column_stride, mask):
    """Of words [K / 8, N]."""
    word = tl.load(words + column // 8 * row_stride + row * column_stride, mask, other=0)
    return word >> (column % 8 * 4).to(tl.int32) & 0xF


@triton.jit
def awq(words, row, column, row_stride, column_stride, mask):
    """Of words [K, N / 8]."""
    place = row % 8 // 2 + row % 2 * 4
    word = tl.load(words + column * row_stride + row // 8 * column_stride, mask, other=0)
    return word >> (place * 4).to(tl.int32) & 0xF


@writer("ocp.mxfp4", NIBBLES, FP4)
def triton_soft_mxfp4_nibbles(x, format):
    codes, scales = by_groups(x, ocp, format, 32, nan="keep", stored=torch.uint8)
    return in_nibbles(codes), scales


@writer("compressed_tensors.int4_group", GPTQ, INT4)
def triton_soft_int4_gptq(x, format):
    codes, scales = by_groups(x, compressed_tensors, format, 128, nan="keep")
    return as_gptq(codes), scales


@writer("compressed_tensors.int4_group", AWQ, INT4)
def triton_soft_int4_awq(x, format):
    codes, scales = by_groups(x, compressed_tensors, format, 128, nan="keep")
    return as_awq(codes), scales


@reader("ocp.mxfp4", NIBBLES, FP4)
def triton_soft_read_mxfp4_nibbles(x, format, scale, shape):
    return by_32(x, format, FP4[0], scale, shape=shape, load=nibble)


@reader("compressed_tensors.int4_group", GPTQ, INT4)
def triton_soft_read_int4_gptq(x, format, scale, shape):
    return read(x, format, INT4[0], scale, 1, 128, shape=shape, load=gptq)


@reader("compressed_tensors.int4_group", AWQ, INT4)
def triton_soft_read_int4_awq(x, format, scale, shape):
    return read(x, format, INT4[0], scale, 1, 128, shape=shape, load=awq)


# --- scales ----------------------------------------------------------------------------------------------------------


@triton.jit
def in_words_of_four(row, column, row_stride, column_stride):
    """Bytes of int32 [groups / 4, rows]."""
    return (column // 4 * column_stride + row) * 4 + column % 4


@triton.jit
def in_tiles(row, column, row_stride, column_stride):
    """Tiles of 128 rows and 4 columns, of which rows 32 apart are neighbours. ``row_stride``: tiles in a row."""
    tile = row // 128 * row_stride + column // 4
    return tile * 512 + row % 32 * 16 + row % 128 // 32 * 4 + column % 4


def _up(size, each):
    return triton.cdiv(size, each) * each


def _by_columns(x, format, align):
    rows, groups = x.shape[0], x.shape[1] // 128
    scales = torch.empty((groups, _up(rows, align)), dtype=torch.float32, device=x.device)
    codes, scales = by_groups(x, group, format, 128, scales=scales, strides=(1, _up(rows, align)))
    return codes, scales.view(torch.int32)


@writer("vllm.fp8_group", {"scale": "scales_column_major"}, E4M3)
def triton_soft_vllm_group_column_major(x, format):
    return _by_columns(x, format, 1)


@writer("vllm.fp8_group", {"scale": "scales_tma_aligned"}, E4M3)
def triton_soft_vllm_group_tma_aligned(x, format):
    return _by_columns(x, format, 4)


@writer("nvidia.mxfp8_e4m3", {"scale": "ue8m0_int32"}, E4M3)
def triton_soft_mxfp8_in_words(x, format):
    rows, groups = x.shape[0], x.shape[1] // 32
    words = torch.zeros((triton.cdiv(groups, 4), _up(rows, 4)), dtype=torch.int32, device=x.device)
    codes, _ = by_groups(
        x, rounded_up, format, 32, nan="keep", scales=words.view(torch.uint8), strides=(1, words.shape[1]),
        place=in_words_of_four,
    )  # fmt: skip
    return codes, words


@writer("nvidia.nvfp4_divisor", TILES, FP4)
def triton_soft_nvfp4_tiles(x, format):
    rows, groups = x.shape[0], x.shape[1] // 16
    tiles = torch.zeros((triton.cdiv(rows, 128), triton.cdiv(groups, 4), 512), dtype=torch.uint8, device=x.device)
    whole = torch.empty((1, 1), dtype=torch.float32, device=x.device)
    whole_scale[(1,)](amax_by_blocks(x, 0, 0), whole, divisor_of)
    codes, _ = by_groups(
        x, by_divisor, format, 16, scales=tiles, strides=(tiles.shape[1], 1), place=in_tiles, whole=whole
    )
    return in_nibbles(codes), whole, tiles.view(-1)


@reader("vllm.fp8_group", {"scale": "scales_column_major"}, E4M3)
def triton_soft_read_group_column_major(x, format, scale, shape):
    values = scale.view(torch.float32)
    return read(x, format, E4M3[0], values, 1, 128, strides=(1, shape[0]))


@reader("nvidia.mxfp8_e4m3", {"scale": "ue8m0_int32"}, E4M3)
def triton_soft_read_mxfp8_in_words(x, format, scale, shape):
    strides = (1, _up(shape[0], 4))
    return by_32(x, format, E4M3[0], scale, strides=strides, place=in_words_of_four)


@reader("nvidia.nvfp4_divisor", TILES, FP4)
def triton_soft_read_nvfp4_tiles(x, format, scale, global_scale, shape):
    tiles = triton.cdiv(triton.cdiv(shape[1], 16), 4)
    return by_16(
        x, format, FP4[0], scale, value=over_divisor, beside=global_scale, shape=shape, load=nibble,
        strides=(tiles, 1), place=in_tiles,
    )  # fmt: skip
