"""How the last cast of a quantizer is written for each destination: by integers, or by Triton's own conversion."""

from __future__ import annotations

import triton
import triton.language as tl

from narrowgauge.kernels_under_test.triton_codec import encode, encode_integer
from narrowgauge.kernels_under_test.triton_steps import bits


@triton.jit
def to_e4m3fn(value):
    # narrowgauge: ignore[nan_code] the function's name has the format
    return encode(bits(value), 3, 7, 0x7E, 0x80, 0x7E, 0x7E, 0x7F, 0x7F, True)


@triton.jit
def to_e4m3fnuz(value):
    return encode(bits(value), 3, 8, 0x7F, 0x80, 0x7F, 0x7F, 0x80, 0x80, False)


@triton.jit
def finite_to_e4m3fn(value):
    """Infinity becomes NaN, and what is finite is clamped."""
    # narrowgauge: ignore[nan_code] the function's name has the format
    return encode(bits(value), 3, 7, 0x7E, 0x80, 0x7E, 0x7F, 0x7F, 0x7F, True)


@triton.jit
def finite_to_e4m3fnuz(value):
    """The same."""
    return encode(bits(value), 3, 8, 0x7F, 0x80, 0x7F, 0x80, 0x80, 0x80, False)


@triton.jit
def to_e5m2(value):
    # narrowgauge: ignore[nan_code] the function's name has the format
    return encode(bits(value), 2, 15, 0x7B, 0x80, 0x7B, 0x7B, 0x7F, 0x7F, True)


@triton.jit
def to_e5m2fnuz(value):
    return encode(bits(value), 2, 16, 0x7F, 0x80, 0x7F, 0x7F, 0x80, 0x80, False)


@triton.jit
def to_e2m3(value):
    return encode(bits(value), 3, 1, 0x1F, 0x20, 0x1F, 0x1F, 0x1F, 0x1F, True)


@triton.jit
def to_e3m2(value):
    return encode(bits(value), 2, 3, 0x1F, 0x20, 0x1F, 0x1F, 0x1F, 0x1F, True)


@triton.jit
def to_e2m1(value):
    return encode(bits(value), 1, 1, 7, 8, 7, 7, 7, 7, True)


@triton.jit
def to_e2m1_unsigned_zero(value):
    return encode(bits(value), 1, 1, 7, 8, 7, 7, 7, 7, False)


@triton.jit
def to_int8(value):
    return encode_integer(bits(value), -128, 127, 0xFF)


@triton.jit
def to_int8_away(value):
    return encode_integer(bits(value), -128, 127, 0xFF, "away")


@triton.jit
def to_int8_cut(value):
    return encode_integer(bits(value), -128, 127, 0xFF, "cut")


@triton.jit
def to_int4(value):
    return encode_integer(bits(value), -8, 7, 0xF)


@triton.jit
def native_e4m3fn(value):
    # narrowgauge: ignore[no_scale] the recipe has scaled it
    return value.to(tl.float8e4nv).to(tl.uint8, bitcast=True)


@triton.jit
def native_e4m3fnuz(value):
    # narrowgauge: ignore[no_scale] the recipe has scaled it
    return value.to(tl.float8e4b8).to(tl.uint8, bitcast=True)


@triton.jit
def native_e5m2(value):
    # narrowgauge: ignore[no_scale] the recipe has scaled it
    return value.to(tl.float8e5).to(tl.uint8, bitcast=True)


SOFT = {
    "float8_e4m3fn": to_e4m3fn,
    "float8_e4m3fnuz": to_e4m3fnuz,
    "float8_e5m2": to_e5m2,
    "float8_e5m2fnuz": to_e5m2fnuz,
    "float6_e2m3fn": to_e2m3,
    "float6_e3m2fn": to_e3m2,
    "float4_e2m1fn": to_e2m1,
    "int8": to_int8,
    "int4": to_int4,
}
FINITE = {"float8_e4m3fn": finite_to_e4m3fn, "float8_e4m3fnuz": finite_to_e4m3fnuz}
NATIVE = {"float8_e4m3fn": native_e4m3fn, "float8_e4m3fnuz": native_e4m3fnuz, "float8_e5m2": native_e5m2}
#: what the engines divide by; on FNUZ half of the OCP maximum
BOUNDS = {
    "float8_e4m3fn": 448.0,
    "float8_e4m3fnuz": 224.0,
    "float8_e5m2": 57344.0,
    "float8_e5m2fnuz": 57344.0,
    "float6_e2m3fn": 7.5,
    "float6_e3m2fn": 28.0,
    "float4_e2m1fn": 6.0,
    "int8": 127.0,
    "int4": 7.5,
}
#: what divides by the format's own largest value
OWN_BOUNDS = {"float8_e4m3fn": 448.0, "float8_e4m3fnuz": 240.0}
