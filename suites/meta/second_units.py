# SPDX-License-Identifier: Apache-2.0
"""Matrix units a second time: exact fractions, one dot product at a time, parameters and all written out anew.

From the definitions alone (arXiv 2511.10909 and 2512.07004; PTX ISA of mma): it shares nothing with reference/. A term
is a significand and an exponent, as decoded: subnormals and products are not normalised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from math import floor

from narrowgauge.suites.meta.second_derivation import LAYOUTS, Number, cast, decode

Policy = dict[str, object]
IEEE: Policy = {
    "overflow": "special", "infinity": "special", "nan": "nan", "negative_zero": "keep", "subnormals": "keep",
    "limit": None,
}  # fmt: skip
NEAREST, CUT = {"rounding": "nearest_even", **IEEE}, {"rounding": "toward_zero", **IEEE}
ZERO = Fraction(0)


@dataclass(frozen=True)
class Term:
    """``significand`` · 2^``exponent``; or what is not finite, by its ``kind``. ``minus`` also of zeros."""

    kind: str
    minus: bool
    significand: Fraction = ZERO
    exponent: int = 0

    @property
    def value(self) -> Fraction:
        return (-1 if self.minus else 1) * self.significand * Fraction(2) ** self.exponent

    @property
    def nothing(self) -> bool:
        return self.kind == "finite" and self.significand == 0


@cache
def term(code: int, format: str) -> Term:
    """A code as it stands: 1 <= significand < 2, or less than 1 with the least exponent."""
    number, layout = decode(code, format), LAYOUTS[format]
    least = layout.finest + layout.mantissa_bits
    if number.kind != "finite":
        return Term(number.kind, number.negative)
    exponent = max(least, log2(number.magnitude)) if number.magnitude else least
    return Term("finite", number.negative, number.magnitude / Fraction(2) ** exponent, exponent)


def times(x: Term, y: Term) -> Term:
    """The product, not normalised."""
    minus = x.minus != y.minus
    if "nan" in (x.kind, y.kind) or (x.kind != y.kind and (x.nothing or y.nothing)):
        return Term("nan", minus)
    if "inf" in (x.kind, y.kind):
        return Term("inf", minus)
    return Term("finite", minus, x.significand * y.significand, x.exponent + y.exponent)


def special(terms: Sequence[Term]) -> Term | None:
    """What a sum is that has infinities or NaN in it."""
    signs = {t.minus for t in terms if t.kind == "inf"}
    if any(t.kind == "nan" for t in terms) or len(signs) == 2:
        return Term("nan", False)
    return Term("inf", signs.pop()) if signs else None


def as_number(value: Fraction, minus_zero: bool = False) -> Number:
    return Number("finite", value < 0 or (value == 0 and minus_zero), abs(value))


def cut(value: Fraction, exponent: int) -> Fraction:
    """Toward zero, to a multiple of 2^exponent."""
    step = Fraction(2) ** exponent
    return (-1 if value < 0 else 1) * floor(abs(value) / step) * step


def down(value: Fraction, exponent: int) -> Fraction:
    step = Fraction(2) ** exponent
    return floor(value / step) * step


def log2(value: Fraction) -> int:
    """floor(log2 |value|)."""
    value = abs(value)
    found = value.numerator.bit_length() - value.denominator.bit_length()
    return found if value >= Fraction(2) ** found else found - 1


def float64(value: Fraction, minus_zero: bool) -> int:
    """The nearest binary64 pattern, ties to even: counted in its own steps, so that a carry goes where it must."""
    negative = value < 0 or (value == 0 and minus_zero)
    exponent = max(log2(value), -1022) if value else -1022
    steps = abs(value) / Fraction(2) ** (exponent - 52)
    pattern = ((exponent + 1022) << 52) + round(steps)  # round(Fraction) goes to even
    return min(pattern, 0x7FF << 52) + (negative << 63)


def coded(found: Term | Fraction, out: str, nan: int, policy: Policy = NEAREST, minus_zero: bool = False) -> int:
    """The code of a sum."""
    if out == "float64":
        if isinstance(found, Fraction):
            return float64(found, minus_zero)
        return nan if found.kind == "nan" else (0x7FF << 52) + (int(found.minus) << 63)
    if isinstance(found, Fraction):
        return cast(as_number(found, minus_zero), out, policy)
    return nan if found.kind == "nan" else cast(Number("inf", found.minus, ZERO), out, policy)


def plus_zero(code: int, out: str) -> int:
    """-0 is written as +0."""
    return 0 if code == LAYOUTS[out].sign_bit else code


# --- families --------------------------------------------------------------------------------------------------------

#: products of one step and the addend -> the code of the new addend
Step = Callable[[Sequence[Term], Term], int]


def t_fdpa(products: Sequence[Term], c: Term, fraction: int, stored: str, zero: int) -> int:
    """stored: "rz23", "rz13" (float32), "rne" (float16)."""
    out, nan = ("float16", 0x7FFF) if stored == "rne" else ("float32", 0x7FFFFFFF)
    terms = [*products, c]
    if (found := special(terms)) is not None:
        return coded(found, out, nan)
    top = max(zero if t.nothing else t.exponent for t in terms)
    total = sum((cut(t.value, top - fraction) for t in terms), ZERO)
    if stored == "rz13" and total:
        total = cut(total, max(log2(total), -126) - 13)
    return plus_zero(coded(total, out, nan, NEAREST if stored == "rne" else CUT), out)


def two_hmma(products: Sequence[Term], c: Term, stored: str, zero: int) -> int:
    """32 products: k % 4 in {0, 1}, then k % 4 in {2, 3}, then the addend."""
    out = "float16" if stored == "rne" else "float32"
    halves = [[p for k, p in enumerate(products) if k % 4 // 2 == half] for half in range(2)]
    first = t_fdpa(halves[0], term(0, out), 25, stored, zero)
    second = term(t_fdpa(halves[1], term(first, out), 25, stored, zero), out)
    return added([second, c], out)


def added(terms: Sequence[Term], out: str = "float32") -> int:
    """The exact sum, rounded once; a zero is -0 only if all terms are."""
    nan = {"float16": 0x7FFF, "float32": 0x7FFFFFFF, "float64": 0x7FF8000000000000}[out]
    if (found := special(terms)) is not None:
        return coded(found, out, nan)
    minus = all(t.nothing and t.minus for t in terms)
    return coded(sum((t.value for t in terms), ZERO), out, nan, minus_zero=minus)


def pairwise(products: Sequence[tuple[Term, Term]], c: Term) -> int:
    """CDNA2: each product and sum is a float32 operation that flushes."""
    terms = [flush(times(flush_in(x), flush_in(y))) for x, y in products]
    while len(terms) > 1:
        terms = [flush_sum([terms[i], terms[i + 1]]) for i in range(0, len(terms), 2)]
    last = flush_sum([Term("finite", False) if c.kind == "finite" and c.significand < 1 else c, terms[0]])
    return added([last])


def flush_in(x: Term) -> Term:
    return Term("finite", False) if x.kind == "finite" and x.significand < 1 else x


def flush(x: Term) -> Term:
    return flush_sum([x])


def flush_sum(terms: Sequence[Term]) -> Term:
    found = term(added(terms), "float32")
    return Term("finite", found.minus) if found.kind == "finite" and found.significand < 1 else found


def tr_fdpa(products: Sequence[Term], c: Term, parities: bool) -> int:
    """CDNA3."""
    products = [Term("inf", p.minus) if p.kind == "finite" and abs(p.value) >= 2**128 else p for p in products]
    if (found := special([*products, c])) is not None:
        return coded(found, "float32", 0x7FC00000)
    groups = [products[0::2], products[1::2]] if parities else [products]
    tops = [max((p.exponent for p in g if not p.nothing), default=-10_000) for g in groups]
    sums = [sum((cut(p.value, top - 24) for p in g), ZERO) for g, top in zip(groups, tops, strict=True)]
    top = max(tops)
    dot = sum((down(s, top - 24) for s in sums), ZERO) if parities else sums[0]
    of_c = -126 if c.nothing else c.exponent
    addend = ZERO if parities and of_c < top - 25 else c.value
    top = max(top, of_c)
    total = down(dot, top - 31) + down(addend, top - 24)
    return coded(down(total, log2(total) - 31) if total else ZERO, "float32", 0x7FC00000)


def group_dot(
    products: Sequence[Term], scales: Sequence[Term], c: Term, group: int = 16, fraction: int = 35, zero: int = -139
) -> int:
    """GST-FDPA: ``scales`` are the products of both sides' scales, of each position of k."""
    if (found := special([*scales, c])) is not None:
        return coded(found, "float32", 0x7FFFFFFF)
    terms, tops = [c.value], [zero if c.nothing else c.exponent]
    for start in range(0, len(products), group):
        each = products[start : start + group]
        scale = scales[start]
        terms.append(sum((p.value for p in each), ZERO) * scale.significand * Fraction(2) ** scale.exponent)
        tops.append(zero if scale.nothing or all(p.nothing for p in each) else scale.exponent)
    top = max(tops)
    total = sum((cut(t, top - fraction) for t in terms), ZERO)
    return plus_zero(coded(total, "float32", 0x7FFFFFFF, CUT), "float32")


