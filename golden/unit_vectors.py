"""Vectors that tell matrix units apart: small dot products on which models part, by what they show.

``(k, x, y)`` puts x at position k of a and y there in b; all other positions are 0. The addend is c.
"""

from __future__ import annotations

from dataclasses import dataclass

Terms = tuple[tuple[int, float, float], ...]
Scales = tuple[float, ...]
INFINITY = float("inf")
#: both of a format's spellings, OCP's and MI300's
E4, E5 = ("float8_e4m3fn", "float8_e4m3fnuz"), ("float8_e5m2", "float8_e5m2fnuz")


@dataclass(frozen=True)
class Vector:
    """One dot product. Scales, where there are any, are of the blocks along k, a's and b's alike in format."""

    name: str
    formats: tuple[str, ...]  #: of the operands
    terms: Terms
    about: str
    c: float = 0.0
    out: str = "float32"
    scale: str = ""  #: format of the scales; "" for a vector without
    a_scales: Scales = (1.0,)  #: of the first blocks; 1 for the others
    b_scales: Scales = (1.0,)

    def __post_init__(self) -> None:
        places = [k for k, _, _ in self.terms]
        assert len(set(places)) == len(places), self.name
        assert set(places) <= set(range(SIZE)), self.name


#: positions of k: one step of the longest unit
SIZE = 64
E8M0 = "float8_e8m0fnu"


def p(n: int) -> float:
    """2^n."""
    return 2.0**n


def _at(x: float, *places: int, y: float = 1.0) -> Terms:
    return tuple((k, x, y) for k in places)


_SPREAD = ((0, -p(13), p(10)), (1, -0.5, 1.0), (2, -0.25, 1.0), (3, -0.125, 1.0))
_ABOVE, _BELOW = ((0, 1.5 * p(-12), p(-12)),), ((0, -1.5 * p(-12), p(-12)),)
_MANY = ((0, 16.0, 16.0), *_at(0.125, *range(1, 32), y=0.125))
_MANY_LESS = ((0, -16.0, 16.0), *_at(-0.375, *range(1, 32), y=0.125))
_FOURS = (*_at(p(11), 0), *_at(-p(11), 4), *_at(p(-13), 1, 2, 3))
_EIGHTS = (*_at(1.0, 0), *_at(-1.0, 8), *_at(p(-12), *range(1, 8), y=p(-12)))
_EVEN = (*_at(p(14), 0), *_at(-p(14), 2))
_INNER = (*_at(p(14), 0), *_at(-p(14), 1), *_at(p(-12), 2))
_BETWEEN = (*_at(1.0, 0), (1, p(-5), p(-6)), (2, p(-9), p(-9)))
_SWAMPED = (*_at(p(10), 0), *_at(-p(10), 16), *_at(p(-4), 1, 2, 3))
_FUSED = ((0, 1 + p(-12), 1 - p(-12)),)
_HALF = "half a last place above 1: cut, or rounded to nearest even"
_BETWEEN_STEPS = "what is written between two steps, where the second begins"
_ZEROS = "the exponent with which zero terms count"
_LARGEST = float.fromhex("0x1.fffffep127")
HALF, BRAIN, SINGLE = ("float16",), ("bfloat16",), ("float32",)
E2M1, WHOLE = ("float4_e2m1fn",), ("int8", "int4")


def _stored(low: int) -> Terms:
    """2 + 2^low in the first 16 positions, -1 in the next: what is written between two steps of 16 drops 2^low."""
    return (*_at(1.0, 0, 1), (2, p(-6), p(low + 6)), *_at(-1.0, 16))


def _mx(name: str, formats: tuple[str, ...], terms: Terms, about: str, a: Scales, b: Scales, c: float = 0.0) -> Vector:
    return Vector(name, formats, terms, about, c, scale=E8M0, a_scales=a, b_scales=b)


def _small(low: int) -> Vector:
    """The least float32 subnormal less 2^low: 0 if that is kept and the whole then cut, else the subnormal."""
    terms = ((0, p(-23), p(-126)), (1, -p(low + 126), p(-126)))
    return Vector(f"zero_exponent_{-low}", (*BRAIN, *SINGLE), terms, _ZEROS)


def _half_small(low: int) -> Vector:
    """Half the least float16 subnormal and 2^low: a tie, to 0, unless 2^low is kept."""
    terms = ((0, p(-12), p(-13)), (1, p(-23), p(low + 23)))
    return Vector(f"float16_zero_exponent_{-low}", HALF, terms, _ZEROS, out="float16")


def _at_60(sign: int) -> Terms:
    """Half a last place of 2^12, and 2^-48 more or less."""
    return ((0, p(-6), p(-6)), (1, sign * p(-24), p(-24)))


