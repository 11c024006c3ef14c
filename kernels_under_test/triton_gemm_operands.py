"""Operands of products as Triton kernels read them: tiles of float32, or of the type that the hardware multiplies.

An operand is a matrix of rows of K: of b the rows are the columns of the product, however the engine stores it. A
kernel is handed a tuple of tensors and strides, and a tuple of functions and block sizes. ``soft`` ones decode by
integers, and products of theirs are made in float32; ``native`` ones leave what is narrow to the matrix unit. Where a
mask is not, nothing is loaded, and the value is 0. Offsets are 64 bits wide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from narrowgauge.kernels_under_test.triton_codec import decode, encode
from narrowgauge.kernels_under_test.triton_dequantize import one_per_byte
from narrowgauge.kernels_under_test.triton_kv_parts import OF_SCALE, as_it_is, from_bfloat16, from_float16
from narrowgauge.kernels_under_test.triton_kv_parts import SOFT as KNOWN
from narrowgauge.kernels_under_test.triton_steps import bits, over, real, to_bfloat16

# --- what a code is for a matrix unit --------------------------------------------------------------------------------


@triton.jit
def as_e4m3fn(code):
    return code.to(tl.uint8).to(tl.float8e4nv, bitcast=True)


@triton.jit
def as_e4m3fnuz(code):
    return code.to(tl.uint8).to(tl.float8e4b8, bitcast=True)


@triton.jit
def as_e5m2(code):
    return code.to(tl.uint8).to(tl.float8e5, bitcast=True)


@triton.jit
def as_e5m2fnuz(code):
    return code.to(tl.uint8).to(tl.float8e5b16, bitcast=True)


@triton.jit
def as_int8(code):
    return code.to(tl.int8)


@triton.jit
def as_bfloat16(code):
    return code.to(tl.int16).to(tl.bfloat16, bitcast=True)


@triton.jit
def as_float16(code):
    return code.to(tl.int16).to(tl.float16, bitcast=True)


SOFT = {**KNOWN, "float32": as_it_is, "int8": as_int8}
NATIVE = {
    "float8_e4m3fn": as_e4m3fn,
    "float8_e4m3fnuz": as_e4m3fnuz,
    "float8_e5m2": as_e5m2,
    "float8_e5m2fnuz": as_e5m2fnuz,
    "int8": as_int8,
    "bfloat16": as_bfloat16,
    "float16": as_float16,
}
OF_SCALES = {**OF_SCALE, "bfloat16": from_bfloat16, "float16": from_float16}


# --- what code, scale and zero point make ----------------------------------------------------------------------------


@triton.jit
def alone(code, scale, zero, whole):
    return code


@triton.jit
def scaled(code, scale, zero, whole):
    return code * scale


@triton.jit
def less_eight(code, scale, zero, whole):
    return (code - 8.0) * scale


@triton.jit
def less_zero(code, scale, zero, whole):
    return (code - zero.to(tl.float32)) * scale


@triton.jit
def over_whole(code, scale, zero, whole):
    """The scale of the whole tensor was multiplied into the stored ones."""
    return code * over(scale, whole)


# --- what the value becomes before it is multiplied ------------------------------------------------------------------


@triton.jit
def to_float16(value):
    """The float32 value of the nearest float16."""
    code = encode(bits(value), 10, 15, 0x7BFF, 0x8000, 0x7C00, 0x7C00, 0x7E00, 0x7E00, True)
    return real(decode(code, 10, 15, 0x7BFF, 0x8000, 0x7C00, 0x7E00, 5.9604644775390625e-08))


@triton.jit
def natively_bfloat16(value):
    return value.to(tl.bfloat16)


@triton.jit
def natively_float16(value):
    return value.to(tl.float16)


ENTERS = {"": as_it_is, "float32": as_it_is, "bfloat16": to_bfloat16, "float16": to_float16}
ENTERS_NATIVELY = {"": as_it_is, "bfloat16": natively_bfloat16, "float16": natively_float16}


# --- where codes stand -----------------------------------------------------------------------------------------------


@triton.jit
def words_along_rows(words, row, column, row_stride, column_stride, mask):
    """Of words [K, N / 8] of codes of four bits, the first lowest; ``row`` is one of N."""
    word = tl.load(words + column * row_stride + row // 8 * column_stride, mask, other=0)
    return word >> (row % 8 * 4).to(tl.int32) & 0xF


@triton.jit
def words_less_one(words, row, column, row_stride, column_stride, mask):
    """The same of zero points, which GPTQ stores less 1."""
    return words_along_rows(words, row, column, row_stride, column_stride, mask) + 1


@dataclass(frozen=True)
class Operand:
    """One side of a product. ``codes`` is [rows, K], or an image of it that ``load`` reads; ``scale`` has one number
    for each ``block_rows`` by ``block_columns``, of that orientation too."""

    codes: Any
    format: str
    scale: Any = None
    block_rows: int = 1
    block_columns: int = 1
    scale_format: str = "float32"
    zero: Any = None  #: zero points of the blocks of the scale: an image that ``zeros`` reads
    zeros: Any = words_along_rows
    whole: Any = None  #: float32 [1, 1]
    groups: Any = None  #: int32: the group of each column, where columns are not in order
    value: Any = alone
    enters: str = ""
    load: Any = one_per_byte
    native: bool = False
    turned: str = ""  #: said of a scale that comes the other way round

    @property
    def handed(self):
        """What a kernel is given at run time."""
        scale = (None, None) if self.scale is None else (patterns(self.scale), strides(self.scale))
        zero = (None, None) if self.zero is None else (self.zero, self.zero.stride())
        groups = None if self.groups is None else self.groups.view(-1)
        return patterns(self.codes), self.codes.stride(), *scale, *zero, self.whole, groups

    @property
    def form(self):
        """What it is compiled for."""
        known, enters = (NATIVE, ENTERS_NATIVELY) if self.native else (SOFT, ENTERS)
        # what is dequantized first is decoded by integers, and only then given to the unit
        dequantized = self.value is not alone
        code = (SOFT if dequantized else known)[self.format]
        functions = self.load, code, OF_SCALES[self.scale_format], self.value, enters[self.enters]
        rounds = functions[-1] is not as_it_is
        return *functions, self.block_rows, self.block_columns, dequantized, self.zeros, rounds


def patterns(x):
    """The elements as integers; float32 as it is. Nothing is copied."""
    return x if x.dtype in (torch.float32, torch.int32) else x.view({1: torch.uint8, 2: torch.int16}[x.itemsize])


def strides(x):
    """0 along an axis that has one element for all."""
    return tuple(0 if n == 1 else s for n, s in zip(x.shape, x.stride(), strict=True))


@triton.jit
def element(pointer, offset, mask, CODE: tl.constexpr):
    """A stored number; CODE makes a value of its pattern, or of itself if it is float32."""
    if pointer.dtype.element_ty == tl.float32:
        return CODE(tl.load(pointer + offset, mask, other=0.0))
    else:
        return CODE(tl.load(pointer + offset, mask, other=0).to(tl.int32))


@triton.jit
def group_of(operand, column, mask, FORM: tl.constexpr):
    """Which column of the scales is that of a column of the codes."""
    if operand[7] is not None:
        return tl.load(operand[7] + column, mask, other=0).to(tl.int64)
    else:
        return column // FORM[6]


@triton.jit
def scales_of(operand, row, column, mask, FORM: tl.constexpr):
    """The scales of elements."""
    place = row // FORM[5] * operand[3][0] + group_of(operand, column, mask, FORM) * operand[3][1]
    return element(operand[2], place, mask, FORM[2])


@triton.jit
def tile_of(operand, row, column, mask, FORM: tl.constexpr):
    """Elements as they enter the product; FORM says whether with their scales."""
    loaded = FORM[0](operand[0], row, column, operand[1][0], operand[1][1], mask)
    value = FORM[1](loaded if operand[0].dtype.element_ty == tl.float32 else loaded.to(tl.int32))
    if FORM[7]:
        zero = 0
        whole = 1.0
        if operand[4] is not None:
            group = group_of(operand, column, mask, FORM)
            zero = FORM[8](operand[4], row // FORM[5], group, operand[5][0], operand[5][1], mask)
        if operand[6] is not None:
            whole = tl.load(operand[6])
        value = FORM[3](value, scales_of(operand, row, column, mask, FORM), zero, whole)
    if FORM[9]:
        value = FORM[4](value)
    return value
