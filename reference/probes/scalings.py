"""Ways in which scales meet a product of matrices, each computed from its definition in float32 steps.

A row has two sums, each in a block of K of its own, and a scale of either operand for each of the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache

import numpy as np

from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.reference.codec import decode, encode

IEEE = CastPolicy(overflow="special", infinity="special")


@dataclass(frozen=True)
class Sums:
    """Two sums, and for each the scales of a and of b. The last block of K has other scales."""

    sums: tuple[float, float]
    a: tuple[float, float]
    b: tuple[float, float]
    last: tuple[float, float] = (1.0, 1.0)  #: scales of a and b of the last block, which nothing is in
    single: tuple[float, float] | None = None  #: numbers of a and b, where the first sum is this product alone

    def parts(self, place: int) -> list[tuple[float, float]]:
        """The products of a sum, as numbers of a and b: powers of two, which are exact in whichever they stand."""
        if self.single is not None and place == 0:
            return [self.single]
        whole = abs(int(self.sums[place]))
        powers = (1 << n for n in range(whole.bit_length() - 1, -1, -1) if whole >> n & 1)
        return [(math.copysign(power, self.sums[place]), 1.0) for power in powers]


@dataclass(frozen=True)
class Scaling:
    """One way. ``site``: where scales are applied; ``order``: in which order; ``kept_in``: as what they are kept."""

    site: str
    order: str = ""
    kept_in: str = "float32"
    fused: bool = False
    enters: str = "float32"  #: the format of operands into which scales are multiplied

    def of(self, row: Sums) -> float | None:
        """The float32 before the result is rounded, as a float; NaN and infinities as they come.

        None where it depends on the order in which products are added, which is not this one's matter.
        """
        row = replace(row, a=_pair(KEPT[self.kept_in], row.a), b=_pair(KEPT[self.kept_in], row.b))
        match self.site:
            case "stretch":
                return self._stretches(row)
            case "ignored":
                return f32(sum(row.sums))
            case "operands":
                return _operands(row, self.enters)
            case "exact":
                return _exact(row)
        scales = {"sum": (row.a[0], row.b[0]), "first": (row.a[0], row.b[0]), "last": row.last}[self.site]
        return ORDERS[self.order](f32(sum(row.sums)), *scales)

    def _stretches(self, row: Sums) -> float:
        total = 0.0
        for each, a, b in zip(row.sums, row.a, row.b, strict=True):
            if self.fused:
                total = _fma(*FACTORS[self.order](each, a, b), total)
            else:
                total = f32(total + ORDERS[self.order](each, a, b))
        return total


def f32(x: float) -> float:
    """To float32. Of two float32 numbers a float64 sum or product is rounded again without harm (53 >= 2 · 24 + 2)."""
    with np.errstate(over="ignore"):
        return float(np.float32(x))


def _fma(x: float, y: float, z: float) -> float:
    if not all(map(math.isfinite, (x, y, z))):
        return x * y + z
    return _rounded(Fraction(x) * Fraction(y) + Fraction(z))


def _rounded(x: Fraction) -> float:
    """A fraction to float32, once, to nearest, ties to even; subnormal numbers included."""
    if x == 0:
        return 0.0
    exponent = math.floor(math.log2(abs(x)))
    exponent += (abs(x) >= Fraction(2) ** (exponent + 1)) - (abs(x) < Fraction(2) ** exponent)
    step = Fraction(2) ** max(exponent - 23, -149)
    return f32(float(round(x / step) * step)) if exponent < 129 else math.copysign(math.inf, x)


def _exact(row: Sums) -> float:
    """Scales multiplied without rounding, whatever their size, and the whole rounded once."""
    if not all(map(math.isfinite, (*row.a, *row.b))):  # a scale that overflowed where it was kept
        return sum(s * a * b for s, a, b in zip(row.sums, row.a, row.b, strict=True))
    terms = [Fraction(s) * Fraction(a) * Fraction(b) for s, a, b in zip(row.sums, row.a, row.b, strict=True)]
    return _rounded(sum(terms, Fraction(0)))


def _operands(row: Sums, enters: str) -> float | None:
    """Each operand is multiplied by its scale and rounded to the format in which it enters.

    None where the sum of the products is not exact in whatever order and accumulator, of 13 bits too.
    """
    pairs = [
        (_to(enters, x * a), _to(enters, y * b))
        for n, (a, b) in enumerate(zip(row.a, row.b, strict=True))
        for x, y in row.parts(n)
    ]
    if len(pairs) == 1:
        return f32(pairs[0][0] * pairs[0][1])
    if not all(math.isfinite(x * y) and abs(x * y) < 2.0**127 for x, y in pairs):
        return None
    products = [Fraction(x) * Fraction(y) for x, y in pairs]
    whole = math.gcd(*(p.numerator for p in products))
    step = Fraction(whole & -whole, max(p.denominator for p in products))  # the place of the last bit
    return f32(float(sum(products))) if sum(map(abs, products)) < step * 2**13 else None


@cache
def _to(format_name: str, x: float) -> float:
    if format_name == "float32":
        return f32(x)
    fmt = format_named(format_name)
    return float(decode(encode(np.array([x]), fmt, IEEE), fmt)[0])


def _pair(keep: Callable[[float], float], pair: tuple[float, float]) -> tuple[float, float]:
    return keep(pair[0]), keep(pair[1])


def _power(x: float, up: bool) -> float:
    mantissa, exponent = math.frexp(x)
    return math.copysign(math.ldexp(1.0, exponent if up and abs(mantissa) != 0.5 else exponent - 1), x)


#: as what a scale is kept on its way to the product
KEPT: dict[str, Callable[[float], float]] = {
    "float32": lambda x: x,
    "bfloat16": lambda x: _to("bfloat16", x),
    "float16": lambda x: _to("float16", x),
    "power of two, down": lambda x: _power(x, False),
    "power of two, up": lambda x: _power(x, True),
}
#: a sum d, scales a and b, each product rounded
ORDERS: dict[str, Callable[[float, float, float], float]] = {
    "(d·a)·b": lambda d, a, b: f32(f32(d * a) * b),
    "d·(a·b)": lambda d, a, b: f32(d * f32(a * b)),
    "(d·b)·a": lambda d, a, b: f32(f32(d * b) * a),
}
#: the same with the last product left to a fused addition
FACTORS: dict[str, Callable[[float, float, float], tuple[float, float]]] = {
    "(d·a)·b": lambda d, a, b: (f32(d * a), b),
    "d·(a·b)": lambda d, a, b: (d, f32(a * b)),
    "(d·b)·a": lambda d, a, b: (f32(d * b), a),
}


def scalings(blocked: bool) -> Iterator[Scaling]:
    """All known ways, the usual ones first; ``blocked``: where a scale is not that of all of K."""
    for kept_in in KEPT:
        for site in ("stretch", "first", "last") if blocked else ("sum", "stretch"):
            for order in ORDERS:
                yield Scaling(site, order, kept_in)
                if site == "stretch":
                    yield Scaling(site, order, kept_in, fused=True)
        for enters in ("float32", "bfloat16", "float16"):
            yield Scaling("operands", kept_in=kept_in, enters=enters)
        yield Scaling("exact", kept_in=kept_in)
    yield Scaling("ignored", kept_in="float32")
