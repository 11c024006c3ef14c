"""Definite models of narrow sums: what comes out of a product that is kept in too few bits, step by step.

Numbers are float64: a [M, K], b [N, K] to [M, N]. One step adds so many products exactly to what there is, and rounds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.reference.fast_codec import cast, decode_values
from narrowgauge.reference.matmul.multiplying import F64, Dot
from narrowgauge.reference.units.families import Truncating
from narrowgauge.reference.units.operands import Side, exponents, least_exponent
from narrowgauge.reference.units.rounding import FLOAT16, FLOAT32, nearest

#: products of one step of a chain
STEPS = (1, 4, 8, 16, 32, 64, 128, 256)
#: exponent with which zero terms count in a unit of fp8: below all that count here
_NO_TERM = -133
Rounding = Callable[[F64], F64]


def rounding_to(format_name: str) -> Rounding:
    """The nearest number of a format of 16 bits and more."""
    fmt = format_named(format_name)
    span = FLOAT16 if fmt.exponent == 5 else FLOAT32
    return lambda values: nearest(values, fmt.mantissa, span)


def narrowly(format_name: str) -> Rounding:
    """The nearest number of a format of few bits; NaN or infinity beyond the largest."""
    policy = CastPolicy(overflow="special", infinity="special")

    def rounded(values: F64) -> F64:
        wide = Coded("float64", np.ascontiguousarray(values).view(np.uint64))
        return decode_values(cast(wide, format_name, policy))

    return rounded


def chain(format_name: str, step: int) -> Dot:
    """Each step's products are added to a sum that is rounded to a format."""
    return chain_of(rounding_to(format_name), step)


def chain_of(rounded: Rounding, step: int) -> Dot:
    """The same by any rounding."""

    def dot(a: F64, b: F64) -> F64:
        total = np.zeros((len(a), len(b)))
        for start in range(0, a.shape[1], step):
            cut = slice(start, start + step)
            total = rounded(total + a[:, cut] @ b[:, cut].T)
        return total

    return dot


def tile_sums(format_name: str, step: int) -> Dot:
    """The sum of each tile is rounded to a format, and added to a float32."""
    rounded, wide = rounding_to(format_name), rounding_to("float32")

    def dot(a: F64, b: F64) -> F64:
        total = np.zeros((len(a), len(b)))
        for start in range(0, a.shape[1], step):
            cut = slice(start, start + step)
            total = wide(total + rounded(a[:, cut] @ b[:, cut].T))
        return total

    return dot


def thirteen_bits(format_name: str, step: int) -> Dot:
    """The fp8 unit of Ada (steps of 16) or Hopper (32), which keeps 13 bits of fraction, over all of K."""
    unit, least = Truncating(step, 13, 13, _NO_TERM), least_exponent(format_named(format_name))

    def dot(a: F64, b: F64) -> F64:
        left, right = (Side(m, exponents(m, least)) for m in (a.T[:, :, None], b.T[:, None, :]))
        total = np.zeros((len(a), len(b)))
        for start in range(0, a.shape[1], step):
            total = unit.step(left.cut(start, start + step), right.cut(start, start + step), total)
        return total

    return dot


def wrapped(bits: int) -> Dot:
    """Integer sums that keep their lowest bits."""
    half, whole = 2.0 ** (bits - 1), 2.0**bits
    return lambda a, b: (a @ b.T + half) % whole - half
