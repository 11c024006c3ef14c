"""NVIDIA's approximations of binary32, for which the PTX ISA gives an error bound: a model is an interval.

``first`` is the correctly rounded value. Where editions of the PTX ISA state different bounds, the wider one is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from narrowgauge.devices.emulator.models import rounding as r
from narrowgauge.devices.emulator.models.answers import Band, Bits, Mask, Model
from narrowgauge.devices.emulator.models.bands import (
    NAN,
    Reals,
    reals,
    with_flush,
    within_absolute,
    within_relative,
    within_ulp,
)

ONE = np.uint32(0x3F800000)


def _quiet(function: Callable[..., Reals], *values: Reals) -> Reals:
    with np.errstate(all="ignore"):
        return function(*values)


def div_full(a: Bits, b: Bits) -> Band:
    return within_ulp(_quiet(np.divide, reals(a), reals(b)), 2)


def div_approx(a: Bits, b: Bits) -> Band:
    """Two units for 2^-126 <= |b| <= 2^126; above that zero with the sign, or NaN for an infinite a; below it nothing
    is said."""
    band = within_ulp(_quiet(np.divide, reals(a), reals(b)), 2)
    size = np.abs(reals(b))
    large = (size > 2.0**126) & np.isfinite(size) & ~r.is_nan(a)
    unsaid = (size < 2.0**-126) & (size > 0) & ~r.is_nan(a)
    zero = np.where(r.is_infinite(a), NAN, (a ^ b) & r.SIGN)
    ends = (
        np.where(large, zero, np.where(unsaid, free, end)).astype(np.uint32)
        for free, end in ((band.first, band.first), (r.SIGN | r.INFINITE, band.low), (r.INFINITE, band.high))
    )
    return Band(*ends)


def rcp(a: Bits) -> Band:
    return within_ulp(_quiet(np.reciprocal, reals(a)), 1)


def sqrt(a: Bits) -> Band:
    return within_relative(_quiet(np.sqrt, reals(a)), 2.0**-23)


def rsqrt(a: Bits) -> Band:
    return within_relative(_quiet(lambda x: 1 / np.sqrt(x), reals(a)), 2.0**-22.4)


def _exactly(band: Band, where: Mask, code: Bits | np.uint32) -> Band:
    """The band with one answer in some lanes: a row of the table of results."""
    ends = (np.where(where, code, end).astype(np.uint32) for end in (band.first, band.low, band.high))
    return Band(*ends)


def ex2(a: Bits) -> Band:
    """Zero gives exactly one."""
    return _exactly(within_ulp(_quiet(np.exp2, reals(a)), 2), _is_zero(a), ONE)


def _is_zero(a: Bits) -> Mask:
    zero: Mask = (a & r.MAGNITUDE) == 0
    return zero


def lg2(a: Bits) -> Band:
    """Absolute error 2^-22 for inputs between 1/2 and 2, relative error 2^-22 outside."""
    value = reals(a)
    true = _quiet(np.log2, value)
    near = (value > 0.5) & (value < 2)
    return within_absolute(true, np.where(near, 2.0**-22, 2.0**-22 * np.abs(true)))


def wave(function: Callable[..., Reals], a: Bits) -> Band:
    """Absolute error 2^-20.5 for |a| <= 2 pi, 2^-14.7 for |a| <= 100 pi; beyond, all of [-1, 1] and more."""
    value = reals(a)
    size = np.abs(value)
    error = np.where(size <= 2 * np.pi, 2.0**-20.5, np.where(size <= 100 * np.pi, 2.0**-14.7, 2.0))
    return within_absolute(_quiet(function, value), error)


def sin(a: Bits) -> Band:
    """Zero gives zero with its sign."""
    return _exactly(wave(np.sin, a), _is_zero(a), a)


def cos(a: Bits) -> Band:
    """Zero gives exactly one."""
    return _exactly(wave(np.cos, a), _is_zero(a), ONE)


def tanh(a: Bits) -> Band:
    """An infinity gives exactly one with its sign; a subnormal is passed through."""
    band = _exactly(within_relative(_quiet(np.tanh, reals(a)), 2.0**-11), r.is_infinite(a), a & r.SIGN | ONE)
    return _exactly(band, (a & r.INFINITE) == 0, a)


_OF = "PTX ISA 9.1, floating-point instructions, "
_LAST = "the last bits: first is correctly rounded"

_WAVE = "absolute error 2^-20.5 within 2 pi, 2^-14.7 within 100 pi, no guarantee beyond"


def _both(name: str, inputs: tuple[str, ...], words: str, run: Callable[..., Band], free: str = _LAST) -> list[Model]:
    """The instruction with and without ``.ftz``."""
    plain = Model(f"{name}.f32", inputs, "f32", _OF + words, run, free)
    ends = "; .ftz flushes subnormal inputs and results to zero with their sign"
    return [plain, Model(f"{name}.ftz.f32", inputs, "f32", _OF + words + ends, partial(with_flush, run), free)]


APPROXIMATIONS: tuple[Model, ...] = (
    *_both("div.full", ("f32", "f32"), "div: div.full, at most 2 ulp over the full range", div_full),
    *_both(
        "div.approx",
        ("f32", "f32"),
        "div: div.approx, at most 2 ulp for |b| in [2^-126, 2^126]; above that 0 with the sign, or NaN for infinite a",
        div_approx,
        f"{_LAST}; everything for |b| below 2^-126",
    ),
    *_both("rcp.approx", ("f32",), "rcp: rcp.approx, at most 1 ulp; 1/0 and 1/infinity as IEEE 754", rcp),
    *_both("sqrt.approx", ("f32",), "sqrt: relative error at most 2^-23; -0 gives -0, negative NaN", sqrt),
    *_both(
        "rsqrt.approx",
        ("f32",),
        "rsqrt: relative error at most 2^-22.9; earlier editions state 2^-22.4, which is taken",
        rsqrt,
    ),
    *_both(
        "ex2.approx",
        ("f32",),
        "ex2: at most 2 ulp from the correctly rounded result; zero gives 1, -infinity gives +0",
        ex2,
    ),
    *_both("lg2.approx", ("f32",), "lg2: absolute error 2^-22 in (0.5, 2), relative error 2^-22 outside", lg2),
    *_both("sin.approx", ("f32",), f"sin: {_WAVE}; zero gives zero with its sign", sin),
    *_both("cos.approx", ("f32",), f"cos: {_WAVE}; zero gives 1", cos),
    Model(
        "tanh.approx.f32",
        ("f32",),
        "f32",
        f"{_OF}tanh: relative error at most 2^-11; infinity gives 1, subnormals are passed through",
        tanh,
        _LAST,
    ),
)
