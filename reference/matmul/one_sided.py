"""What is known of errors beyond a bound: their sign on data of one sign, and more where the order is known."""

from __future__ import annotations

import numpy as np

from narrowgauge.reference.kv.arithmetic import F64, MORE
from narrowgauge.reference.matmul.accumulators import Accumulator
from narrowgauge.reference.matmul.bounds import Ends, absolute_error, joins


def sign_of_terms(a: F64, b: F64, c: F64 | None = None) -> F64:
    """1 where no term of a sum [M, N] is negative, -1 where none is positive, 0 where both occur.

    a [M, K], b [N, K], an addend c [M, N]; sums without any nonzero term count as positive.
    """
    plus_a, plus_b, minus_a, minus_b = np.maximum(a, 0), np.maximum(b, 0), np.maximum(-a, 0), np.maximum(-b, 0)
    negative = plus_a @ minus_b.T + minus_a @ plus_b.T > 0
    positive = plus_a @ plus_b.T + minus_a @ minus_b.T > 0
    if c is not None:
        negative, positive = negative | (c < 0), positive | (c > 0)
    return np.where(~negative, 1.0, np.where(~positive, -1.0, 0.0))


def one_sided(
    accumulator: Accumulator,
    exact: F64,
    size: F64,
    k: int,
    sign: F64,
    largest: F64 | float = 0.0,
    flushed: F64 | float = 0.0,
    steps: int | None = None,
) -> Ends:
    """Least and greatest D of sums whose terms have the sign ``sign_of_terms`` gives; else as ``absolute_error``.

    Where every step cuts, D lies between 0 and the exact sum cut to m bits, of which it is one. Where J float32
    additions join partial sums, they alone may go beyond the exact sum, by J u P.
    """
    reach = absolute_error(accumulator, size, k, largest, flushed, steps)
    low, high = exact - reach, exact + reach
    if not accumulator.only_cuts:
        return low, high
    j = joins(accumulator, k, steps)
    over = ((2 * k + 4) * 2.0**-53 + j * 2.0**-24 / (1 - j * 2.0**-24)) * MORE * size
    beyond = np.abs(exact) + over
    if not j:
        beyond = _cut(beyond, accumulator.stored)
    high = np.where(sign > 0, np.minimum(high, beyond), high)
    low = np.where(sign < 0, np.maximum(low, -beyond), low)
    return low, high


def _cut(value: F64, bits: int) -> F64:
    """Toward zero to so many fraction bits."""
    part, exponent = np.frexp(value)
    return np.asarray(np.ldexp(np.trunc(np.ldexp(part, bits + 1)), exponent - bits - 1))
