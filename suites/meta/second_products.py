# SPDX-License-Identifier: Apache-2.0
"""The second derivation of products of matrices: exact fractions, and what right machines may make of them.

Written from contracts/product.py, the facts on matrix units and on engines, and vLLM's sources, by somebody who has
not seen reference/matmul. ``exact`` is the definition; ``possible`` draws one right computation; ``allowance`` bounds all
of them.
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
from narrowgauge.suites.meta.second_operands import Array, Inputs, Real, Side, exponent, number, numbers, side, unpacked
from narrowgauge.suites.meta.second_recipes import rule_of
from narrowgauge.suites.meta.second_sums import FINEST, Term, Way, rounded, summed

Place = tuple[int, int]
_U, _ONE = Fraction(1, 1 << 24), Fraction(1)


@dataclass(frozen=True)
class Made:
    """Both operands, of each expert's b one, and what is added."""

    product: Product
    out: str
    a: Side
    b: tuple[Side, ...]
    expert: tuple[int, ...]  #: of each row; -1 for none
    bias: Array | None  #: objects [experts, N]

    @property
    def shape(self) -> Place:
        return self.a.values.shape[0], self.b[0].values.shape[0]

    @property
    def integers(self) -> bool:
        """Whether sums are kept in int32."""
        return all(LAYOUTS[s.format].is_integer for s in (self.a, self.b[0]))


def made(product: Product, source: str, out: str, inputs: Inputs) -> Made:
    """``inputs`` are x, b and what the product's recipes store, by name; ``source`` and ``out`` the claim's formats."""
    count = int(inputs["expert_count"].data.ravel()[0]) if product.grouped else 1
    a_codes = _codes(product.a, inputs["x"], source, inputs.get("a_scale"))
    a = side(product.a, "a", a_codes, inputs)
    stacked = _codes(product.b, inputs["b"], source, inputs.get("b_scale"), depth=a.values.shape[1])
    whole = side(product.b, "b", stacked, inputs, count)
    rows = whole.values.shape[0] // count
    each = tuple(_cut(whole, slice(e * rows, (e + 1) * rows)) for e in range(count))
    expert = tuple(inputs["experts"].data.ravel().view(np.int32).tolist()) if product.grouped else (0,) * len(a.values)
    bias = numbers(inputs["bias"]) if product.bias else None
    return Made(product, out, a, each, expert, bias)