# --- units -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Second:
    """``length`` products enter one step; ``through``: codes are read as this format's."""

    length: int
    step: Step
    through: str = ""


def _t(length: int, fraction: int, stored: str, zero: int) -> Second:
    return Second(length, partial(t_fdpa, fraction=fraction, stored=stored, zero=zero))


VOLTA, VOLTA16 = _t(4, 23, "rz23", -131), _t(4, 23, "rne", -19)
AMPERE, AMPERE16, AMPERE_TF = _t(8, 24, "rz23", -132), _t(8, 24, "rne", -20), _t(4, 24, "rz23", -132)
HOPPER, HOPPER16, HOPPER_TF = _t(16, 25, "rz23", -133), _t(16, 25, "rne", -21), _t(8, 25, "rz23", -133)
NARROW, NARROW16 = _t(32, 25, "rz23", -133), _t(32, 25, "rne", -21)
TWO = Second(32, partial(two_hmma, stored="rz23", zero=-133), "float16")
TWO16 = Second(32, partial(two_hmma, stored="rne", zero=-21), "float16")
CHAIN = Second(1, lambda products, c: added([*products, c]))
UNITS: dict[str, Second] = {
    "volta.hmma": VOLTA, "volta.hmma_f16": VOLTA16,
    "turing.hmma": AMPERE, "turing.hmma_f16": AMPERE16,
    "ampere.hmma": AMPERE, "ampere.hmma_f16": AMPERE16, "ampere.hmma_tf32": AMPERE_TF,
    "ada.hmma": AMPERE, "ada.hmma_f16": AMPERE16, "ada.hmma_tf32": AMPERE_TF,
    "ada.qmma": _t(16, 13, "rz13", -132), "ada.qmma_f16": _t(16, 13, "rne", -20),
    "hopper.hmma": HOPPER, "hopper.hmma_f16": HOPPER16, "hopper.hmma_tf32": HOPPER_TF,
    "hopper.hgmma": HOPPER, "hopper.hgmma_f16": HOPPER16, "hopper.hgmma_tf32": HOPPER_TF,
    "hopper.qgmma": _t(32, 13, "rz13", -133), "hopper.qgmma_f16": _t(32, 13, "rne", -21),
    "hopper.mma_fp8": TWO, "hopper.mma_fp8_f16": TWO16, "blackwell.mma_fp8": TWO, "blackwell.mma_fp8_f16": TWO16,
    "blackwell.hmma": HOPPER, "blackwell.hmma_f16": HOPPER16, "blackwell.hmma_tf32": HOPPER_TF,
    "blackwell.tcgen05": HOPPER, "blackwell.tcgen05_f16": HOPPER16, "blackwell.tcgen05_tf32": HOPPER_TF,
    "blackwell.tcgen05_fp8": NARROW, "blackwell.tcgen05_fp8_f16": NARROW16, "blackwell.mxf8f6f4": NARROW,
    "rtx_blackwell.hmma": HOPPER, "rtx_blackwell.hmma_f16": HOPPER16, "rtx_blackwell.hmma_tf32": HOPPER_TF,
    "rtx_blackwell.qmma": NARROW, "rtx_blackwell.qmma_f16": NARROW16, "rtx_blackwell.mxf8f6f4": NARROW,
    "cdna1.mfma_f16": Second(4, lambda products, c: added([*products, c])),
    "cdna1.mfma_bf16": Second(2, lambda products, c: added([*products, c])),
    "cdna3.mfma": Second(8, partial(tr_fdpa, parities=False)),
    "cdna3.mfma_of_ocp": Second(8, partial(tr_fdpa, parities=False), "float16"),
    "cdna3.mfma_xf32": Second(4, partial(tr_fdpa, parities=False)),
    "cdna3.mfma_fp8": Second(16, partial(tr_fdpa, parities=True)),
    "cdna1.mfma_f32": CHAIN, "cdna2.mfma_f32": CHAIN, "cdna3.mfma_f32": CHAIN, "plain.fma": CHAIN,
    "nvidia.dmma": Second(1, lambda products, c: added([*products, c], "float64")),
    "cdna2.mfma_f64": Second(1, lambda products, c: added([*products, c], "float64")),
    "cdna3.mfma_f64": Second(1, lambda products, c: added([*products, c], "float64")),
}  # fmt: skip
#: products of one pairwise step; positions of one step of groups, and of one scale
PAIRWISE = {"cdna2.mfma": 4, "cdna2.mfma_bf16_old": 2}
GROUPS = {"blackwell.mxf4": 32, "blackwell.mxf4nvf4": 16, "rtx_blackwell.mxf4": 32, "rtx_blackwell.mxf4nvf4": 16}
#: whole numbers, and how many products are clamped at once; 0: they wrap
WHOLE = {
    "nvidia.imma": 0, "nvidia.imma_int4": 0, "nvidia.imma_satfinite": 16, "cdna.mfma_i8": 0, "rdna.wmma_iu8": 0,
    "rdna.wmma_iu4": 0,
}  # fmt: skip
OUT = {"_f16": "float16", "_f64": "float64", "dmma": "float64"}


