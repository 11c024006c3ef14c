# SPDX-License-Identifier: Apache-2.0
"""The trials of docs/legal.md once more, in exact fractions, with a rounding of its own.

Written from the page's sentences: it shares neither code nor arithmetic with reference/legal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction

INF = math.inf
Number = Fraction | float  # a float is infinity, or NaN

#: significant bits, exponent of the least normal number, largest number, whether what lies beyond becomes it
FLOATS: dict[str, tuple[int, int, Fraction, bool]] = {
    "float32": (24, -126, (2 - Fraction(1, 2**23)) * 2**127, False),
    "tfloat32": (11, -126, (2 - Fraction(1, 2**10)) * 2**127, False),
    "bfloat16": (8, -126, (2 - Fraction(1, 2**7)) * 2**127, False),
    "float16": (11, -14, Fraction(65504), False),
    "float8_e5m2": (3, -14, Fraction(57344), False),
    "float8_e4m3fn": (4, -6, Fraction(448), True),
    "float4_e2m1fn": (2, 0, Fraction(6), True),
}
INTEGERS = {"int8": 127, "int32": 2**31 - 1}


def rounded(x: Number, name: str) -> Number:
    """The nearest number of a format, of two the one whose last bit is 0."""
    if isinstance(x, float):
        return largest(name) if x == INF and (name in INTEGERS or FLOATS[name][3]) else x
    if name == "float8_e8m0fnu":
        low = _binade(x)
        return low if x - low < low else 2 * low  # halfway is 1.5 times low; no trial comes to it
    if name in INTEGERS:
        return Fraction(max(-INTEGERS[name], min(INTEGERS[name], round(x))))
    bits, least, top, saturates = FLOATS[name]
    if x == 0:
        return x
    step = max(_binade(abs(x)), _power(least)) / 2 ** (bits - 1)
    near: Fraction = round(x / step) * step
    if abs(near) <= top:
        return near
    return top if saturates else INF


def largest(name: str) -> Fraction:
    return Fraction(INTEGERS[name]) if name in INTEGERS else FLOATS[name][2]


def _binade(x: Fraction) -> Fraction:
    power = _power(x.numerator.bit_length() - x.denominator.bit_length())
    return power if power <= x else power / 2


def _power(exponent: int) -> Fraction:
    return Fraction(2**exponent) if exponent >= 0 else Fraction(1, 2**-exponent)


def _plus(one: Number, other: Number) -> Number:
    return INF if INF in (one, other) else one + other


def _over(one: Number, other: Number) -> Number:
    if other == INF:
        return math.nan if one == INF else Fraction(0)
    if other == 0:
        return INF
    return INF if one == INF else Fraction(one) / Fraction(other)


def _root(x: Number) -> Number:
    """To 2^-80 of itself: no trial's root lies so near to a tie without being exact."""
    if isinstance(x, float):
        return x
    return Fraction(math.isqrt(x.numerator * x.denominator << 160), x.denominator << 80)


def _by_decimal(x: Fraction, f: Callable[[Decimal], Decimal]) -> Fraction:
    with localcontext() as context:
        context.prec = 60
        return Fraction(f(Decimal(x.numerator) / Decimal(x.denominator)))


def _tanh(x: Fraction) -> Fraction:
    return _by_decimal(x, lambda d: 1 - 2 / ((2 * d).exp() + 1))


def _serial(terms: Sequence[Number], name: str) -> Number:
    total = terms[0]
    for term in terms[1:]:
        total = rounded(_plus(total, term), name)
    return total


# --- answers: the verdict, and the numbers that the page shows -------------------------------------------------------

Answer = tuple[str, list[Number]]
ONES = [Fraction(1)] * 4096


def _sum(name: str) -> Answer:
    total = _serial(ONES, name)
    return _yes(total == 4096), [total]


def _norm(name: str) -> Answer:
    found = []
    for value, count in ((Fraction(1), 4096), (Fraction(300), 4)):
        x = rounded(value, name)
        square = rounded(INF if x == INF else Fraction(x) ** 2, name)
        mean = rounded(_over(_serial([square] * count, name), Fraction(count)), name)
        found.append(rounded(_over(x, rounded(_root(mean), name)), name))
    return _yes(found == [1, 1]), found


def _softmax(name: str) -> Answer:
    weight = rounded(_over(Fraction(1), _serial(ONES, name)), name)
    return _yes(weight == Fraction(1, 4096)), [weight, weight * 4096]


