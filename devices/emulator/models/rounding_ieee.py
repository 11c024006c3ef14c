"""Rounding between float64, float32, float16 and bfloat16 (as uint16 patterns)."""

from __future__ import annotations

import numpy as np

from narrowgauge.devices.emulator.memory import Array


def float32_of_bf16(bits: Array) -> Array:
    """Exact."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def bf16_of(x: Array) -> Array:
    """float32 to bfloat16, nearest even; NaN is 0x7fff."""
    bits = x.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(x), np.uint32(0x7FFF), rounded).astype(np.uint16)


def bf16_towards_zero(x: Array) -> Array:
    """float32 to bfloat16, bits cut off; NaN is 0x7fff."""
    return np.where(np.isnan(x), np.uint32(0x7FFF), x.view(np.uint32) >> 16).astype(np.uint16)


def float32_to_odd(x: Array) -> Array:
    """float64 to float32: exact, or that neighbour whose last bit is 1, so that a second rounding is the only one."""
    near = x.astype(np.float32)
    bits = near.view(np.uint32)
    towards_zero = bits - (np.abs(near) > np.abs(x))
    inexact = (near != x) & ~np.isnan(x)
    return np.where(inexact, towards_zero | 1, bits).astype(np.uint32).view(np.float32)


def float16_towards_zero(x: Array) -> Array:
    """float32 to float16."""
    near = x.astype(np.float16)
    return (near.view(np.uint16) - (np.abs(near.astype(np.float32)) > np.abs(x))).astype(np.uint16).view(np.float16)
