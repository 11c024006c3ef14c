"""Parts of caches as Triton kernels read them: what an element of keys or values is, by its codes and its scale.

A kernel is handed a tuple of tensors and strides, and a tuple of functions: what a code is, what a stored scale is,
what both make. Every page is a view of the form of kv_places.py, so that one kernel reaches all. Offsets are 64 bits
wide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl

from narrowgauge.kernels_under_test.kv_checks import (
    check_format,
    check_same_slots,
    check_scale,
    check_scale_cache,
    check_stored,
    types_of,
)
from narrowgauge.kernels_under_test.kv_places import block_of, patterns, width_of
from narrowgauge.kernels_under_test.triton_codec import decode
from narrowgauge.kernels_under_test.triton_dequantize import READ, from_e4m3fn, from_e8m0
from narrowgauge.kernels_under_test.triton_steps import bits, real


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


@triton.jit
def as_it_is(value):
    return value


#: what a code is, by integers; and as the hardware converts it
SOFT = {
    **READ,
    "float8_e5m2fnuz": from_e5m2fnuz,
    "uint4": from_uint4,
    "bfloat16": from_bfloat16,
    "float16": from_float16,
}
NATIVE = {"float8_e4m3fn": native_e4m3fn, "float8_e4m3fnuz": native_e4m3fnuz, "float8_e5m2": native_e5m2}
#: what a scale is that is stored in a format
OF_SCALE = {"float32": as_it_is, "float8_e4m3fn": from_e4m3fn, "float8_e8m0fnu": from_e8m0}


# --- what code and scale make ----------------------------------------------------------------------------------------


@triton.jit
def times(code, scale, whole):
    return code * scale


@triton.jit
def alone(code, scale, whole):
    """Kept without a scale."""
    return code


@triton.jit
def times_global(code, scale, whole):
    return code * (scale * whole)


@triton.jit
def less_hidden_zero(code, scale, whole):
    """The zero point stands in the four lowest bits of the scale's mantissa."""
    return (code - (bits(scale) & 15).to(tl.float32)) * real(bits(scale) & -16)


@dataclass(frozen=True)
class Part:
    """One part of a cache. ``codes`` and ``scales`` are views of six axes."""

    name: str
    codes: Any
    format: str
    given: Any = None  #: a static scale, float32 [1] or [heads]
    scaled_by: str = ""  #: the part after which it is named; "" for this one
    scales: Any = None  #: scales that are stored, one for each ``group`` columns
    group: int = 0  #: 0 for a head
    scale_format: str = "float32"
    value: Any = times
    whole: Any = None  #: a number of the tensor, float32 [1]
    per_byte: int = 1  #: codes in an element of ``codes``, the first one lowest
    known: Any = None  #: what codes are, by format; None for ``SOFT``

    @property
    def heads(self):
        return self.codes.shape[3]

    @property
    def width(self):
        """Columns of a head."""
        return width_of(self.codes) * self.per_byte

    @property
    def block(self):
        return block_of(self.codes)

    def check(self, first):
        """Raise ``ValueError`` for what does not fit, or does not fit the first part."""
        check_format(self.format, self.known or SOFT)
        check_same_slots(self.name, self.codes, first.codes)
        check_stored(self.name, self.codes, types_of(self.format))
        if self.given is not None:
            check_scale(f"{self.scaled_by or self.name}_scale", self.given, 1, self.heads)
        if self.whole is not None:
            check_scale(f"{self.name}_global_scale", self.whole, 1)
        if self.scales is not None:
            check_same_slots(f"{self.name}_scale", self.scales, self.codes)
            groups = self.width // (self.group or self.width)
            check_scale_cache(self.name, self.scales, self.heads, groups, types_of(self.scale_format))

    @property
    def _scales(self):
        """A view of six axes, or None."""
        if self.given is None:
            return self.scales
        return self.given.view(1, 1, 1, -1, 1, 1).expand(*self.codes.shape[:4], 1, 1)

    @property
    def handed(self):
        """What a kernel is given at run time."""
        scales = (None, None) if self._scales is None else (patterns(self._scales), self._scales.stride())
        return patterns(self.codes), self.codes.stride(), *scales, self.whole

    @property
    def form(self):
        """What it is compiled for."""
        views = self.codes, self._scales
        digits = tuple(1 if view is None else view.shape[axis] for view in views for axis in (2, 5))
        functions = (
            (self.known or SOFT)[self.format],
            OF_SCALE[self.scale_format],
            alone if self._scales is None else self.value,
        )
        return self.per_byte, *digits, self.group or self.width, *functions


@triton.jit
def place_of(page, place, head, column, strides, PLACES: tl.constexpr, COLUMNS: tl.constexpr):
    """Where an element stands in a view of six axes."""
    row = page * strides[0] + place // PLACES * strides[1] + place % PLACES * strides[2] + head * strides[3]
    return row + column // COLUMNS * strides[4] + column % COLUMNS * strides[5]


@triton.jit
def elements_at(part, page, place, head, column, mask, FORM: tl.constexpr):
    """float32 values of a part; where ``mask`` is not, nothing is loaded, and codes and scales of 0 make 0."""
    offset = place_of(page, place, head, column // FORM[0], part[1], FORM[1], FORM[2])
    code = tl.load(part[0] + offset, mask, other=0).to(tl.int32)
    if FORM[0] == 2:
        code = code >> (column % 2 * 4) & 0xF
    scale = 1.0
    whole = 1.0
    if part[2] is not None:
        where = place_of(page, place, head, column // FORM[5], part[3], FORM[3], FORM[4])
        if part[2].dtype.element_ty == tl.float32:
            scale = FORM[7](tl.load(part[2] + where, mask, other=0.0))
        else:
            scale = FORM[7](tl.load(part[2] + where, mask, other=0).to(tl.int32))
    if part[4] is not None:
        whole = tl.load(part[4])
    return FORM[8](FORM[6](code), scale, whole)
