"""Parts of caches as Triton kernels read them: what an element of keys or values is, by its codes and its scale.

A part is a tuple of tensors and strides, and a tuple of functions: what a code is, what a stored scale is, what both
make. Every page is a view of the form of kv_places, so that one kernel reaches all. Offsets are 64 bits wide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl

from narrowgauge.kernels_under_test.kv_places import patterns
from narrowgauge.kernels_under_test.triton_codec import decode
from narrowgauge.kernels_under_test.triton_dequantize import READ
from narrowgauge.kernels_under_test.triton_steps import bits, real


@triton.jit
def times(code, scale, beside):
    return code * scale


@triton.jit
def alone(code, scale, beside):
    """Kept without a scale."""
    return code


@triton.jit
def as_it_is(value):
    """A scale that is stored as float32."""
    return value


@triton.jit
def from_bfloat16(code):
    return real(code << 16)


@triton.jit
def from_float16(code):
    return code.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def from_e5m2fnuz(code):
    return real(decode(code, 2, 16, 0x7F, 0x80, -1, 0x80, 0.00000762939453125))


@triton.jit
def from_uint4(code):
    return code.to(tl.float32)


@triton.jit
def native_e4m3fn(code):
    return code.to(tl.uint8).to(tl.float8e4nv, bitcast=True).to(tl.float32)


@triton.jit
def native_e4m3fnuz(code):
    return code.to(tl.uint8).to(tl.float8e4b8, bitcast=True).to(tl.float32)


@triton.jit
def native_e5m2(code):
    return code.to(tl.uint8).to(tl.float8e5, bitcast=True).to(tl.float32)


#: what a code is, by integers; and as the hardware converts it
FROM = {
    **READ,
    "float8_e5m2fnuz": from_e5m2fnuz,
    "uint4": from_uint4,
    "bfloat16": from_bfloat16,
    "float16": from_float16,
}
NATIVE = {"float8_e4m3fn": native_e4m3fn, "float8_e4m3fnuz": native_e4m3fnuz, "float8_e5m2": native_e5m2}


@dataclass(frozen=True)
class Part:
    """One part of a cache. ``codes`` and ``scales`` are views of six axes; a scale has ``group`` columns."""

    codes: Any
    read: Any  #: what a code is, as a number
    scales: Any = None
    group: int = 1
    of_scale: Any = as_it_is
    value: Any = times
    beside: Any = None  #: another number of the tensor
    per_byte: int = 1  #: codes in an element of ``codes``, the first one lowest

    @property
    def heads(self):
        return self.codes.shape[3]

    @property
    def width(self):
        """Columns of a head."""
        return self.codes.shape[4] * self.codes.shape[5] * self.per_byte

    @property
    def block(self):
        return self.codes.shape[1] * self.codes.shape[2]

    @property
    def handed(self):
        """What a kernel is given at run time."""
        scales = (None, None) if self.scales is None else (patterns(self.scales), self.scales.stride())
        return patterns(self.codes), self.codes.stride(), *scales, self.beside

    @property
    def form(self):
        """What it is compiled for."""
        digits = tuple(1 if view is None else view.shape[axis] for view in (self.codes, self.scales) for axis in (2, 5))
        functions = self.read, self.of_scale, alone if self.scales is None else self.value
        return self.per_byte, *digits, self.group, *functions


@triton.jit
def place_of(page, place, head, column, strides, PLACES: tl.constexpr, COLUMNS: tl.constexpr):
    """Where an element stands in a view of six axes."""
    row = page * strides[0] + place // PLACES * strides[1] + place % PLACES * strides[2] + head * strides[3]
    return row + column // COLUMNS * strides[4] + column % COLUMNS * strides[5]


@triton.jit
def elements_at(part, page, place, head, column, mask, FORM: tl.constexpr):
    """float32 values of a part, 0 where ``mask`` is not: nothing is loaded there."""
    offset = place_of(page, place, head, column // FORM[0], part[1], FORM[1], FORM[2])
    code = tl.load(part[0] + offset, mask, other=0).to(tl.int32)
    if FORM[0] == 2:
        code = code >> (column % 2 * 4) & 0xF
    scale = 1.0
    beside = 1.0
    if part[2] is not None:
        where = place_of(page, place, head, column // FORM[5], part[3], FORM[3], FORM[4])
        if part[2].dtype.element_ty == tl.float32:
            scale = FORM[7](tl.load(part[2] + where, mask, other=0.0))
        else:
            scale = FORM[7](tl.load(part[2] + where, mask, other=0).to(tl.int32))
    if part[4] is not None:
        beside = tl.load(part[4])
    return tl.where(mask, FORM[8](FORM[6](code), scale, beside), 0.0)


@triton.jit
def less_hidden_zero(code, scale, beside):
    """The zero point stands in the four lowest bits of the scale's mantissa."""
    return (code - (bits(scale) & 15).to(tl.float32)) * real(bits(scale) & -16)


@triton.jit
def times_global(code, scale, beside):
    return code * (scale * beside)
