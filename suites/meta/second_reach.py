# SPDX-License-Identifier: Apache-2.0
"""How far right machines may be off a product's exact result: a bound with its proof, for the ways of second_sums."""

from __future__ import annotations

from fractions import Fraction

from narrowgauge.suites.meta.second_operands import Place, Real, number
from narrowgauge.suites.meta.second_products import Made, code, element, plus, sum_of, terms_of
from narrowgauge.suites.meta.second_sums import FINEST

_U, _ONE, _TF32 = Fraction(1, 1 << 24), Fraction(1), Fraction(1, 1 << 10)


def allowance(m: Made, place: Place, narrow: bool = False) -> Fraction:
    """An upper bound on |what a right machine has before its last rounding − exact|, for ways of ``second_sums``.

    Scales, and products of scales, are normal numbers. Proof, with u = 2^-24, P the sum of |products|, each with its
    scales, B the bias' size, k products; parts ≤ 3, windows of at least 32, pieces of at least 16.

    * A chain or tree of nearest float32 takes a product through at most one rounding of its own and k − 1 additions:
      (1 + u)^k − 1 of P. Adding zero is exact.
    * A fused add of t products and what was there drops less than 2^(e−F) of each of t + 1 numbers (toward zero), where
      2^e ≤ the largest of them ≤ P, and less than 2^-(bits−1) of the sum; nothing grows, so every partial sum stays
      below P. Over n adds that is ((k + n) 2^-F + n 2^-(bits−1)) P, with n ≤ k/L and one more for each part, window and
      piece. With F ≥ 23, L ≥ 4 and 24 bits: (k + 2n) 2u. CDNA3's is below that: F = 24 for k + n numbers, and 2^-31
      and u for each add.
    * Subnormal operands have exponents above their own: the first part of the fused bound holds with the sum of
      2^(ea+eb) in place of P.
    * A plain number becomes one of its two neighbours in tfloat32, both less than 2^-10 of it away: off from the exact
      product of numbers that are not rounded (``rounding`` "none") by less than (1 + 2^-10)² − 1 of P.
    * Parts, windows and pieces are added up in float32: one rounding for each.
    * A scale, or the product of two, is one rounding each: 2. Both tensors' factors: 3, and one to multiply. A bias: 1.
      An int32 that becomes float32: 1.
    * A float32 below 2^-126 is off by at most 2^-150: one for each operation, times the scales that follow it.
    """
    of = element(m, place)
    if of is None:
        return Fraction(0)
    assert isinstance(of.bias, Fraction)
    factors = [abs(s * t * m.alpha) for s, t in of.scales]
    terms = list(zip(terms_of(m, of), factors, strict=True))
    size = sum((abs(t.value) * f for t, f in terms), Fraction(0))
    high = sum((Fraction(2) ** t.exponent * f for t, f in terms if t.value), Fraction(0))
    k, off, adds = len(terms), Fraction(0), 0
    if not m.integers:
        pieces = m.product.scaled in ("unit", "stretches")
        cuts = len(set(zip(m.a.blocks, m.b.blocks, strict=True))) + -(-k // 16) if pieces else 0
        adds = 3 + -(-k // 32) + cuts
        n = (-(-k // 16) if narrow else -(-k // 4)) + adds
        step = Fraction(1, 1 << 13) if narrow else 2 * _U
        off = (k + n) * step * max(high, size) + n * step * size
    if m.product.scaled == "operands" and "tfloat32" in (m.a.format, m.b.format):
        off += size * ((1 + _TF32) ** 2 - 1)
    roundings = adds + 2 + m.integers + 4 * (m.alpha != 1) + bool(m.product.bias)
    grown = (1 + _U) ** roundings - 1
    least = Fraction(2) ** (FINEST - 1 + 10 * narrow)  # 13 bits below 2^-126 end 10 bits earlier
    small = (2 * k + 4 * adds + 16) * least * max([_ONE, *factors])
    return off * (1 + grown) + (size + abs(of.bias) + small) * grown + small


def reach(m: Made, place: Place, narrow: bool = False) -> tuple[Real, Real]:
    """The least and the largest result within ``allowance``: every step behind the sum is monotone."""
    of, off = element(m, place), allowance(m, place, narrow)
    if of is None:
        return Fraction(0), Fraction(0)
    after = m.product.bias == "narrow"
    exact = sum_of(m, of, Fraction(0) if after else of.bias)
    assert isinstance(exact, Fraction)
    low, high = (number(code(end, m.out), m.out) for end in (exact - off, exact + off))
    if after:
        low, high = (number(code(plus([end, of.bias]), m.out), m.out) for end in (low, high))
    return low, high