def dot(
    unit: str, a: Sequence[int], b: Sequence[int], formats: tuple[str, str], c: int, scales: Sequence[Term] = ()
) -> int:
    """One dot product of codes. ``scales``: of each position of k, the product of both scales."""
    if unit in WHOLE:
        return _whole(a, b, formats, c, WHOLE[unit])
    out = next((to for end, to in OUT.items() if unit.endswith(end) and unit != "cdna1.mfma_f16"), "float32")
    second = UNITS.get(unit)
    read = second.through if second else ""
    left, right = ([_read(code, f, unit, read) for code in side] for side, f in zip((a, b), formats, strict=True))
    length = second.length if second else PAIRWISE.get(unit, 64)
    missing = -len(left) % length
    left, right = ([*side, *[Term("finite", False)] * missing] for side in (left, right))
    for start in range(0, len(left), length):
        pairs = list(zip(left[start : start + length], right[start : start + length], strict=True))
        products, addend = [times(x, y) for x, y in pairs], term(c, out)
        if unit in PAIRWISE:
            c = pairwise(pairs, addend)
        elif unit in GROUPS:
            c = group_dot(products, scales[start : start + length], addend)
        else:
            assert second is not None
            each = zip(products, scales[start : start + length], strict=True) if scales else ()
            c = second.step([times(p, s) for p, s in each] if scales else products, addend)
    return c


