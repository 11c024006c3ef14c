"""Scores q · k of one sequence, and by how much a float32 kernel may miss each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from narrowgauge.reference.kv.arithmetic import (
    F64,
    SUMS,
    TANH,
    TANH_ABSOLUTE,
    TINY,
    U,
    digits,
    grid,
    rounding_to,
)
from narrowgauge.reference.kv.rule import Attention

#: roundings of a score other than those of its dot product: softmax scale times a query's, times a key's, times
#: log2 e, log2 e itself, and the product with what is summed. Before the sum or after it.
_SCALINGS = 5 * U


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores [kv heads, queries per kv head, keys], and the largest absolute error of each."""

    value: F64
    error: F64


def scores_of(query: F64, keys: F64, scale: F64, rule: Attention) -> Scores:
    """From q [kv heads, queries, d], k [kv heads, keys, d], scale [kv heads, 1, keys]; all finite.

    The error of a dot product of d terms in any order is at most (d + 2) · add for the sum (``Sums``) and u for each
    product, of A = Σ |q_i k_i|; a product that underflows loses TINY. Products that are rounded to a format first lose
    that as well. All products are multiples of grid(q) · grid(k); where A is at most 2^bits of it, and the
    format holds them, nothing is rounded, whatever the order: what remains is the scaling, relative to the score
    itself. A scale that is multiplied into q or k first (``scaled_first``) spoils that. Keys whose
    exact products are all the same have the same computed score: an elementwise function gives equal results for
    equal operands.
    """
    turned, width = keys.swapaxes(-1, -2), query.shape[-1]
    dot, size = query @ turned, np.abs(query) @ np.abs(turned)
    narrow = rounding_to(rule.products)
    with np.errstate(invalid="ignore"):
        unit = grid(query)[..., None] * grid(keys)[..., None, :]
        exact = (size <= 2.0 ** SUMS[rule.sums].bits * unit) & (unit >= TINY)
        exact &= not rule.scaled_first
        if narrow.unit:
            held = 2.0 ** (digits(query)[..., None] + digits(keys)[..., None, :]) * narrow.unit <= 1
            exact &= held & (unit >= 2 * narrow.lost)
    summed = np.expm1(_SCALINGS + U + narrow.unit + (width + 2) * SUMS[rule.sums].add)
    value = dot * scale
    reach = np.where(exact, np.abs(dot) * np.expm1(_SCALINGS), size * summed + narrow.lost * width) * np.abs(scale)
    reach += TINY * ((width + 1) * np.abs(scale) + 1)
    same = ((exact | (size == 0)) & (value == value[..., :1])).all(axis=-1, keepdims=True)
    if rule.soft_cap:
        value, reach = _capped(value, reach, rule.soft_cap, TANH[rule.tanh])
    return Scores(value, np.where(same, 0.0, reach))


def _capped(value: F64, reach: F64, cap: float, relative: float) -> tuple[F64, F64]:
    """cap · tanh(score / cap).

    The slope 1 / cosh² is largest at the end of the interval that is nearest to 0, so an error shrinks by that. tanh
    adds its own: absolute where it is a difference (``TANH_ABSOLUTE``, with the division), else relative; the
    product with cap, and with log2 e, adds 3 u.
    """
    nearest = np.maximum(np.abs(value) - reach, 0.0) / cap
    slope = 1 / np.cosh(np.minimum(nearest, 300.0)) ** 2
    capped = np.tanh(value / cap)
    return cap * capped, reach * slope + cap * (TANH_ABSOLUTE + (relative + 3 * U) * np.abs(capped))
