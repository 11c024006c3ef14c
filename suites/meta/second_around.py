# SPDX-License-Identifier: Apache-2.0
"""A second derivation of what goes around recipes: one number at a time, exact fractions, one rounding per operation.

From the engines' words alone (reference/around says which); it shares nothing with the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import pairwise
from math import floor

from narrowgauge.suites.meta.second_derivation import Number, decode, is_zero
from narrowgauge.suites.meta.second_quantizers import divide, fmax, multiply
from narrowgauge.suites.meta.second_recipes import amax_drop, code, constant, float32_bits, power, rounded

ONE = Number("finite", False, Fraction(1))
ZERO = Number("finite", False, Fraction(0))


def exact(number: Number) -> Fraction:
    assert number.kind == "finite"
    return -number.magnitude if number.negative else number.magnitude


def real(value: Fraction) -> Number:
    return Number("finite", value < 0, abs(value))


def fl(value: Fraction) -> Number:
    """The float32 nearest to an exact number."""
    return rounded(real(value), "float32")


# ---------------- delayed scaling


def next_scale(history: Sequence[Number], scale: Number, bound: int, margin: int, reduction: str) -> Number:
    """The scale for the next call, from one tensor's entries: the newest first, then from the oldest on."""
    if reduction == "most_recent":
        amax = history[0]
    elif reduction == "max_or_nan" and any(h.kind == "nan" for h in history):
        return scale
    else:
        amax = reduce(fmax, history, ZERO)
    if amax.kind != "finite" or is_zero(amax):
        return scale
    found = divide(fl(Fraction(bound) / Fraction(2) ** margin), amax)
    return decode(0x7F7FFFFF, "float32") if found.kind == "inf" else found


def next_history(history: Sequence[Number]) -> list[Number]:
    """A new zero, then all but the oldest, then what was newest."""
    newest, *rest = history
    return [ZERO, *rest[1:], newest] if rest else [ZERO]


# ---------------- percentiles


def percentile(values: Sequence[Fraction], part: Fraction, rule: str) -> Fraction:
    """Along the line through (i / (n - 1), i-th magnitude), at a part of 1."""
    ordered = sorted(abs(v) for v in values)
    if len(ordered) == 1:
        return ordered[0]
    width = Fraction(1, len(ordered) - 1)
    for i, (low, high) in enumerate(pairwise(ordered)):
        left, right = i * width, (i + 1) * width
        if part == left or (rule == "lower" and left <= part < right):
            return low
        if part == right or (rule == "higher" and left < part < right):
            return high
        if left < part < right:
            return (low * (right - part) + high * (part - left)) / width
    raise AssertionError("no place for it")


# ---------------- SmoothQuant


def is_nearest_power(found: Number, base: Fraction, exponent: Fraction) -> bool:
    """Whether a float32 is the nearest to base^exponent: its neighbours' midpoints to the q-th power bracket base^p."""
    bits = float32_bits(found)
    if base == 0 or exponent == 0:
        return exact(found) == (1 if exponent == 0 else 0)
    below, above = (exact(decode(bits + step, "float32")) for step in (-1, 1))
    q, target = exponent.denominator, base**exponent.numerator
    return ((below + exact(found)) / 2) ** q <= target <= ((above + exact(found)) / 2) ** q


# ---------------- Hadamard


def by_matrix(row: Sequence[Fraction], signs: Sequence[int], block: int) -> list[Fraction]:
    """H D x by its definition, block by block."""
    turned = [s * v for s, v in zip(signs, row, strict=True)]
    return [
        sum((-1) ** (i & j).bit_count() * turned[start + j] for j in range(block)) + Fraction(0)
        for start in range(0, len(row), block)
        for i in range(block)
    ]


def by_halves(row: Sequence[Number]) -> list[Number]:
    """H x in float32: both halves first, then their sums and differences, each rounded."""
    if len(row) == 1:
        return list(row)
    middle = len(row) // 2
    first, second = by_halves(row[:middle]), by_halves(row[middle:])
    pairs = [(exact(a), exact(b)) for a, b in zip(first, second, strict=True)]
    return [fl(a + b) for a, b in pairs] + [fl(a - b) for a, b in pairs]


# ---------------- zero points


@dataclass(frozen=True)
class Affine:
    """Codes of a block, its scale and its zero point."""

    codes: list[int]
    scale: Number
    zero_point: int