def _codes(operand: Operand, coded: Coded, source: str, scale: Coded | None, depth: int = 0) -> Coded:
    """An operand's matrix as it is stored, out of its layout; the packed axis is as long as K, or as the scales say."""
    layout = dict(operand.layouts).get("codes")
    coded = Coded(operand.format or source, coded.data)
    if not layout:
        return coded
    bits = (LAYOUTS[coded.format].codes - 1).bit_length()
    total = coded.data.nbytes * 8 // bits
    if operand.by_rows:
        rows = coded.shape[0]
        return unpacked(coded, layout, rows, total // rows)
    return unpacked(coded, layout, depth, total // depth)


def _cut(whole: Side, rows: slice) -> Side:
    return Side(whole.values[rows], whole.format, whole.scales[rows], whole.blocks, whole.overall, whole.inverse)


# ---------------- the definition


def exact(product: Product, source: str, out: str, inputs: Inputs) -> Array:
    """[M, N] objects: the real number before the last rounding, ``bias`` in it; or an infinity, or a NaN."""
    m = made(product, source, out, inputs)
    found = np.empty(m.shape, object)
    for place in np.ndindex(*m.shape):
        found[place] = exact_at(m, place)
    return found


def exact_at(m: Made, place: Place) -> Real:
    """One element."""
    a, b, bias = _of(m, place)
    if b is None:
        return Fraction(0)
    x, y = m.a.values[place[0]], b.values[place[1]]
    terms = [_times(_times(p, q), s * t) for p, q, s, t in zip(x, y, a, b.scales[place[1]], strict=True)]
    return _plus([*(_times(t, m.a.overall * b.overall) for t in terms), bias])


def once(m: Made, place: Place) -> int:
    """The code of the exact result, rounded once; a narrow bias is added to that and rounded again."""
    if m.product.bias != "narrow":
        return code(exact_at(m, place), m.out)
    _, _, bias = _of(m, place)
    before = exact_at(_without_bias(m), place)
    return code(_plus([number(code(before, m.out), m.out), bias]), m.out)


def _without_bias(m: Made) -> Made:
    return Made(m.product, m.out, m.a, m.b, m.expert, None)


def _of(m: Made, place: Place) -> tuple[Array, Side | None, Real]:
    """Scales of the row of a, the side of b, the bias. A row of no expert has none."""
    expert = m.expert[place[0]]
    if expert < 0:
        return m.a.scales[place[0]], None, Fraction(0)
    bias: Real = m.bias[expert, place[1]] if m.bias is not None else Fraction(0)
    return m.a.scales[place[0]], m.b[expert], bias


def _times(x: Real, y: Real) -> Real:
    """IEEE 754's product where one is no number: only signs matter there."""
    if isinstance(x, float) or isinstance(y, float):
        return _as_float(x) * _as_float(y)
    return x * y


def _as_float(x: Real) -> float:
    return x if isinstance(x, float) else float((x > 0) - (x < 0))


def _plus(terms: Sequence[Real]) -> Real:
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


def possible(product: Product, source: str, out: str, inputs: Inputs, way: Way, seed: int) -> Array:
    """[M, N] codes of one right computation; None where a sum on its way overflows, or an operand is no number."""
    m, rng = made(product, source, out, inputs), Random(seed)
    found = np.empty(m.shape, object)
    for place in np.ndindex(*m.shape):
        found[place] = possible_at(m, place, way, rng)
    return found


def possible_at(m: Made, place: Place, way: Way, rng: Random) -> int | None:
    """One element."""
    s, b, bias = _of(m, place)
    if b is None:
        return 0
    if isinstance(exact_at(m, place), float) or isinstance(bias, float):
        return None
    t, last = b.scales[place[1]], (_ONE, _ONE)
    if m.product.scaled == "unit" and not way.piece:  # scales are exponents and significands of the products
        terms = _terms(m, b, m.a.values[place[0]], b.values[place[1]])
        total = summed(_scaled(terms, s * t), way, rng)
    elif m.product.scaled in ("unit", "stretches"):  # a machine without such a unit scales stretches
        total = _stretched(m, b, place, way, rng)
    else:
        total = _all(m, b, _terms(m, b, m.a.values[place[0]], b.values[place[1]]), way, rng)
        last = (s[0], t[0])
    return None if abs(total) >= 1 << 128 else _finished(m, b, total, last, bias, way)


def _terms(m: Made, b: Side, x: Array, y: Array) -> list[Term]:
    return [Term(p * q, exponent(p, m.a.format) + exponent(q, b.format)) for p, q in zip(x, y, strict=True)]


def _scaled(terms: Sequence[Term], scales: Array) -> list[Term]:
    """Every product times both scales, exactly; exponents add."""
    return [
        Term(t.value * s, t.exponent + exponent(s, "float64")) for t, s in zip(terms, scales.tolist(), strict=True)
    ]


def _all(m: Made, b: Side, terms: Sequence[Term], way: Way, rng: Random) -> Fraction:
    """The sum of products as it stands in the accumulator, then in float32."""
    if m.integers:
        return rounded(sum((t.value for t in terms), Fraction(0)))
    return summed(terms, way, rng)


def _runs(m: Made, b: Side, way: Way) -> list[slice]:
    """Stretches of K that have one pair of scales, cut again where a machine's tile is smaller."""
    k = len(m.a.blocks)
    new = [i for i in range(1, k) if m.a.blocks[i] != m.a.blocks[i - 1] or b.blocks[i] != b.blocks[i - 1]]
    found = []
    for start, stop in zip([0, *new], [*new, k], strict=True):
        each = way.piece or stop - start
        found += [slice(at, min(at + each, stop)) for at in range(start, stop, each)]
    return found


def _stretched(m: Made, b: Side, place: Place, way: Way, rng: Random) -> Fraction:
    """Sums of stretches, each scaled in float32, added up in float32 in any order, in parts."""
    order = _runs(m, b, way)
    if way.shuffled:
        rng.shuffle(order)
    each, total = -(-len(order) // way.parts), Fraction(0)
    for start in range(0, len(order), each):
        part = Fraction(0)
        for run in order[start : start + each]:
            terms = _terms(m, b, m.a.values[place[0]][run], b.values[place[1]][run])
            s, t = m.a.scales[place[0]][run][0], b.scales[place[1]][run][0]
            part = _scaled_sum(_all(m, b, terms, way, rng), s, t, part, way)
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


def _finished(m: Made, b: Side, total: Fraction, last: tuple[Fraction, Fraction], bias: Fraction, way: Way) -> int:
    """Scales of the whole, the factors of tensors, a bias, one rounding to the result's format."""
    if m.a.overall != 1 or b.overall != 1:
        total = _scaled_sum(total, _alpha(m.a, b, way), _ONE, Fraction(0), way)
    wide = bias if m.product.bias != "narrow" else Fraction(0)
    y = code(_scaled_sum(total, *last, wide, way), m.out)
    if m.product.bias != "narrow":
        return y
    return code(_plus([number(y, m.out), bias]), m.out)


def _alpha(a: Side, b: Side, way: Way) -> Fraction:
    """Both tensors' factors as one float32: the product of reciprocals, or the reciprocal of the product."""
    if a.inverse is not None and b.inverse is not None and way.association == 1:
        return rounded(1 / rounded(a.inverse * b.inverse))
    return rounded(rounded(a.overall) * rounded(b.overall))


# ---------------- how far they may be off


def allowance(m: Made, place: Place, narrow: bool = False) -> Fraction:
    """An upper bound on |what a right machine has before its last rounding − exact|, for ways of ``second_sums``.

    Proof. u = 2^-24; P is the sum of |products|, each with its scales; B is |bias|; k products; parts ≤ 3, windows of at
    least 32, pieces of at least 16.
    * A chain or tree of nearest float32 takes a product through at most one rounding of its own and k − 1 additions:
      (1 + u)^k − 1 of P. Adding zero is exact.
    * A fused add of t products and what was there drops less than 2^(e−F) of each of t + 1 numbers (toward zero), where
      2^e ≤ the largest of them ≤ P, and less than 2^-(bits−1) of the sum; nothing grows, so every partial sum stays
      below P. Over n adds: ((k + n) 2^-F + n 2^-(bits−1)) P, n ≤ k/L + parts + windows. With F ≥ 23, L ≥ 4, and 24
      bits: (k + 2n) 2u. CDNA3's is below that: F = 24 for k + n numbers, and 2^-31, u for each add.
    * Subnormal operands have exponents above their own: the first part of the fused bound holds with the sum of 2^(ea+eb)
      in place of P.
    * Promotion, parts and stretches add at most 1 + parts + windows + stretches float32 additions.
    * Each stretch is scaled with 2 roundings (3 where the scales are multiplied first count as 2: one of the product of
      scales, one of the product); alpha with 3, and its product; the bias with 1; int32 to float32 with 1.
    * A float32 below 2^-126 is off by at most 2^-150: one for each operation, times the scales that follow it.
    """
    a, b, bias = _of(m, place)
    if b is None:
        return Fraction(0)
    x, y = m.a.values[place[0]], b.values[place[1]]
    factors = [abs(s * t * m.a.overall * b.overall) for s, t in zip(a, b.scales[place[1]], strict=True)]
    k, most = len(x), max([Fraction(1), *factors])
    size = sum((abs(p * q) * f for p, q, f in zip(x, y, factors, strict=True)), Fraction(0))
    terms = zip(_terms(m, b, x, y), factors, strict=True)
    high = sum((Fraction(2) ** t.exponent * f for t, f in terms if t.value), Fraction(0))
    cuts = 1 + len(set(zip(m.a.blocks.tolist(), b.blocks.tolist(), strict=True)))
    adds = 3 + -(-k // 32) + 2 * -(-k // 16) + cuts  # parts, windows and pieces
    if m.integers:
        off = Fraction(0)
    else:
        n = (-(-k // 16) if narrow else -(-k // 4) if m.product.scaled != "unit" else k) + adds
        fraction, stored = (Fraction(1, 1 << 13),) * 2 if narrow else (2 * _U, 2 * _U)
        off = (k + n) * fraction * max(high, size) + n * stored * size
    grown = (1 + _U) ** (adds + 8) - 1
    assert isinstance(bias, Fraction)
    small = (2 * k + 4 * adds + 16) * Fraction(2) ** (FINEST - 1) * most
    if narrow:
        small *= 1 << 10  # a stored sum has 10 bits less below 2^-126 too
    return off * (1 + grown) + (size + abs(bias) + small) * grown + small
