"""Operands on which a sum may not be off at all, and the proof for any operands that it may not.

All terms of a sum are whole multiples of one unit q, and their magnitudes sum to less than 2^p q. Then every partial
sum, in any order, tree or split, is such a multiple below 2^p q, and is exact where p significant bits are kept,
whatever the rounding (docs/bounds.md). A case just below that limit and one at 1.5 times it are, as a pair, a test of
the width alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.kv.arithmetic import F64, Mask, grid
from narrowgauge.reference.matmul.accumulators import Accumulator
from narrowgauge.reference.matmul.bounds import flushed_terms, largest_exponents, least_normal
from narrowgauge.reference.matmul.drawing import Budget, Signs, budget, drawn_beyond, drawn_within
from narrowgauge.reference.matmul.one_sided import sign_of_terms
from narrowgauge.reference.matmul.whole_numbers import Places, encoded

#: what is drawn is seldom not all apart, and then drawn again
_ATTEMPTS = 8
#: significant bits of float32, in which promoted sums are joined
_JOINED = 24


def is_exact(
    a: F64,
    b: F64,
    accumulator: Accumulator,
    c: F64 | None = None,
    a_least: F64 | float = 0.0,
    b_least: F64 | float = 0.0,
) -> Mask:
    """Where every partial sum is exact [M, N], in any order: numbers a [M, K], b [N, K], an addend c [M, N].

    q is the product of the lowest set bits of a row of a and a row of b. ``a_least`` and ``b_least`` as for
    ``largest_exponents``: subnormal operands may be flushed, and are aligned by a larger exponent than their own.

    Where sums are promoted every Q products, the stretches are Q consecutive k from 0 on, or parts of these: each is
    exact by itself, under its own q, and float32 holds what they add up to. The addend may enter the first stretch.
    """
    every, least = accumulator.promote_every, (np.broadcast_to(a_least, a.shape), np.broadcast_to(b_least, b.shape))
    if not every or a.shape[1] <= every:
        return _is_exact(a, b, accumulator, c, *least)
    good = _fits(*_size_and_unit(a, b, c), _JOINED)
    for k in range(0, a.shape[1], every):
        one, other, *of_stretch = (x[:, k : k + every] for x in (a, b, *least))
        good &= _is_exact(one, other, accumulator, c if k == 0 else None, *of_stretch)
    return good


def _is_exact(a: F64, b: F64, accumulator: Accumulator, c: F64 | None, a_least: F64, b_least: F64) -> Mask:
    """The same of one stretch that an accumulator adds up itself."""
    size, unit = _size_and_unit(a, b, c)
    good = _fits(size, unit, accumulator.exact_bits) & (size <= accumulator.largest)
    good &= unit >= (1.0 if accumulator.whole else 2 * accumulator.least)
    if accumulator.fraction:
        good &= largest_exponents(a, b, a_least, b_least) <= 2.0**accumulator.fraction * unit
    if accumulator.flushes:
        good &= flushed_terms(a, b, a_least, b_least) == 0
    if accumulator.one_sign:
        good &= sign_of_terms(a, b, c) != 0
    return np.asarray(good | (size == 0))


def _fits(size: F64, unit: F64, bits: int) -> Mask:
    return np.asarray((size < 2.0**bits * unit) | (size == 0))


def _size_and_unit(a: F64, b: F64, c: F64 | None) -> tuple[F64, F64]:
    """P and q of every pair of rows."""
    of_a, of_b = (np.where(np.isinf(unit), 1.0, unit) for unit in (grid(a), grid(b)))  # rows of zeros
    size, unit = np.abs(a) @ np.abs(b).T, np.outer(of_a, of_b)
    return (size, unit) if c is None else (size + np.abs(c), np.minimum(unit, grid(c[..., None])))


@dataclass(frozen=True, eq=False)
class ExactCase:
    """Two operands and their exact product. A code stands for its number less the zero point of its side."""

    a: Coded  #: [M, K]
    b: Coded  #: [N, K]
    a_values: F64
    b_values: F64
    sums: F64  #: [M, N]: the sum over k of a[m, k] b[n, k], which float64 holds
    unit: float  #: q: of every term and partial sum


def exact_case(
    a_format: str,
    b_format: str,
    m: int,
    n: int,
    k: int,
    accumulator: Accumulator,
    seed: int,
    fill: float = 0.99,
    signs: Signs = "mixed",
    beyond: bool = False,
    zeros: tuple[int, int] = (0, 0),
) -> ExactCase:
    """Operands a [m, k], b [n, k] whose every partial sum is exact, up to ``fill`` of what the accumulator allows.

    ``signs`` of the products: both; one for all, from operands of both; or of positive operands alone. An accumulator
    that is exact for products of one sign alone gets "one" for "mixed". ``zeros`` are zero points: numbers are codes
    less them. Rows differ in how dense and how large they are, and row 0 of b holds its largest number in all places,
    so that budgets are used up. Every place of K is used by a row, as long as m rows have room for k terms.

    ``beyond``: all positive, between 1.3 and 1.75 times the limit, every sum odd, so that no number of p bits is the
    right answer, and p + 1 bits are enough. Raises ``BadInput`` where k terms do not reach so far.

    Deterministic. What is promised is checked on the codes that are returned.
    """
    if min(m, n, k) < 1 or not 0 < fill <= 1:
        raise BadInput(
            f"exact_case: m {m}, n {n}, k {k}, fill {fill}; expected 1 or more, and a fill above 0, at most 1"
        )
    allowed = budget(accumulator, a_format, b_format, zeros)
    signs = "one" if accumulator.one_sign and signs == "mixed" else signs
    for attempt in range(_ATTEMPTS):
        if beyond:
            x, y = drawn_beyond(allowed, (m, n, k), 2**accumulator.exact_bits, seed + attempt)
        else:
            x, y = drawn_within(allowed, (m, n, k), int(allowed.total * fill), signs, seed + attempt)
        if _all_apart(x) and _all_apart(y):
            break
    case = _case(allowed, x, y, zeros)
    _check(case, accumulator, beyond)
    return case


def _all_apart(rows: Places) -> bool:
    return len(np.unique(rows, axis=0)) == len(rows)


def _case(allowed: Budget, x: Places, y: Places, zeros: tuple[int, int]) -> ExactCase:
    a, b = encoded(allowed.a, x, zeros[0]), encoded(allowed.b, y, zeros[1])
    a_values, b_values = decode_values(a) - zeros[0], decode_values(b) - zeros[1]
    return ExactCase(a, b, a_values, b_values, a_values @ b_values.T, allowed.a.unit * allowed.b.unit)


def _check(case: ExactCase, accumulator: Accumulator, beyond: bool) -> None:
    """The promise, by the codes and by nothing that led to them."""
    least = least_normal(case.a.format), least_normal(case.b.format)
    limit = 2.0**accumulator.exact_bits * case.unit
    if beyond:
        odd = np.fmod(case.sums / case.unit, 2) == 1
        kept = bool((odd & (case.sums > limit) & (case.sums < 2 * limit)).all() and (case.a_values >= 0).all())
    else:
        kept = bool(is_exact(case.a_values, case.b_values, accumulator, None, *least).all())
    if not kept:
        raise AssertionError(f"a case of {case.a.format} and {case.b.format} for {accumulator.name} breaks its budget")