def _half_away(x: Fraction) -> int:
    """+0.5 in float32, then toward zero; below zero -0.5."""
    half = Fraction(1, 2) if x >= 0 else Fraction(-1, 2)
    return int(exact(fl(x + half)))


def int4_head(block: Sequence[Number]) -> Affine:
    """scale = max((max - min) / 15, 1e-6); zero point and codes are held to 0 .. 15."""
    values = [exact(x) for x in block]
    low, high = min(values), max(values)
    scale = fmax(divide(fl(high - low), fl(Fraction(15))), constant(1e-6))
    zero = min(max(_half_away(exact(divide(real(-low), scale))), 0), 15)
    inverse = divide(ONE, scale)
    codes = [_half_away(exact(fl(exact(multiply(x, inverse)) + zero))) for x in block]
    return Affine([min(max(c, 0), 15) for c in codes], scale, zero)


def _nearest_even(x: Fraction) -> int:
    whole = floor(x)
    rest = x - whole
    return whole + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1))


def with_zero(lowest: int, highest: int) -> Callable[[Sequence[Number]], Affine]:
    """compressed-tensors: 0 belongs to the range; zero point lowest - min / scale, held, then nearest even."""

    def rule(block: Sequence[Number]) -> Affine:
        values = [exact(x) for x in block]
        low, high = min([*values, Fraction(0)]), max([*values, Fraction(0)])
        scale = divide(fl(high - low), real(Fraction(highest - lowest)))
        if is_zero(scale):
            scale, zero = power(-23), 0
        else:
            raw = exact(fl(lowest - exact(divide(real(low), scale))))
            zero = _nearest_even(min(max(raw, Fraction(lowest)), Fraction(highest)))
        codes = [_nearest_even(exact(fl(exact(divide(x, scale)) + zero))) for x in block]
        return Affine([min(max(c, lowest), highest) for c in codes], scale, zero)

    return rule


#: finite blocks in which (max - min) / scale stays finite
ASYMMETRIC: Mapping[str, Callable[[Sequence[Number]], Affine]] = {
    "vllm.int4_per_token_head": int4_head,
    "compressed_tensors.int8_token_asymmetric": with_zero(-128, 127),
    "compressed_tensors.int4_group_asymmetric": with_zero(-8, 7),
}


# ---------------- four over six


@dataclass(frozen=True)
class Candidate:
    codes: list[int]
    scale: int
    error: Number


def _reciprocal(x: Number) -> Number:
    """rcp.approx.ftz, its answer the nearest: subnormals are zeros before and after."""

    def flushed(y: Number) -> Number:
        return Number("finite", y.negative, Fraction(0)) if _is_subnormal(y) else y

    return flushed(divide(ONE, flushed(x)))


def _is_subnormal(x: Number) -> bool:
    return x.kind == "finite" and x.magnitude < Fraction(2) ** -126


def candidate(block: Sequence[Number], global_scale: Number, top: int, threads: int) -> Candidate:
    """One of the two ways to quantize a block of 16, and the error of it in the kernel's order."""
    sf = multiply(global_scale, multiply(amax_drop(block), _reciprocal(real(Fraction(top)))))
    stored = code(sf, "float8_e4m3fn")
    held = decode(stored, "float8_e4m3fn")
    out = ZERO if is_zero(held) else _reciprocal(multiply(held, _reciprocal(global_scale)))
    back = ZERO if is_zero(out) else _reciprocal(out)
    codes = [code(multiply(x, out), "float4_e2m1fn") for x in block]
    squares = []
    for x, c in zip(block, codes, strict=True):
        d = fl(exact(multiply(decode(c, "float4_e2m1fn"), back)) - exact(x))
        squares.append(exact(multiply(d, d)))
    sums = []
    each = len(block) // threads
    for start in range(0, len(block), each):
        total = ZERO
        for i in range(start, start + each, 2):
            total = fl(exact(total) + exact(fl(squares[i] + squares[i + 1])))
        sums.append(exact(total))
    return Candidate(codes, stored, fl(sum(sums, Fraction(0))))


def four_over_six(block: Sequence[Number], global_scale: Number, threads: int) -> Candidate:
    six, four = (candidate(block, global_scale, top, threads) for top in (6, 4))
    return four if exact(four.error) < exact(six.error) else six
