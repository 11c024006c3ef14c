# SPDX-License-Identifier: Apache-2.0
"""The second derivation of decode attention: exact, from the definition alone, in fractions and 60 decimal digits."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction


def attention(
    query: Sequence[float],
    keys: Sequence[Sequence[float]],
    values: Sequence[Sequence[float]],
    scale: float,
    soft_cap: float = 0.0,
    key_scales: Sequence[float] | None = None,
    value_scales: Sequence[float] | None = None,
) -> list[Decimal]:
    """One query head: softmax over the keys of cap(scale · key scale · q · k), times value scale · v."""
    with localcontext() as context:
        context.prec, context.Emin = 60, -(10**9)
        of_keys = key_scales or [1.0] * len(keys)
        of_values = value_scales or [1.0] * len(keys)
        logits = []
        for key, own in zip(keys, of_keys, strict=True):
            dot = sum((Fraction(q) * Fraction(k) for q, k in zip(query, key, strict=True)), Fraction(0))
            logits.append(_capped(_decimal(dot * Fraction(scale) * Fraction(own)), soft_cap))
        powers = [(logit - max(logits)).exp() for logit in logits]
        whole = sum(powers, Decimal(0))
        columns = zip(*values, strict=True)
        return [
            sum(
                (
                    p * _decimal(Fraction(v) * Fraction(own))
                    for p, v, own in zip(powers, column, of_values, strict=True)
                ),
                Decimal(0),
            )
            / whole
            for column in columns
        ]


def _decimal(number: Fraction) -> Decimal:
    return Decimal(number.numerator) / Decimal(number.denominator)


def _capped(logit: Decimal, cap: float) -> Decimal:
    if not cap:
        return logit
    power = (-2 * abs(logit) / Decimal(cap)).exp()
    size = Decimal(cap) * (1 - power) / (1 + power)
    return -size if logit < 0 else size
