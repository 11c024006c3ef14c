"""Layouts of floating-point numbers and the one rounding step that all conversions share: integer arithmetic only."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from narrowgauge.devices.emulator.models.answers import Bits, Mask

Rounding = Literal["rn", "rna", "rz", "away"]
SIGN, MAGNITUDE, INFINITE = np.uint32(0x80000000), np.uint32(0x7FFFFFFF), np.uint32(0x7F800000)


@dataclass(frozen=True)
class Layout:
    """Sign, ``exponent`` bits, ``mantissa`` bits. ``top``: code of the largest finite value. ``zeros``: one or two."""

    exponent: int
    mantissa: int
    bias: int
    top: int
    infinity: int | None = None
    nan: int | None = None
    zeros: int = 2

    @property
    def sign(self) -> int:
        return 1 << (self.exponent + self.mantissa)

    @property
    def special(self) -> int:
        """What becomes of an overflow that does not saturate: infinity, else NaN, else the largest value."""
        return next(code for code in (self.infinity, self.nan, self.top) if code is not None)


# OCP OFP8 1.0, table 1; OCP MX 1.0, tables 2 to 5; IEEE 754-2019, table 3.5; AMD's FNUZ: bias one larger, one zero, and
# the code of negative zero is the only NaN (CDNA3 ISA, "FP8 and BF8"). NaN codes are the ones that the ISAs show.
E4M3 = Layout(4, 3, 7, 0x7E, nan=0x7F)
E5M2 = Layout(5, 2, 15, 0x7B, infinity=0x7C, nan=0x7F)
E4M3Z = Layout(4, 3, 8, 0x7F, nan=0x80, zeros=1)
E5M2Z = Layout(5, 2, 16, 0x7F, nan=0x80, zeros=1)
E2M1 = Layout(2, 1, 1, 0x7)
E2M3 = Layout(2, 3, 1, 0x1F)
E3M2 = Layout(3, 2, 3, 0x1F)
F16 = Layout(5, 10, 15, 0x7BFF, infinity=0x7C00, nan=0x7FFF)
BF16 = Layout(8, 7, 127, 0x7F7F, infinity=0x7F80, nan=0x7FFF)
TF32 = Layout(8, 10, 127, 0x3FBFF, infinity=0x3FC00, nan=0x3FFFF)
F32 = Layout(8, 23, 127, 0x7F7FFFFF, infinity=0x7F800000, nan=0x7FFFFFFF)


def is_nan(bits: Bits) -> Mask:
    """Of binary32 patterns."""
    beyond: Mask = (bits & MAGNITUDE) > INFINITE
    return beyond


def is_infinite(bits: Bits) -> Mask:
    infinite: Mask = (bits & MAGNITUDE) == INFINITE
    return infinite


@functools.cache
def _decoded(layout: Layout) -> Bits:
    """binary32 of every code of a layout of at most 16 bits (exact: all of them fit)."""
    codes = np.arange(2 * layout.sign, dtype=np.int64)
    magnitude, negative = codes & (layout.sign - 1), codes >= layout.sign
    field, fraction = magnitude >> layout.mantissa, magnitude & ((1 << layout.mantissa) - 1)
    significand = np.where(field > 0, fraction + (1 << layout.mantissa), fraction)
    values = np.ldexp(significand.astype(np.float64), np.maximum(field, 1) - layout.bias - layout.mantissa)
    with np.errstate(over="ignore"):  # bfloat16's codes of infinity and NaN, which are replaced below
        bits = values.astype(np.float32).view(np.uint32) | np.where(negative, SIGN, np.uint32(0))
    if layout.zeros == 1:
        return np.where(codes == layout.nan, np.uint32(F32.nan or 0), bits).astype(np.uint32)
    beyond = magnitude > layout.top
    if layout.infinity is not None:
        bits = np.where(magnitude == layout.infinity, (bits & SIGN) | INFINITE, bits)
        beyond = magnitude > layout.infinity
    return np.where(beyond, np.uint32(F32.nan or 0), bits).astype(np.uint32)


def widened(codes: Bits, layout: Layout) -> Bits:
    """Codes of a layout of at most 16 bits as binary32; NaN becomes 0x7fffffff. Higher bits are ignored."""
    values: Bits = _decoded(layout)[codes & np.uint32(2 * layout.sign - 1)]
    return values


def parts(bits: Bits) -> tuple[npt.NDArray[np.int32], Bits]:
    """Exponent and significand of binary32: value = significand x 2^(exponent - 23), bit 23 set unless it is zero."""
    field = ((bits >> np.uint32(23)) & np.uint32(0xFF)).astype(np.int32)
    fraction = bits & np.uint32(0x7FFFFF)
    exponent, significand = field - np.int32(127), fraction | np.uint32(0x800000)
    small = (field == 0) & (fraction != 0)
    if np.any(small):
        lead = np.frexp(np.where(small, fraction, 1).astype(np.float64))[1].astype(np.int32)
        exponent = np.where(small, lead - np.int32(150), exponent)
        significand = np.where(small, fraction << np.clip(24 - lead, 0, 24).astype(np.uint32), significand)
    return exponent, np.where((field == 0) & (fraction == 0), np.uint32(0), significand)


def narrowed(
    bits: Bits,
    layout: Layout,
    rounding: Rounding = "rn",
    over: int | None = None,
    infinite: int | None = None,
    scale: npt.NDArray[np.int32] | None = None,
) -> Bits:
    """binary32 to codes, one rounding. The value is first divided by 2^scale, exactly.

    ``over``: magnitude code where a finite value rounds beyond the largest (absent: the largest). ``infinite``: the
    same for an infinity. NaN gives the layout's NaN without sign, or the positive largest where there is none.
    """
    if scale is not None and not scale.any():
        scale = None
    if scale is None and layout.mantissa + layout.exponent < 8:
        upper = (bits >> np.uint32(16)) << np.uint32(1)
        codes: Bits = _by_upper_bits(layout, rounding, over, infinite)[upper | (bits & np.uint32(0xFFFF) != 0)]
        return codes
    return rounded(bits, layout, rounding, over, infinite, scale)


@functools.cache
def _by_upper_bits(layout: Layout, rounding: Rounding, over: int | None, infinite: int | None) -> Bits:
    """Codes by the upper half of binary32 and whether anything stands below it: a destination of at most three bits of
    mantissa looks at no more than that."""
    index = np.arange(2**17, dtype=np.uint32)
    return rounded(
        ((index >> np.uint32(1)) << np.uint32(16)) | (index & np.uint32(1)), layout, rounding, over, infinite
    )


def rounded(
    bits: Bits,
    layout: Layout,
    rounding: Rounding,
    over: int | None,
    infinite: int | None,
    scale: npt.NDArray[np.int32] | None = None,
) -> Bits:
    """``narrowed``, computed for each input."""
    exponent, significand = parts(bits)
    exponent = exponent if scale is None else exponent - scale
    drop = np.minimum(23 - layout.mantissa + _below(exponent, layout), 31).astype(np.uint32)
    kept = significand >> drop
    code = kept + _carry(significand, kept, drop, rounding)
    return _finished(bits, _with_exponent(code, exponent, layout), layout, over, infinite)


def stochastic(
    bits: Bits,
    layout: Layout,
    random: Bits,
    width: int,
    over: int | None = None,
    infinite: int | None = None,
) -> Bits:
    """As ``narrowed``, with ``width`` random bits added to the highest discarded bits; the carry rounds away from zero.

    Where the result is subnormal the significand is aligned first, and what that shifts out is lost.
    """
    exponent, significand = parts(bits)
    drop = np.uint32(23 - layout.mantissa)
    aligned = significand >> np.minimum(_below(exponent, layout), 31).astype(np.uint32)
    code = (aligned + (random << np.uint32(int(drop) - width))) >> drop
    return _finished(bits, _with_exponent(code, exponent, layout), layout, over, infinite)


def is_subnormal_in(bits: Bits, layout: Layout) -> Mask:
    """Whether the value lies below the smallest normal of the layout."""
    return _below(parts(bits)[0], layout) > 0


def _below(exponent: npt.NDArray[np.int32], layout: Layout) -> npt.NDArray[np.int32]:
    """By how much an exponent lies below the smallest normal one."""
    distance: npt.NDArray[np.int32] = np.maximum(np.int32(1 - layout.bias) - exponent, np.int32(0))
    return distance


def _with_exponent(code: Bits, exponent: npt.NDArray[np.int32], layout: Layout) -> npt.NDArray[np.int64]:
    """The significand has the leading bit in it, so the exponent's field is one less."""
    lowest = 1 - layout.bias
    field = np.maximum(exponent.astype(np.int64) - lowest, 0)
    return np.where(code == 0, 0, code.astype(np.int64) + (field << layout.mantissa))


def _carry(significand: Bits, kept: Bits, drop: Bits, rounding: Rounding) -> Bits:
    one = np.uint32(1)
    rest = significand & ((one << drop) - one)
    half = (one << drop) >> one
    up: Mask
    if rounding == "rz":
        up = np.zeros(kept.shape, bool)
    elif rounding == "away":
        up = rest != 0
    elif rounding == "rna":
        up = (rest >= half) & (drop > 0)
    else:
        up = (rest > half) | ((rest == half) & (kept & one == 1) & (drop > 0))
    return up.astype(np.uint32)


def _finished(bits: Bits, code: npt.NDArray[np.int64], layout: Layout, over: int | None, infinite: int | None) -> Bits:
    """Overflow, infinity, NaN and the sign."""
    code = np.where(code > layout.top, layout.top if over is None else over, code)
    code = np.where(is_infinite(bits), layout.top if infinite is None else infinite, code)
    signless = (code == 0) | (code == layout.nan) if layout.zeros == 1 else np.zeros(code.shape, bool)
    code = np.where((bits >= SIGN) & ~signless, code | layout.sign, code)
    return np.where(is_nan(bits), layout.top if layout.nan is None else layout.nan, code).astype(np.uint32)
