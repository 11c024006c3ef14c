"""The right float32 encoding by integer operations, in NumPy, for the numpy mutants to start from."""

from __future__ import annotations

import numpy as np


def split(x):
    """Sign bit, magnitude pattern, exponent field and 24-bit significand of float32 values, as int64."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.int64)
    magnitude = bits & 0x7FFFFFFF
    field = np.maximum(magnitude >> 23, 1)
    significand = np.where(magnitude >= 0x800000, magnitude & 0x7FFFFF | 0x800000, magnitude)
    return bits >> 31, magnitude, field, significand


def nearest_even(significand, shift):
    """``significand`` without its lowest ``shift`` bits, to nearest, ties to even."""
    return significand + (1 << shift - 1) - 1 + (significand >> shift & 1) >> shift


def magnitude_codes(field, significand, mantissa, bias):
    """Codes of magnitudes, as though the format's exponent had no end."""
    binade = np.maximum(field, 128 - bias)  # below it the destination is subnormal
    shift = np.minimum(23 - mantissa + binade - field, 25)
    return nearest_even(significand, shift) + (binade - (128 - bias) << mantissa)


def finish(codes, negative, magnitude, nan):
    """The sign bit of 8-bit codes, and NaN."""
    codes = np.where(negative == 1, codes | 0x80, codes)
    return np.where(magnitude > 0x7F800000, nan, codes).astype(np.uint8)