#: times 1 + 2^-12 this is 1 + 2^-36
_LESS = 1 - p(-12) + p(-24)


def _carried(fraction: int, n: int) -> Terms:
    """2^9 and ``fraction`` bits below half of that, then -2^8 at n: what is written between drops the last of them."""
    return ((0, 16.0, 16.0), (1, 16.0, 16.0), (2, p(-7), p(15 - fraction)), (n, -16.0, 16.0))


def _after(n: int) -> Terms:
    """1 and half its last place in float16, and at n once more."""
    return (*_at(1.0, 0), *_at(p(-5), 1, n, y=p(-6)))


def _inner(low: int) -> Terms:
    """2^14 and -2^14, and 2^low, all in the first step by k % 4."""
    return (*_at(p(14), 0), *_at(-p(14), 4), *_at(p(low), 1))


def _tie(low: int) -> Terms:
    """Half a last place of 1, and 2^low, which is a tie unless that is kept."""
    return ((0, p(-12), p(-12)), (1, p(-16), p(low + 16)))


#: 2 with an addend, half a last place, and 2^-31
_CARRIED = (*_at(1.5 * p(-3), *range(7), y=1.5 * p(-4)), (7, (1 + p(-8)) * p(-11), p(-12)))

VECTORS: tuple[Vector, ...] = (
    Vector("addend_23", (*HALF, *BRAIN, *E5, *SINGLE), _SPREAD, "bits kept below 2^23, and how they are cut", p(23)),
    Vector("thirteen_bits", E4, _MANY, "256 and 31 / 64: 13 bits keep none of it"),
    Vector("thirteen_bits_less", E4, _MANY_LESS, "the cut is toward zero"),
    Vector("above_one", (*HALF, *SINGLE), _ABOVE, _HALF, 1.0),
    Vector("below_minus_one", HALF, _BELOW, _HALF, -1.0),
    Vector("above_256", E4, ((0, 1.5 * p(-7), p(-9)),), "the same for numbers that E4M3 has", 256.0),
    Vector("steps_of_8", HALF, _EIGHTS, "1 and -1 in one step or in two"),
    Vector("steps_of_4", (*HALF, *SINGLE), _FOURS, "the same for steps of four"),
    Vector("fours", (*HALF, *BRAIN), _at(1.0, 0, 4), "two sums of four, each half a last place of the addend", p(24)),
    *(Vector(f"stored_23_after_{n}", (*HALF, *BRAIN, *SINGLE, *E4, *E5), _carried(23, n), _BETWEEN_STEPS)
      for n in (4, 8, 16, 32)),
    *(Vector(f"stored_13_after_{n}", (*E4, *E5), _carried(13, n), _BETWEEN_STEPS) for n in (8, 16, 32)),
    *(Vector(f"float16_stored_after_{n}", (*HALF, E4[0], E5[0]), _after(n), _BETWEEN_STEPS, out="float16")
      for n in (4, 8, 16, 32)),
    Vector("carried_13_last", (*E4, *E5), (*_at(16.0, 61, 62, y=16.0), (63, p(-2), p(-3))), "13 bits are written"),
    Vector("kept_23_last", (*HALF, *BRAIN, *E4, *E5), ((56, 16.0, 16.0), (57, p(-7), p(-8))), "23 bits are written"),
    Vector("twos", (*HALF, *BRAIN), _at(1.0, 0, 2), "the same for two", p(24)),
    Vector("subnormal_in", HALF, _at(p(-24), 0), "whether subnormal operands are flushed"),
    Vector("subnormal_out", BRAIN, ((0, p(-120), p(-7)),), "whether subnormal results are flushed"),
    Vector("subnormal_out_last", BRAIN, ((63, p(-120), p(-7)),), "the same in the last step"),
    Vector("least_normal_last", BRAIN, ((63, p(-120), p(-6)),), "the least normal result is none"),
    Vector("subnormal_addend", (*HALF, *BRAIN), (), "whether subnormal addends are flushed", p(-127)),
    Vector("subnormal_addend_added", BRAIN, ((0, p(-120), p(-6)),), "the same below a normal product", p(-127)),
    Vector("least_normal_addend", (*HALF, *BRAIN), (), "the least normal addend is none", p(-126)),
    Vector("underflows", (*BRAIN, *SINGLE), ((0, -p(-29), p(-126)),), "the sign of a result that is too small"),
    Vector("underflows_last", (*BRAIN, *SINGLE), ((63, -p(-29), p(-126)),), "the same in the last step"),
    Vector("exact_above", (*HALF, *BRAIN), _at_60(1), "above a tie by 60 binades below an addend", p(12)),
    Vector("exact_below", (*HALF, *BRAIN), _at_60(-1), "below a tie, the same", p(12) + p(-11)),
    Vector("fused_above", SINGLE, ((0, 1 + p(-12), _LESS * p(-27)),), "the same by one product", p(-3)),
    Vector("fused_below", SINGLE, ((0, 1 + p(-23), (1 - p(-23)) * p(-27)),), "the same", p(-3) + p(-26)),
    Vector("fused_less", SINGLE, ((0, -1 - p(-12), _LESS * p(-27)),), "the same", -p(-3)),
    Vector("fused_minus_zero", SINGLE, _at(-0.0, *range(SIZE)), "only of zeros with a minus", -0.0),
    Vector("wide_product", (*BRAIN, *SINGLE), ((0, p(64), p(64)), (1, -p(64), p(64))), "products past float32's range"),
    Vector("overflow", BRAIN, ((0, p(100), p(3)),), "half a last place above the largest: cut, or infinity", _LARGEST),
    Vector("addend_alone", E4, (), "an addend of 14 bits through 13, all products 0", 1 + p(-14)),
    Vector("inner_split", E5, _INNER, "two steps by k % 4"),
    Vector("inner_25", E5, _inner(-11), "25 bits within a step by k % 4"),
    Vector("inner_26", E5, _inner(-12), "one bit lower"),
    Vector("inner_32", E5, (*_at(p(14), 0), *_at(-p(14), 32), *_at(p(-11), 1)), "but not 32"),
    Vector("inner_16", E5, (*_at(p(14), 0), *_at(-p(14), 16), *_at(p(-11), 1)), "16 positions of a step by k % 4"),
    Vector("odd_and_even", E5, (*_EVEN, *_at(-p(-12), 1)), "products at odd k are summed apart, then floored"),
    Vector("even_alone", E5, (*_EVEN, *_at(-p(-12), 4)), "the same at even k alone"),
    Vector("swamped_at_16", E5, _SWAMPED, "14 binades below, with the counterpart 16 places on"),
    Vector("tf32_operand", SINGLE, _at(1 + p(-11) + p(-12), 0), "float32 operands lose 13 bits"),
    Vector("fused", SINGLE, _FUSED, "a product that is not rounded by itself", -1.0),
    *(_small(low) for low in (-156, -157, -158, -159)),
    Vector("float16_added", (E4[0], E5[0]), ((0, p(-5), p(-6)), (1, p(-7), p(-6))), "one rounding", 1.0, "float16"),
    Vector("float16_underflows", HALF, _at(-p(-14), 0, y=p(-14)), "as underflows", out="float16"),
    Vector("float16_underflows_last", HALF, _at(-p(-14), 63, y=p(-14)), "as underflows_last", out="float16"),
    Vector("float16_tie", HALF, (*_at(2048.0, 0), *_at(1.0, 1)), "a tie of the result", out="float16"),
    Vector("float16_overflow", HALF, (*_at(65504.0, 0, 1), *_at(-65504.0, 8)), "infinity after 8 of 16", out="float16"),
    *(_half_small(low) for low in range(-42, -48, -1)),
    Vector("float16_thirteen_bits", E4[:1], _MANY, "as thirteen_bits", out="float16"),
    Vector("float16_steps_of_16", (E4[0], E5[0]), _stored(-10), "as steps_of_16", out="float16"),
    Vector("float16_inner_split", E5[:1], _INNER, "as inner_split", out="float16"),
    Vector("float16_between", (E4[0], E5[0]), _BETWEEN, "rounded between two steps by k % 4", out="float16"),
    Vector("float16_across_32", (E4[0], E5[0]), (*_BETWEEN[:2], (33, p(-9), p(-9))), "two instructions", out="float16"),
    Vector("float16_inner_25", E5[:1], _inner(-11), "as inner_25", out="float16"),
    Vector("float16_inner_26", E5[:1], _inner(-12), "as inner_26", out="float16"),
    Vector("infinities", HALF, (*_at(INFINITY, 0), *_at(-INFINITY, 1)), "the code of a NaN"),
    Vector("infinite_addend", (*HALF, E5[0]), _at(INFINITY, 0), "infinity and infinity", INFINITY),
    Vector("below_one", E4, _at(1.0, 0), "an addend below a last place: cut, floored, or rounded", -p(-25)),
    Vector("below_one_26", E4, _at(1.0, 0), "an addend one binade lower still: dropped before it is floored", -p(-26)),
    Vector("tie_and_31", (*HALF, *SINGLE, *E5), _tie(-31), "31 bits of the sum below an addend", 1.0),
    Vector("tie_and_32", (*HALF, *SINGLE, *E5), _tie(-32), "one bit lower", 1.0),
    Vector("normalised", (*HALF, *SINGLE), _CARRIED, "a sum that has carried keeps a bit less", 2 - 7 * 2.25 * p(-7)),
    Vector("floored_addend", BRAIN, ((0, p(5), p(5)),), "a tiny negative addend is floored", -p(-40)),
    Vector("wraps", ("int8", "uint8", "int4", "uint4"), _at(1.0, 0), "past the largest int32", 2.0**31 - 1, "int32"),
    Vector("clamped_after_8", WHOLE, (*_at(1.0, 0), *_at(-1.0, 8)), "what is clamped between", 2.0**31 - 1, "int32"),
    Vector("clamped_after_16", WHOLE, (*_at(1.0, 0), *_at(-1.0, 16)), "the same", 2.0**31 - 1, "int32"),
    Vector("wraps_below", WHOLE, _at(-1.0, 0), "past the least int32", -(2.0**31), "int32"),
    _mx("mx_scales", E4[:1], _MANY, "scales that cancel", (8.0,), (0.125,)),
    *(_mx(f"mx_stored_after_{n}", E4[:1], _carried(23, n), _BETWEEN_STEPS, (1.0,), (1.0,)) for n in (16, 32)),
    _mx("mx_wide", E4[:1], (*_at(1.0, 0), *_at(-1.0, 1)), "scaled past float32's range", (p(100),), (p(100),)),
    _mx("mx_subnormal", E4[:1], _at(1.0, 0), "a subnormal by its scales", (p(-127),), (p(-20),)),
    _mx("mx_overflow", E4[:1], _at(1.0, 0), "past the range by its scales", (p(64),), (p(64),)),
    _mx("mx_nan", E4[:1], (), "a NaN scale of zeros", (float("nan"),), (1.0,)),
    _mx("mx_zero_exponent", E4[:1], (*_at(1.0, 0), (1, -p(-6), p(-3))), _ZEROS, (p(-127),), (p(-22),)),
    _mx("mx_zero_exponent_below", E4[:1], (*_at(1.0, 0), (1, -p(-6), p(-4))), _ZEROS, (p(-127),), (p(-22),)),
    _mx("mxf4_35", E2M1, _at(1.0, 0, 32), "35 bits below an addend", (1.0, 1.0, p(-35), p(-35)), (1.0,), -1.0),
    _mx("mxf4_36", E2M1, _at(1.0, 0, 32), "36 bits below an addend", (1.0, 1.0, p(-36), p(-36)), (1.0,), -1.0),
    _mx("mxf4_step", E2M1, _at(1.0, 0, 32), "64 positions are one step", (1.0,), (1.0,), p(24)),
    _mx("mxf4_eights", E2M1, _at(0.5, 0, 8), "halves of the last bit, eight places apart", (p(-35),), (1.0,), -1.0),
    _mx("mxf4_sixteens", E2M1, _at(0.5, 0, 16), "sixteen places apart", (p(-35), p(-35)), (1.0,), -1.0),
    _mx("mxf4_cancelled", E2M1, (*_at(1.0, 0, 32), *_at(-1.0, 1)), "a group that cancels keeps its scales' exponent",
        (p(40), p(40)), (1.0,)),
    _mx("mxf4_zero_group", E2M1, _at(1.0, 32), "a group of zeros has not its scales' exponent", (p(40), p(40)), (1.0,)),
    _mx("mxf4_underflows", E2M1, _at(-1.0, 0), "as underflows", (p(-127),), (p(-30),)),
    _mx("mxf4_zero_exponent", E2M1, (*_at(1.0, 0), *_at(-1.0, 32)), _ZEROS, (p(-127),) * 4,
        (p(-22), p(-22), p(-47), p(-47))),
    _mx("mxf4_zero_exponent_below", E2M1, (*_at(1.0, 0), *_at(-0.5, 32)), _ZEROS, (p(-127),) * 4,
        (p(-22), p(-22), p(-47), p(-47))),
    Vector("nvfp4_significands", E2M1, ((0, 1.0, 1.0), (16, 1.0, 0.5)), "significands and subnormals of UE4M3",
           scale="float8_e4m3fn", a_scales=(1.75, p(-9)), b_scales=(1.875, 1.125)),
    Vector("nvfp4_signs", E2M1, ((0, 1.5, 1.0), (16, 1.0, 0.5)), "the sign bit of UE4M3 does not count",
           scale="float8_e4m3fn", a_scales=(-1.5, 1.0), b_scales=(1.25, 1.0)),
)  # fmt: skip
