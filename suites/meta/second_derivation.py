# SPDX-License-Identifier: Apache-2.0
"""A second derivation of the cast and quantizer oracle, in exact rational arithmetic.

Written from the specification alone, so that agreement with the first derivation means something. Values
are `fractions.Fraction`, codes are integers, and numpy only holds the arrays of the two batch functions.

The one idea: in every format here, the code without its sign bit (the *rank*) counts the non-negative
values of the format in order. Continuing that count past the largest finite value gives the grid "as
though the exponent range were unbounded above", so rounding yields a rank, and an overflow is a rank
above the largest allowed one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, reduce
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Number:
    """A decoded value: `kind` is "finite", "inf" or "nan"; zeros keep their sign in `negative`.

    `magnitude` is the absolute value, and 0 where the kind is not "finite".
    """

    kind: str
    negative: bool
    magnitude: Fraction


@dataclass(frozen=True)
class Layout:
    """One format: field widths, bias, and the codes (sign bit clear) that have a special part."""

    exponent_bits: int
    mantissa_bits: int
    bias: int
    largest: int  # code of the largest finite value
    infinity: int | None
    nan: int  # the NaN code that a cast returns
    has_negative_zero: bool

    @property
    def sign_bit(self) -> int:
        """The weight of the sign bit, which is also the number of ranks."""
        return 1 << (self.exponent_bits + self.mantissa_bits)

    @property
    def finest(self) -> int:
        """The exponent of the spacing of subnormals (and of the lowest normal binade)."""
        return 1 - self.bias - self.mantissa_bits


# OCP 8-bit Floating Point Specification rev 1.0 for E4M3; LLVM APFloat and ONNX for FNUZ; IEEE-754 layouts.
LAYOUTS: Mapping[str, Layout] = {
    "float8_e4m3fn": Layout(4, 3, 7, 0x7E, None, 0x7F, True),
    "float8_e4m3fnuz": Layout(4, 3, 8, 0x7F, None, 0x80, False),
    "float16": Layout(5, 10, 15, 0x7BFF, 0x7C00, 0x7E00, True),
    "bfloat16": Layout(8, 7, 127, 0x7F7F, 0x7F80, 0x7FC0, True),
    "float32": Layout(8, 23, 127, 0x7F7F_FFFF, 0x7F80_0000, 0x7FC0_0000, True),
}

# The policy's choices; its one other field, `limit`, takes None or a value.
CHOICES: Mapping[str, tuple[str, ...]] = {
    "rounding": ("nearest_even", "nearest_away", "nearest_zero", "toward_zero", "up", "down"),
    "overflow": ("max", "special"),
    "infinity": ("max", "special"),
    "nan": ("nan", "max", "zero"),
    "negative_zero": ("keep", "drop"),
    "subnormals": ("keep", "flush"),
}


@dataclass(frozen=True)
class _Rule:
    """A policy checked and bound to one destination: `limit` has become the largest allowed rank."""

    layout: Layout
    largest: int
    rounding: str
    overflow: str
    infinity: str
    nan: str
    negative_zero: str
    subnormals: str


# ---------------- formats


def _rank_magnitude(rank: int, layout: Layout) -> Fraction:
    """The magnitude that the exponent and mantissa fields of a finite code stand for (format clause)."""
    field, significand = divmod(rank, 1 << layout.mantissa_bits)
    if field == 0:  # subnormal: no hidden bit, and the spacing of field 1
        return significand * Fraction(2) ** layout.finest
    return (significand + (1 << layout.mantissa_bits)) * Fraction(2) ** (layout.finest + field - 1)


@lru_cache(maxsize=1 << 17)
def decode(code: int, format: str) -> Number:
    """The value of a code (format clauses). Raises ValueError for a code wider than the format."""
    layout = LAYOUTS[format]
    code = index(code)  # a numpy integer would overflow in the shifts
    if not 0 <= code < 2 * layout.sign_bit:
        raise ValueError(f"{code:#x} is not a code of {format}")
    negative, rank = code >= layout.sign_bit, code % layout.sign_bit
    if negative and rank == 0 and not layout.has_negative_zero:
        return Number("nan", negative, Fraction(0))  # FNUZ keeps its only NaN where -0 would be
    if rank <= layout.largest:
        return Number("finite", negative, _rank_magnitude(rank, layout))
    return Number("inf" if rank == layout.infinity else "nan", negative, Fraction(0))


# ---------------- rounding


def _floor_log2(value: Fraction) -> int:
    """The e with 2**e <= value < 2**(e + 1), for a positive value."""
    guess = value.numerator.bit_length() - value.denominator.bit_length()  # e, or one too many
    below = value.numerator << max(-guess, 0) < value.denominator << max(guess, 0)
    return guess - below


def _steps_outward(rounding: str, negative: bool, odd: bool, rest: int, whole: int) -> bool:
    """Whether a magnitude that lies 0 < rest/whole < 1 of a spacing past a grid point goes to the next one.

    `odd` is the parity of the significand at the nearer-to-zero point (policy clause "rounding").
    """
    if rounding == "toward_zero":
        return False
    if rounding in ("up", "down"):
        return negative == (rounding == "down")
    if 2 * rest != whole:
        return 2 * rest > whole
    return rounding == "nearest_away" or (rounding == "nearest_even" and odd)


def _round_to_rank(magnitude: Fraction, negative: bool, layout: Layout, rounding: str) -> int:
    """The rank of the rounded magnitude, on the grid that has no largest value (policy clause "rounding")."""
    if magnitude == 0:
        return 0
    spacing = max(_floor_log2(magnitude) - layout.mantissa_bits, layout.finest)
    whole = magnitude.denominator << max(spacing, 0)
    significand, rest = divmod(magnitude.numerator << max(-spacing, 0), whole)
    if rest and _steps_outward(rounding, negative, significand % 2 == 1, rest, whole):
        significand += 1
    # The hidden bit adds one to the exponent field, and a significand that carried out adds one more.
    return ((spacing - layout.finest) << layout.mantissa_bits) + significand


# ---------------- cast


def _limit_rank(limit: object, layout: Layout) -> int:
    """The rank of the largest allowed magnitude (policy clause "limit")."""
    if limit is None:
        return layout.largest
    if not isinstance(limit, int | float | Fraction):
        raise TypeError(f"limit is None or a number, not {limit!r}")
    value = Fraction(limit)
    rank = _round_to_rank(abs(value), False, layout, "toward_zero")
    if value < 0 or rank > layout.largest or _rank_magnitude(rank, layout) != value:
        raise ValueError(f"limit {limit!r} is not a non-negative value of the format")
    return rank


def _bind(policy: Mapping[str, object], format: str) -> _Rule:
    """Check a policy and bind it to a destination. Every field is named: none has a default."""
    if set(policy) != {*CHOICES, "limit"}:
        raise ValueError(f"a policy has the fields {sorted([*CHOICES, 'limit'])}, not {sorted(policy)}")
    for field, choices in CHOICES.items():
        if policy[field] not in choices:
            raise ValueError(f"{field} is one of {choices}, not {policy[field]!r}")
    layout = LAYOUTS[format]
    return _Rule(layout, _limit_rank(policy["limit"], layout), **{field: str(policy[field]) for field in CHOICES})


def _special(negative: bool, layout: Layout) -> int:
    """Infinity with the sign where the format has one, else NaN (policy clauses "overflow", "infinity")."""
    if layout.infinity is None:
        return layout.nan
    return layout.infinity + negative * layout.sign_bit


def _finish(rank: int, negative: bool, rule: _Rule) -> int:
    """The code of a finite result (policy clauses "subnormals", then "negative_zero")."""
    if rule.subnormals == "flush" and rank < 1 << rule.layout.mantissa_bits:
        rank = 0
    if rank == 0 and not (rule.layout.has_negative_zero and rule.negative_zero == "keep"):
        negative = False
    return rank + negative * rule.layout.sign_bit


def _cast(number: Number, rule: _Rule) -> int:
    """`cast` under a bound policy."""
    if number.kind == "nan":  # policy clause "nan": the sign of the NaN plays no part
        if rule.nan == "nan":
            return rule.layout.nan
        return _finish(rule.largest if rule.nan == "max" else 0, False, rule)
    if number.kind == "inf":
        if rule.infinity == "special":
            return _special(number.negative, rule.layout)
        return _finish(rule.largest, number.negative, rule)
    rank = _round_to_rank(number.magnitude, number.negative, rule.layout, rule.rounding)
    if rank > rule.largest and rule.overflow == "special":
        return _special(number.negative, rule.layout)
    return _finish(min(rank, rule.largest), number.negative, rule)


def cast(number: Number, format: str, policy: Mapping[str, object]) -> int:
    """The code that `number` becomes in `format` under the cast policy."""
    return _cast(number, _bind(policy, format))


def cast_codes(
    codes: Sequence[int] | npt.NDArray[np.integer[Any]], source: str, format: str, policy: Mapping[str, object]
) -> Codes:
    """`cast` of every code of `source`; the result has the shape of the input."""
    rule = _bind(policy, format)
    given = np.asarray(codes)
    results = [_cast(decode(code, source), rule) for code in given.ravel().tolist()]
    return np.array(results, dtype=np.uint32).reshape(given.shape)


# ---------------- steps in float32

# fmt: off
_IEEE: Mapping[str, object] = {
    "rounding": "nearest_even", "limit": None, "overflow": "special", "infinity": "special",
    "nan": "nan", "negative_zero": "keep", "subnormals": "keep",
}
# fmt: on
_TO_FLOAT32 = _bind(_IEEE, "float32")
_NAN = Number("nan", False, Fraction(0))


def _fl32(number: Number) -> Number:
    """The float32 nearest to an exact result: one rounding, overflow to infinity (float32 clause)."""
    return decode(_cast(number, _TO_FLOAT32), "float32")


def _whole(value: int) -> Number:
    """An integer as a Number."""
    return Number("finite", value < 0, Fraction(abs(value)))


def _is_zero(number: Number) -> bool:
    return number.kind == "finite" and number.magnitude == 0


def multiply(a: Number, b: Number) -> Number:
    """fl32(a * b) (float32 clause)."""
    kinds, negative = (a.kind, b.kind), a.negative != b.negative
    if "nan" in kinds:
        return _NAN
    if "inf" in kinds:
        return _NAN if _is_zero(a) or _is_zero(b) else Number("inf", negative, Fraction(0))
    return _fl32(Number("finite", negative, a.magnitude * b.magnitude))


def divide(a: Number, b: Number) -> Number:
    """fl32(a / b) (float32 clause)."""
    kinds, negative = (a.kind, b.kind), a.negative != b.negative
    if "nan" in kinds or kinds == ("inf", "inf") or (_is_zero(a) and _is_zero(b)):
        return _NAN
    if a.kind == "inf" or _is_zero(b):
        return Number("inf", negative, Fraction(0))
    if b.kind == "inf":
        return Number("finite", negative, Fraction(0))
    return _fl32(Number("finite", negative, a.magnitude / b.magnitude))


def _order(number: Number) -> tuple[int, Fraction]:
    """A key that sorts Numbers other than NaN: infinities outside, zeros of either sign equal."""
    sign = -1 if number.negative else 1
    return (sign if number.kind == "inf" else 0, sign * number.magnitude)


def fmax(a: Number, b: Number) -> Number:
    """fmax of C: of one NaN and one other operand, the other (float32 clause)."""
    if "nan" in (a.kind, b.kind):
        return b if a.kind == "nan" else a
    return max(a, b, key=_order)


def fmin(a: Number, b: Number) -> Number:
    """fmin of C: of one NaN and one other operand, the other (float32 clause)."""
    if "nan" in (a.kind, b.kind):
        return b if a.kind == "nan" else a
    return min(a, b, key=_order)


# ---------------- quantizers

BOUNDS: Mapping[str, int] = {"float8_e4m3fn": 448, "float8_e4m3fnuz": 224}
RECIPES = ("vllm.fp8_per_token_dynamic", "sglang.fp8_per_token_cta")
# Quantizer clause "code": the clamp before the cast leaves neither overflow nor NaN for it to see.
_TO_FLOAT8 = {format: _bind({**_IEEE, "overflow": "max", "infinity": "max"}, format) for format in BOUNDS}


def quantize_row(row: Sequence[Number], recipe: str, format: str) -> tuple[list[int], int]:
    """The codes of a row, and the float32 bits of its scale (quantizer clauses)."""
    if recipe not in RECIPES:
        raise ValueError(f"recipe is one of {RECIPES}, not {recipe!r}")
    one, bound, lowest = _whole(1), _whole(BOUNDS[format]), _whole(-BOUNDS[format])
    amax = reduce(fmax, (Number(x.kind, False, x.magnitude) for x in row), _whole(0))
    scale = divide(amax, bound)
    if recipe == "vllm.fp8_per_token_dynamic":
        scale = fmax(scale, divide(one, multiply(bound, _whole(512))))
        scaled = [divide(x, scale) for x in row]
    else:
        inverse = divide(one, scale)
        scaled = [multiply(x, inverse) for x in row]
    # fmin comes first, so a NaN becomes +bound.
    clamped = [fmax(fmin(y, bound), lowest) for y in scaled]
    return [_cast(y, _TO_FLOAT8[format]) for y in clamped], _cast(scale, _TO_FLOAT32)


def quantize_codes(codes: npt.NDArray[np.integer[Any]], source: str, recipe: str, format: str) -> tuple[Codes, Codes]:
    """`quantize_row` of every row of a 2-D array of `source` codes: codes, and scale bits of shape (rows,)."""
    pairs = [quantize_row([decode(code, source) for code in row], recipe, format) for row in codes.tolist()]
    results = np.array([row for row, _ in pairs], dtype=np.uint32).reshape(codes.shape)
    return results, np.array([scale for _, scale in pairs], dtype=np.uint32)
