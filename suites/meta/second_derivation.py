# SPDX-License-Identifier: Apache-2.0
"""A second derivation of the cast and quantizer oracle, in exact rational arithmetic.

Written from the specification alone, so that agreement with the first derivation means something. Values
are `fractions.Fraction`, codes are integers, and numpy only holds the arrays of the two batch functions.

The one idea: in every format here, the code without its sign bit (the *rank*) counts the non-negative
values of the format in order. Continuing that count past the largest finite value gives the grid "as
though the exponent range were unbounded above", so rounding yields a rank, and an overflow is a rank
above the largest allowed one. Two families stretch the idea a little: an integer format is a float that
has only subnormals, spaced by 1; E8M0 has no zero, so its code 0 is rank 1.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache, partial
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
    """One format: field widths, bias, the codes (sign bit clear) that have a special part, and the sign.

    `sign` is "bit", "complement" (two's complement) or "none" (unsigned); `first` is the rank of code 0.
    """

    exponent_bits: int
    mantissa_bits: int
    bias: int
    largest: int  # code of the largest finite value
    infinity: int | None
    nan: int | None  # the NaN code that a cast returns
    has_negative_zero: bool
    sign: str = "bit"
    first: int = 0

    @cached_property
    def sign_bit(self) -> int:
        """The weight of the sign bit, which is also the number of codes without it."""
        return 1 << (self.exponent_bits + self.mantissa_bits)

    @cached_property
    def codes(self) -> int:
        """The number of codes."""
        return self.sign_bit if self.sign == "none" else 2 * self.sign_bit

    @cached_property
    def is_integer(self) -> bool:
        """Whether the values are integers, which is to say that the only spacing is 1."""
        return self.exponent_bits == 0

    @cached_property
    def finest(self) -> int:
        """The exponent of the spacing of subnormals (and of the lowest normal binade)."""
        return 1 - self.bias - self.mantissa_bits


# IEEE-754 layouts; OCP 8-bit Floating Point Specification rev 1.0 for E4M3; LLVM APFloat and ONNX for FNUZ;
# OCP Microscaling (MX) rev 1.0 for the 4- and 6-bit formats and E8M0.
LAYOUTS: Mapping[str, Layout] = {
    "float8_e4m3fn": Layout(4, 3, 7, 0x7E, None, 0x7F, True),
    "float8_e4m3fnuz": Layout(4, 3, 8, 0x7F, None, 0x80, False),
    "float8_e4m3b11fnuz": Layout(4, 3, 11, 0x7F, None, 0x80, False),
    "float8_e5m2fnuz": Layout(5, 2, 16, 0x7F, None, 0x80, False),
    "float8_e5m2": Layout(5, 2, 15, 0x7B, 0x7C, 0x7E, True),
    "float8_e4m3": Layout(4, 3, 7, 0x77, 0x78, 0x7C, True),
    "float8_e3m4": Layout(3, 4, 3, 0x6F, 0x70, 0x78, True),
    "float6_e2m3fn": Layout(2, 3, 1, 0x1F, None, None, True),
    "float6_e3m2fn": Layout(3, 2, 3, 0x1F, None, None, True),
    "float4_e2m1fn": Layout(2, 1, 1, 0x7, None, None, True),
    # Code c is 2**(c - 127): the exponent field, counted from rank 1, is one ahead of the code, so the bias is too.
    "float8_e8m0fnu": Layout(8, 0, 128, 0xFE, None, 0xFF, False, "none", first=1),
    "float16": Layout(5, 10, 15, 0x7BFF, 0x7C00, 0x7E00, True),
    "bfloat16": Layout(8, 7, 127, 0x7F7F, 0x7F80, 0x7FC0, True),
    "tfloat32": Layout(8, 10, 127, 0x3_FBFF, 0x3_FC00, 0x3_FE00, True),
    "float32": Layout(8, 23, 127, 0x7F7F_FFFF, 0x7F80_0000, 0x7FC0_0000, True),
    "float64": Layout(11, 52, 1023, 0x7FEF_FFFF_FFFF_FFFF, 0x7FF0_0000_0000_0000, 0x7FF8_0000_0000_0000, True),
    # Of an integer, the bits below the sign are all mantissa, and the bias makes the spacing 1.
    "int8": Layout(0, 7, -6, 0x7F, None, None, False, "complement"),
    "int4": Layout(0, 3, -2, 0x7, None, None, False, "complement"),
    "int32": Layout(0, 31, -30, 0x7FFF_FFFF, None, None, False, "complement"),
    "uint8": Layout(0, 8, -7, 0xFF, None, None, False, "none"),
    "uint4": Layout(0, 4, -3, 0xF, None, None, False, "none"),
}
SOURCES_ONLY = ("float64",)

# The policy's choices; its one other field, `limit`, takes None or a value.
CHOICES: Mapping[str, tuple[str, ...]] = {
    "rounding": ("nearest_even", "nearest_away", "nearest_zero", "toward_zero", "up", "down"),  # and `stochastic`
    "overflow": ("max", "special"),
    "infinity": ("max", "special"),
    "nan": ("nan", "max", "min", "signed_max", "zero", "opposite_zero"),
    "negative_zero": ("keep", "drop"),
    "subnormals": ("keep", "flush"),
    "negative": ("smallest", "magnitude", "nan"),
    "zero": ("smallest", "nan"),
}
# The fields that a policy may leave out: `negative` matters to unsigned formats only, `zero` to E8M0, `zero_point` to
# integers.
DEFAULTS: Mapping[str, object] = {"negative": "smallest", "zero": "smallest", "zero_point": 0}


@dataclass(frozen=True)
class Bound:
    """A policy checked and bound to one destination: `limit` has become the largest allowed rank."""

    layout: Layout
    largest: int
    rounding: str
    overflow: str
    infinity: str
    nan: str
    negative_zero: str
    subnormals: str
    negative: str
    zero: str
    zero_point: int
    limited: bool  # whether the policy has a limit


# ---------------- formats


def _rank_magnitude(rank: int, layout: Layout) -> Fraction:
    """The magnitude that the exponent and mantissa fields of a finite code stand for (format clause)."""
    field, significand = divmod(rank, 1 << layout.mantissa_bits)
    if field == 0:  # subnormal: no hidden bit, and the spacing of field 1
        return _scaled(significand, layout.finest)
    return _scaled(significand + (1 << layout.mantissa_bits), layout.finest + field - 1)


def _scaled(integer: int, exponent: int) -> Fraction:
    """integer * 2**exponent."""
    return Fraction(integer << exponent) if exponent >= 0 else Fraction(integer, 1 << -exponent)


@lru_cache(maxsize=1 << 18)  # two whole formats of 16 bits, in turns, and all of the narrow ones
def decode(code: int, format: str) -> Number:
    """The value of a code (format clauses). Raises ValueError for a code wider than the format."""
    layout = LAYOUTS[format]
    code = index(code)  # a numpy integer would overflow in the shifts
    if not 0 <= code < layout.codes:
        raise ValueError(f"{code:#x} is not a code of {format}")
    negative, rest = code >= layout.sign_bit, code % layout.sign_bit
    if negative and layout.sign == "complement":
        return whole_number(rest - layout.sign_bit)
    if negative and rest == 0 and not layout.has_negative_zero:
        return Number("nan", negative, Fraction(0))  # FNUZ keeps its only NaN where -0 would be
    if rest <= layout.largest:
        return Number("finite", negative, _rank_magnitude(rest + layout.first, layout))
    return Number("inf" if rest == layout.infinity else "nan", negative, Fraction(0))


def whole_number(value: int) -> Number:
    """An integer as a Number."""
    return Number("finite", value < 0, Fraction(abs(value)))


def is_zero(number: Number) -> bool:
    return number.kind == "finite" and not number.magnitude


# ---------------- rounding

# Whether a magnitude that lies 0 < rest/whole < 1 of a spacing past a grid point goes to the next one, given
# (odd, rest, whole), where `odd` is the parity of the code at the grid point nearer to zero.
Outward = Callable[[bool, int, int], bool]


def _floor_log2(value: Fraction) -> int:
    """The e with 2**e <= value < 2**(e + 1), for a positive value."""
    above, under = value.as_integer_ratio()
    guess = above.bit_length() - under.bit_length()  # e, or one too many
    below = above < under << guess if guess >= 0 else above << -guess < under
    return guess - below


def _steps_outward(rounding: str, negative: bool, odd: bool, rest: int, whole: int) -> bool:
    """The `Outward` of a rounding mode, for a value of the given sign (policy clause "rounding")."""
    if rounding == "toward_zero":
        return False
    if rounding in ("up", "down"):
        return negative == (rounding == "down")
    if 2 * rest != whole:
        return 2 * rest > whole
    return rounding == "nearest_away" or (rounding == "nearest_even" and odd)


def _round_to_rank(magnitude: Fraction, layout: Layout, outward: Outward) -> int:
    """The rank of the rounded magnitude, on the grid that has no largest value (policy clause "rounding")."""
    above, under = magnitude.as_integer_ratio()
    if above == 0:
        return 0
    spacing = max(_floor_log2(magnitude) - layout.mantissa_bits, layout.finest)
    if spacing >= 0:
        whole = under << spacing
    else:
        whole, above = under, above << -spacing
    significand, rest = divmod(above, whole)
    # The hidden bit adds one to the exponent field, and a significand that carries out will add one more.
    rank = ((spacing - layout.finest) << layout.mantissa_bits) + significand
    if rest and outward((rank - layout.first) % 2 == 1, rest, whole):
        rank += 1
    return max(rank, layout.first)  # where there is no zero, the smallest value stands for all below it


# ---------------- cast


def _limit_rank(limit: object, layout: Layout) -> int:
    """The rank of the largest allowed magnitude (policy clause "limit")."""
    largest = layout.largest + layout.first
    if limit is None:
        return largest
    if not isinstance(limit, int | float | Fraction):
        raise TypeError(f"limit is None or a number, not {limit!r}")
    value = Fraction(limit)
    rank = _round_to_rank(abs(value), layout, lambda odd, rest, whole: False)
    if value < 0 or not layout.first <= rank <= largest or _rank_magnitude(rank, layout) != value:
        raise ValueError(f"limit {limit!r} is not a non-negative value of the format")
    return rank


def bind(policy: Mapping[str, object], format: str) -> Bound:
    """Check a policy and bind it to a destination. Every field is named, save that `DEFAULTS` fills in some."""
    given = {**DEFAULTS, **policy}
    if set(given) != {*CHOICES, "limit", "zero_point"}:
        raise ValueError(f"a policy has the fields {sorted([*CHOICES, 'limit', 'zero_point'])}, not {sorted(given)}")
    for field, choices in CHOICES.items():
        if given[field] not in choices:
            raise ValueError(f"{field} is one of {choices}, not {given[field]!r}")
    if format in SOURCES_ONLY:
        raise ValueError(f"{format} is a source only")
    layout = LAYOUTS[format]
    if layout.is_integer:  # these clauses are about floats: an integer saturates, at the ends of its range
        given |= {"overflow": "max", "infinity": "max", "subnormals": "keep"}
    zero_point = given["zero_point"]
    if not isinstance(zero_point, int):
        raise TypeError(f"zero_point is an integer, not {zero_point!r}")
    chosen = {field: str(given[field]) for field in CHOICES}
    limited = given["limit"] is not None
    return Bound(layout, _limit_rank(given["limit"], layout), **chosen, zero_point=zero_point, limited=limited)


def _nan(layout: Layout) -> int:
    """The NaN of a format; ValueError where it has none, since no policy for it may ask for one."""
    if layout.nan is None:
        raise ValueError("the policy asks for a NaN, and the format has none")
    return layout.nan


def _special(negative: bool, layout: Layout) -> int:
    """Infinity with the sign where the format has one, else NaN (policy clauses "overflow", "infinity")."""
    if layout.infinity is None:
        return _nan(layout)
    return layout.infinity + negative * layout.sign_bit


def _finish(rank: int, negative: bool, rule: Bound) -> int:
    """The code of a finite result (policy clauses "subnormals", then "negative_zero")."""
    layout = rule.layout
    if rule.subnormals == "flush" and rank < 1 << layout.mantissa_bits:
        rank = 0
    if rank == 0 and not (layout.has_negative_zero and rule.negative_zero == "keep"):
        negative = False
    return rank - layout.first + negative * layout.sign_bit


def _stand_in(number: Number, rule: Bound) -> Number:
    """The finite value that the policy puts in place of a NaN or an infinity, if it does (its "nan", "infinity")."""

    def largest(negative: bool) -> Number:
        return Number("finite", negative, _rank_magnitude(rule.largest, rule.layout))

    if number.kind == "inf" and rule.infinity == "max":
        return largest(number.negative)
    if number.kind == "nan" and rule.nan in ("max", "min", "signed_max"):
        return largest(rule.nan == "min" or (rule.nan == "signed_max" and number.negative))
    return number


def cast_bound(number: Number, rule: Bound, outward: Outward | None = None) -> int:
    """`cast` under a bound policy; `outward`, where given, takes the place of the policy's rounding mode."""
    layout = rule.layout
    if layout.is_integer:
        return _integer(number, rule)
    if number.kind == "nan" and rule.nan in ("zero", "opposite_zero"):
        # What stands for a NaN is final: the clauses on zeros speak of values, and a NaN is none.
        return layout.sign_bit if rule.nan == "opposite_zero" and not number.negative else 0
    if number.kind != "finite":
        number = _stand_in(number, rule)
    if number.kind == "nan":
        return _nan(layout)
    negative = number.negative
    if layout.sign == "none":
        if negative and not is_zero(number) and rule.negative != "magnitude":  # policy clause "negative"
            return 0 if rule.negative == "smallest" else _nan(layout)
        negative = False
    if number.kind == "inf":
        return _special(negative, layout)
    if layout.first and is_zero(number):  # policy clause "zero"
        return 0 if rule.zero == "smallest" else _nan(layout)
    rank = _round_to_rank(number.magnitude, layout, outward or partial(_steps_outward, rule.rounding, negative))
    if rank > rule.largest and rule.overflow == "special":
        return _special(negative, layout)
    return _finish(min(rank, rule.largest), negative, rule)


def _integer(number: Number, rule: Bound) -> int:
    """The code of an integer format: round, add the zero point, hold to the range (policy clause "zero_point").

    A limit holds the result to -limit .. limit, where the format reaches so far down. A NaN of "zero" is a value 0.
    """
    layout = rule.layout
    ends = range(-layout.sign_bit, layout.sign_bit) if layout.sign == "complement" else range(layout.codes)
    highest = rule.largest if rule.limited else ends[-1]
    lowest = max(ends[0], -highest) if rule.limited else ends[0]
    negative = number.negative and not (layout.sign == "none" and rule.negative == "magnitude")
    high = number.kind == "inf" and not negative
    low = number.kind == "inf" and negative
    if number.kind == "nan":
        high = rule.nan == "max" or (rule.nan == "signed_max" and not negative)
        low = rule.nan == "min" or (rule.nan == "signed_max" and negative)
        if not (high or low or rule.nan == "zero"):
            _nan(layout)
    if high or low:
        return (highest if high else lowest) % layout.codes
    size, rest = divmod(number.magnitude.numerator, number.magnitude.denominator)
    if rest and _steps_outward(rule.rounding, negative, size % 2 == 1, rest, number.magnitude.denominator):
        size += 1
    value = (-size if negative else size) + rule.zero_point
    return min(max(value, lowest), highest) % layout.codes


def cast(number: Number, format: str, policy: Mapping[str, object]) -> int:
    """The code that `number` becomes in `format` under the cast policy."""
    return cast_bound(number, bind(policy, format))


def cast_codes(
    codes: Sequence[int] | npt.NDArray[np.integer[Any]], source: str, format: str, policy: Mapping[str, object]
) -> Codes:
    """`cast` of every code of `source`; the result has the shape of the input."""
    rule = bind(policy, format)
    given = np.asarray(codes, dtype=object)  # a list of small and 64-bit codes would become floats
    results = [cast_bound(decode(code, source), rule) for code in given.ravel().tolist()]
    return np.array(results, dtype=np.uint32).reshape(given.shape)


def stochastic(number: Number, format: str, policy: Mapping[str, object], bits: int, width: int) -> int:
    """`cast` to a signed float format by stochastic rounding, with the `width` random bits passed in.

    The fraction of a spacing that is past the grid point nearer to zero, cut to `width` bits, is added to
    `bits`; a carry out goes to the next grid point. The policy's `rounding` plays no part.
    """
    rule = bind({**policy, "rounding": "toward_zero"}, format)
    bits, width = index(bits), index(width)
    if rule.layout.sign != "bit":
        raise ValueError(f"{format} is not a signed float format")
    if width < 0 or not 0 <= bits < 1 << width:
        raise ValueError(f"{bits} is not an integer of {width} bits")
    return cast_bound(number, rule, lambda odd, rest, whole: (rest << width) // whole + bits >= 1 << width)