def _read(code: int, format: str, unit: str, through: str) -> Term:
    """tf32 units see the upper 19 bits of float32; an exact conversion changes the exponent of subnormals alone."""
    if format == "float32" and unit.endswith("f32") and "mfma_f32" not in unit:
        return term(code >> 13, "tfloat32")
    if not through:
        return term(code, format)
    return term(cast(decode(code, format), through, NEAREST), through)


def _whole(a: Sequence[int], b: Sequence[int], formats: tuple[str, str], c: int, clamped: int) -> int:
    values = [[_signed(code, f) for code in side] for side, f in zip((a, b), formats, strict=True)]
    total = _signed(c, "int32")
    each = clamped or len(a) or 1
    for start in range(0, len(a), each):
        total += sum(x * y for x, y in zip(*(v[start : start + each] for v in values), strict=True))
        if clamped:
            total = min(max(total, -(2**31)), 2**31 - 1)
    return total % 2**32


def _signed(code: int, format: str) -> int:
    number = decode(code, format)
    return int(-number.magnitude if number.negative else number.magnitude)


def scale_products(a: Sequence[int], b: Sequence[int], format: str, block: int, size: int) -> list[Term]:
    """Of each position of k, the product of its scales, whose signs do not count."""
    return [times(_unsigned(a[k // block], format), _unsigned(b[k // block], format)) for k in range(size)]


def _unsigned(code: int, format: str) -> Term:
    found = term(code, format)
    return Term(found.kind, False, found.significand, found.exponent)
