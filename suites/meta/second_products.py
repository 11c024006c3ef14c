# SPDX-License-Identifier: Apache-2.0
"""The second derivation of products of matrices: exact fractions, and what right machines may make of them.

Written from contracts/product.py, the facts on matrix units and on engines, and vLLM's sources, by somebody who has
not seen reference/matmul. ``exact`` is the definition; ``possible`` draws one right computation; second_reach bounds
all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from random import Random

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.product import Operand, Product
from narrowgauge.suites.meta.second_derivation import LAYOUTS, Number, cast_bound
from narrowgauge.suites.meta.second_operands import (
    Inputs,
    Place,
    Real,
    Row,
    Side,
    Stored,
    exponent,
    number,
)
from narrowgauge.suites.meta.second_recipes import rule_of
from narrowgauge.suites.meta.second_sums import Term, Way, rounded, summed

_ONE = Fraction(1)


@dataclass(frozen=True)
class Made:
    """Both operands, and what is added."""

    product: Product
    out: str
    a: Side
    b: Side
    experts: int
    expert: list[int]  #: of each row; -1 for none
    bias: Coded | None  #: [experts, N]

    @property
    def shape(self) -> Place:
        return self.a.rows, self.b.rows // self.experts

    @property
    def integers(self) -> bool:
        """Whether sums are kept in int32."""
        return all(LAYOUTS[s.format].is_integer for s in (self.a, self.b))

    @property
    def alpha(self) -> Fraction:
        """Both tensors' factors."""
        return self.a.overall * self.b.overall


@dataclass(frozen=True)
class Element:
    """Row m of a, row n of its expert's b, the bias."""

    a: Row
    b: Row
    bias: Real

    @property
    def finite(self) -> bool:
        """Whether all of it are numbers."""
        parts = (*self.a.values, *self.b.values, *self.a.scales, *self.b.scales, self.bias)
        return not any(isinstance(x, float) for x in parts)

    @property
    def scales(self) -> list[tuple[Fraction, Fraction]]:
        """Of each product, where all are numbers."""
        return [(Fraction(s), Fraction(t)) for s, t in zip(self.a.scales, self.b.scales, strict=True)]


def made(product: Product, source: str, out: str, inputs: Inputs, rounding: str = "") -> Made:
    """``inputs`` are x, b and what the product's recipes store, as a kernel is given them; ``source`` and ``out`` the
    claim's formats. ``rounding``: how plain numbers enter, where they enter narrower ("" for nearest even)."""
    count = int(inputs["expert_count"].data.ravel()[0]) if product.grouped else 1
    a = Side(product.a, "a", _stored(product.a, inputs["x"], source), inputs, rounding=rounding)
    b = Side(product.b, "b", _stored(product.b, inputs["b"], source, a.depth), inputs, count, rounding)
    expert = [0] * a.rows
    if product.grouped:
        expert = np.ascontiguousarray(inputs["experts"].data).ravel().view(np.int32).tolist()
    return Made(product, out, a, b, count, expert, inputs["bias"] if product.bias else None)


