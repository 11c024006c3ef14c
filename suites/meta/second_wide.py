# SPDX-License-Identifier: Apache-2.0
"""A second derivation of the wide operations: one row at a time, in decimals of sixty digits, from the definitions.

It shares no code with the reference: no intervals, no float. Infinities and NaN are those of Python's decimals, whose
rules are IEEE 754's. Where a definition rounds in between, the cast is that of suites/meta/second_derivation.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import partial

from narrowgauge.suites.meta.second_derivation import Number, cast, decode

#: sixty digits, any exponent, and nothing raises
DIGITS = Context(prec=60, Emin=-999999, Emax=999999, traps=[])
NEAREST = {"rounding": "nearest_even", "overflow": "special", "infinity": "special", "nan": "nan",
           "negative_zero": "keep", "subnormals": "keep", "limit": None}  # fmt: skip

Row = Sequence[Decimal]
Given = Mapping[str, Row]
Outputs = dict[str, list[Decimal]]


def number(code: int, format_name: str) -> Decimal:
    """What a code stands for, exactly."""
    value = decode(code, format_name)
    if value.kind != "finite":
        return Decimal("NaN") if value.kind == "nan" else Decimal("-Infinity" if value.negative else "Infinity")
    with localcontext(DIGITS) as context:
        context.prec = 400
        found = Decimal(value.magnitude.numerator) / Decimal(value.magnitude.denominator)
    return found.copy_negate() if value.negative else found


def rounded(value: Decimal, format_name: str) -> int:
    """The nearest code, ties to even; infinity beyond the largest."""
    kind = "nan" if value.is_nan() else "inf" if value.is_infinite() else "finite"
    magnitude = abs(Fraction(value)) if kind == "finite" else Fraction(0)
    return cast(Number(kind, value.is_signed(), magnitude), format_name, NEAREST)


def through(value: Decimal, format_name: str) -> Decimal:
    return number(rounded(value, format_name), format_name)


# --- norms -----------------------------------------------------------------------------------------------------------


def _normal(row: Row) -> list[Decimal]:
    root = (sum((v * v for v in row), Decimal(0)) / len(row) + Decimal("0.000001")).sqrt()
    return [v / root for v in row]


def rms_norm(row: Row, given: Given, source: str) -> Outputs:
    return {"y": [v * w for v, w in zip(_normal(row), given["weight"], strict=True)]}


def rms_norm_twice_rounded(row: Row, given: Given, source: str) -> Outputs:
    return {"y": [through(v, source) * w for v, w in zip(_normal(row), given["weight"], strict=True)]}


def rms_norm_one_more(row: Row, given: Given, source: str) -> Outputs:
    return {"y": [v * (1 + w) for v, w in zip(_normal(row), given["weight"], strict=True)]}


def add_rms_norm(row: Row, given: Given, source: str, *, also: str = "") -> Outputs:
    summed = [through(a + b, "float32") for a, b in zip(row, given["residual"], strict=True)]
    summed = [through(v, also or "float32") for v in summed]
    return rms_norm(summed, given, source) | {"residual": summed}


def add_rms_norm_rounded(row: Row, given: Given, source: str) -> Outputs:
    return add_rms_norm(row, given, source, also=source)


# --- activations and rotations ---------------------------------------------------------------------------------------


def _sigmoid(value: Decimal) -> Decimal:
    return 1 / (1 + (-value).exp())


def _gate_and_up(row: Row) -> tuple[list[Decimal], Row]:
    half = len(row) // 2
    return [g / (1 + (-g).exp()) for g in row[:half]], row[half:]


def silu_mul(row: Row, given: Given, source: str) -> Outputs:
    return {"y": [g * u for g, u in zip(*_gate_and_up(row), strict=True)]}


def silu_mul_twice_rounded(row: Row, given: Given, source: str) -> Outputs:
    return {"y": [through(g, source) * u for g, u in zip(*_gate_and_up(row), strict=True)]}


def _capped(value: Decimal, cap: int) -> Decimal:
    twice = (-2 * abs(value) / cap).exp()
    return ((1 - twice) / (1 + twice) * cap).copy_sign(value) if not value.is_nan() else value


def soft_cap(row: Row, given: Given, source: str) -> Outputs:
    return {"y": [_capped(v, 30) for v in row]}


def _turned(row: Row, given: Given, pairs: Sequence[tuple[int, int]]) -> Outputs:
    y = list(row)
    for (a, b), c, s in zip(pairs, given["cos"], given["sin"], strict=True):
        y[a], y[b] = row[a] * c - row[b] * s, row[b] * c + row[a] * s
    return {"y": y}


def rope_neox(row: Row, given: Given, source: str) -> Outputs:
    half = len(row) // 2
    return _turned(row, given, [(k, k + half) for k in range(half)])


def rope_interleaved(row: Row, given: Given, source: str) -> Outputs:
    return _turned(row, given, [(2 * k, 2 * k + 1) for k in range(len(row) // 2)])


# --- softmax, choices ------------------------------------------------------------------------------------------------


def _shares(row: Row) -> list[Decimal]:
    """By the definition: without a largest that is taken off, since decimals do not overflow. An infinite score, or
    none at all, leaves nothing that is a number."""
    if any(v.is_nan() or v == Decimal("Infinity") for v in row):
        return [Decimal("NaN")] * len(row)
    powers = [v.exp() for v in row]
    total = sum(powers, Decimal(0))
    return [p / total for p in powers]


def softmax(row: Row, given: Given, source: str) -> Outputs:
    return {"y": _shares(row)}


def log_softmax(row: Row, given: Given, source: str) -> Outputs:
    return {"y": [share.ln() for share in _shares(row)]}


def capped_softmax(row: Row, given: Given, source: str) -> Outputs:
    kept = int(given["lengths"][0])
    scores = [_capped(v, 50) if place < kept else Decimal("-Infinity") for place, v in enumerate(row)]
    return {"y": _shares(scores)}


def _largest(values: Row, count: int) -> list[int]:
    """Columns of the largest, of equal ones the lower first."""
    return sorted(range(len(values)), key=lambda k: (-values[k], k))[:count]


def greedy(row: Row, given: Given, source: str) -> Outputs:
    return {"token": [Decimal(_largest(row, 1)[0])]}


def sample(row: Row, given: Given, source: str) -> Outputs:
    shares = _shares([v / given["temperature"][0] for v in row])
    race = [p / q for p, q in zip(shares, given["noise"], strict=True)]
    return {"token": [Decimal(_largest(race, 1)[0])]}


def _routed(scores: Row, order: Row, *, renormalised: bool, factor: Decimal = Decimal(1)) -> Outputs:
    experts = _largest(order, 4)
    weights = [scores[k] for k in experts]
    total = sum(weights, Decimal(0)) if renormalised else Decimal(1)
    return {"weights": [w / total * factor for w in weights], "experts": [Decimal(k) for k in experts]}


def router_softmax(row: Row, given: Given, source: str, *, renormalised: bool = False) -> Outputs:
    return _routed(_shares(row), row, renormalised=renormalised)


def router_chosen_softmax(row: Row, given: Given, source: str) -> Outputs:
    experts = _largest(row, 4)
    return {"weights": _shares([row[k] for k in experts]), "experts": [Decimal(k) for k in experts]}


def router_sigmoid(row: Row, given: Given, source: str) -> Outputs:
    scores = [_sigmoid(v) for v in row]
    order = [s + b for s, b in zip(scores, given["bias"], strict=True)]
    return _routed(scores, order, renormalised=True, factor=Decimal("2.5"))


SECOND: dict[str, Callable[[Row, Given, str], Outputs]] = {
    "rms_norm": rms_norm,
    "rms_norm_twice_rounded": rms_norm_twice_rounded,
    "rms_norm_one_more": rms_norm_one_more,
    "add_rms_norm": add_rms_norm,
    "add_rms_norm_rounded": add_rms_norm_rounded,
    "add_rms_norm_float32": add_rms_norm,
    "silu_mul": silu_mul,
    "silu_mul_twice_rounded": silu_mul_twice_rounded,
    "soft_cap": soft_cap,
    "rope_neox": rope_neox,
    "rope_interleaved": rope_interleaved,
    "softmax": softmax,
    "log_softmax": log_softmax,
    "capped_softmax": capped_softmax,
    "greedy": greedy,
    "sample": sample,
    "router_softmax": router_softmax,
    "router_softmax_renormalised": partial(router_softmax, renormalised=True),
    "router_chosen_softmax": router_chosen_softmax,
    "router_sigmoid": router_sigmoid,
}


def outputs_of(name: str, row: Row, given: Given, source: str) -> Outputs:
    """What an operation gives of one row, as real numbers, before the rounding to the claim's format."""
    with localcontext(DIGITS):
        return SECOND[name](row, given, source)