def _scores(name: str) -> Answer:
    factor = rounded(Fraction(32), name)
    each = [rounded(Fraction(factor) ** 2, name), rounded(Fraction(100), name), rounded(Fraction(401, 4), name)]
    found = [rounded(each[0] if each[0] == INF else each[0] * 128, name), *each[1:]]
    return _yes(found[0] == 131072 and found[1] != found[2]), found


def _logits(name: str) -> Answer:
    return _apart([rounded(Fraction(f"20.0{n}"), name) for n in (1, 2, 3, 4)])


def _soft_cap(name: str) -> Answer:
    found = []
    for x in (Fraction(150), Fraction(160)):
        inner = rounded(Fraction(rounded(x, name)) / 30, name)
        found.append(rounded(30 * Fraction(rounded(_tanh(Fraction(inner)), name)), name))
    return _apart(found)


def _router(name: str) -> Answer:
    inputs = [Fraction(rounded(Fraction(x), name)) for x in ("9", "9.5")]
    return _apart([rounded(_by_decimal(x, lambda d: 1 / (1 + (-d).exp())), name) for x in inputs])


def _rotation(name: str) -> Answer:
    angle = rounded(Fraction(4097), name)
    return _yes(angle == 4097), [angle]


def _residual(name: str) -> Answer:
    kept = _serial([rounded(Fraction(256), name), *[Fraction(1, 2)] * 64], name)
    one = rounded(Fraction(40000), name)
    two = rounded(_plus(one, one), name)
    return _yes(kept == 288 and _off(two, Fraction(80000)) < 1250), [kept, two]


def _attention(name: str) -> Answer:
    total = 4096 * rounded(Fraction(1, 4096), name)
    return ("yes" if total == 1 else "before the division"), [total]


def _stored(*numbers: str) -> Callable[[str], Answer]:
    def answer(name: str) -> Answer:
        exact = [Fraction(n) for n in numbers]
        plain = [rounded(x, name) for x in exact]
        if all(_off(p, x) < x / 2 for p, x in zip(plain, exact, strict=True)):
            return "yes", plain
        scale = exact[0] / largest(name)
        scaled = [rounded(x / scale, name) * scale for x in exact]
        near = all(_off(p, x) < x / 2 for p, x in zip(scaled, exact, strict=True))
        return ("with a scale" if near else "no"), [*plain, *scaled]

    return answer


def _scale(name: str) -> Answer:
    exact = [Fraction(20), Fraction("2e-6")]

    def back(scales: list[Number]) -> list[Number]:
        return [rounded(_over(x, s), "float8_e4m3fn") * s for x, s in zip(exact, scales, strict=True)]

    def near(found: list[Number]) -> bool:
        return all(_off(f, x) < x / 16 for f, x in zip(found, exact, strict=True))

    plain = back([rounded(x / 448, name) for x in exact])
    if near(plain):
        return "yes", plain
    if name == "float8_e8m0fnu":
        up = back([2 * _binade(x / 448) for x in exact])  # neither is a power of two
        return ("rounded up" if near(up) else "no"), [*plain, *up]
    tensors = [x / 448 / largest(name) for x in exact]
    scaled = back([rounded(x / 448 / t, name) * t for x, t in zip(exact, tensors, strict=True)])
    return ("with a scale" if near(scaled) else "no"), [*plain, *scaled]


def _off(one: Number, other: Fraction) -> Number:
    return other - one if one < other else one - other


def _yes(right: bool) -> str:
    return "yes" if right else "no"


def _apart(each: list[Number]) -> Answer:
    return _yes(len(set(each)) == len(each)), each


ANSWERS: dict[str, Callable[[str], Answer]] = {
    "sum of a product": _sum,
    "RMSNorm": _norm,
    "softmax": _softmax,
    "scores of attention": _scores,
    "soft-cap": _soft_cap,
    "logits and sampling": _logits,
    "scores of a router": _router,
    "angles of RoPE": _rotation,
    "residual stream": _residual,
    "weights of attention": _attention,
    "SiLU(gate) · up": _stored("90000", "8000"),
    "result of a product": _stored("70000", "6000"),
    "operands of a product": _stored("0.012", "0.001"),
    "key-value cache": _stored("1000", "80"),
    "scale of float8_e4m3fn": _scale,
}