def _stored(operand: Operand, coded: Coded, source: str, depth: int = 0) -> Stored:
    """An operand's matrix. ``depth``: K, where it is the number of rows."""
    layout, format = dict(operand.layouts).get("codes", ""), operand.format or source
    if not layout:
        return Stored(format, (coded.shape[0], coded.shape[1]), coded)
    bits = (LAYOUTS[format].codes - 1).bit_length()
    rows = coded.shape[0] if operand.by_rows else depth
    image = Coded(coded.format, np.ascontiguousarray(coded.data))
    return Stored(format, (rows, image.data.nbytes * 8 // bits // rows), image, layout)


def element(m: Made, place: Place) -> Element | None:
    """What an element is made of; None for a row of no expert."""
    expert = m.expert[place[0]]
    if expert < 0:
        return None
    bias = number(int(m.bias.data[expert, place[1]]), m.bias.format) if m.bias is not None else Fraction(0)
    return Element(m.a.row(place[0]), m.b.row(expert * m.shape[1] + place[1]), bias)


# ---------------- the definition


def exact(product: Product, source: str, out: str, inputs: Inputs) -> list[list[Real]]:
    """[M][N]: the real number before the last rounding, ``bias`` in it; or an infinity, or a NaN."""
    m = made(product, source, out, inputs)
    return [[exact_at(m, (row, column)) for column in range(m.shape[1])] for row in range(m.shape[0])]


def exact_at(m: Made, place: Place) -> Real:
    """One element."""
    of = element(m, place)
    return Fraction(0) if of is None else sum_of(m, of, of.bias)


def sum_of(m: Made, of: Element, bias: Real) -> Real:
    parts = zip(of.a.values, of.b.values, of.a.scales, of.b.scales, strict=True)
    terms = [_times(_times(p, q), _times(s, t)) for p, q, s, t in parts]
    return plus([*(_times(t, m.alpha) for t in terms), bias])


def once(m: Made, place: Place) -> int:
    """The code of the exact result, rounded once; a narrow bias is added to that and rounded again."""
    of = element(m, place)
    if of is None:
        return 0
    if m.product.bias != "narrow":
        return code(sum_of(m, of, of.bias), m.out)
    before = code(sum_of(m, of, Fraction(0)), m.out)
    return code(plus([number(before, m.out), of.bias]), m.out)


def _times(x: Real, y: Real) -> Real:
    """IEEE 754's product where one is no number: only signs matter there."""
    if isinstance(x, float) or isinstance(y, float):
        return _as_float(x) * _as_float(y)
    return x * y


def _as_float(x: Real) -> float:
    return x if isinstance(x, float) else float((x > 0) - (x < 0))


def plus(terms: Sequence[Real]) -> Real:
    strange = [t for t in terms if isinstance(t, float)]
    if strange:
        return sum(strange)
    return sum((t for t in terms if isinstance(t, Fraction)), Fraction(0))


def code(x: Real, format: str) -> int:
    """Nearest even, overflow to infinity."""
    if isinstance(x, float):
        kind = "nan" if x != x else "inf"
        return cast_bound(Number(kind, x < 0, Fraction(0)), rule_of(format))
    return cast_bound(Number("finite", x < 0, abs(x)), rule_of(format))


# ---------------- what machines make of it


def possible(product: Product, source: str, out: str, inputs: Inputs, way: Way, seed: int) -> list[list[int | None]]:
    """[M][N] codes of one right computation; None where a sum on its way overflows, or an operand is no number."""
    m, rng = made(product, source, out, inputs), Random(seed)
    return [[possible_at(m, (row, column), way, rng) for column in range(m.shape[1])] for row in range(m.shape[0])]


def possible_at(m: Made, place: Place, way: Way, rng: Random) -> int | None:
    """One element."""
    of = element(m, place)
    if of is None:
        return 0
    if not of.finite:
        return None
    last = (_ONE, _ONE)
    if m.product.scaled == "unit" and not way.piece:  # scales are exponents and significands of the products
        total = summed(_scaled(terms_of(m, of), of), way, rng)
    elif m.product.scaled in ("unit", "stretches"):  # a machine without such a unit scales stretches
        total = _stretched(m, of, way, rng)
    else:
        total = _all(m, terms_of(m, of), way, rng)
        last = of.scales[0] if of.a.scales else last
    return None if abs(total) >= 1 << 128 else finished(m, total, last, of.bias, way)


def terms_of(m: Made, of: Element, run: slice = slice(None)) -> list[Term]:
    pairs = zip(of.a.values[run], of.b.values[run], strict=True)
    return [Term(Fraction(p) * Fraction(q), exponent(p, m.a.format) + exponent(q, m.b.format)) for p, q in pairs]


def _scaled(terms: Sequence[Term], of: Element) -> list[Term]:
    """Every product times both scales, exactly; exponents add."""
    scales = [s * t for s, t in of.scales]
    return [Term(t.value * s, t.exponent + exponent(s, "float64")) for t, s in zip(terms, scales, strict=True)]


def _all(m: Made, terms: Sequence[Term], way: Way, rng: Random) -> Fraction:
    """The sum of products as it stands in the accumulator, then in float32."""
    if m.integers:
        return rounded(sum((t.value for t in terms), Fraction(0)))
    return summed(terms, way, rng)


def _runs(m: Made, way: Way) -> list[slice]:
    """Stretches of K that have one pair of scales, cut again where a machine's tile is smaller."""
    pairs = list(zip(m.a.blocks, m.b.blocks, strict=True))
    new = [i for i in range(1, len(pairs)) if pairs[i] != pairs[i - 1]]
    found = []
    for start, stop in zip([0, *new], [*new, len(pairs)], strict=True):
        each = way.piece or stop - start or 1
        found += [slice(at, min(at + each, stop)) for at in range(start, stop, each)]
    return found


def _stretched(m: Made, of: Element, way: Way, rng: Random) -> Fraction:
    """Sums of stretches, each scaled in float32, added up in float32 in any order, in parts."""
    order, scales = _runs(m, way), of.scales
    if way.shuffled:
        rng.shuffle(order)
    each, total = -(-len(order) // way.parts) or 1, Fraction(0)
    for start in range(0, len(order), each):
        part = Fraction(0)
        for run in order[start : start + each]:
            found = _all(m, terms_of(m, of, run), way, rng)
            s, t = scales[int(run.start)]
            part = _scaled_sum(found, s, t, part, way)
        total = rounded(total + part)
    return total


def _scaled_sum(x: Fraction, s: Fraction, t: Fraction, more: Fraction, way: Way) -> Fraction:
    """x · s · t + more in float32, by one of the associations."""
    if way.association == 2:
        last, factor = x, rounded(s * t)
    else:
        last, factor = (rounded(x * s), t) if way.association == 0 else (rounded(x * t), s)
    product = last * factor
    return rounded((product if way.contracted else rounded(product)) + more)


def finished(m: Made, total: Fraction, last: tuple[Fraction, Fraction], bias: Real, way: Way) -> int:
    """Scales of the whole, the factors of tensors, a bias, one rounding to the result's format."""
    assert isinstance(bias, Fraction)
    if m.alpha != 1:
        total = _scaled_sum(total, _alpha(m, way), _ONE, Fraction(0), way)
    if m.product.bias != "narrow":
        return code(_scaled_sum(total, *last, bias, way), m.out)
    return code(plus([number(code(_scaled_sum(total, *last, Fraction(0), way), m.out), m.out), bias]), m.out)


def _alpha(m: Made, way: Way) -> Fraction:
    """Both tensors' factors as one float32: the product of reciprocals, or the reciprocal of the product."""
    if m.a.inverse is not None and m.b.inverse is not None and way.association == 1:
        return rounded(1 / rounded(m.a.inverse * m.b.inverse))
    return rounded(rounded(m.a.overall) * rounded(m.b.overall))
