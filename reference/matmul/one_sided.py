"""What is known of errors beyond a bound: their sign on data of one sign, and more where the order is known."""

from __future__ import annotations

import numpy as np

from narrowgauge.contracts.errors import BadInput
from narrowgauge.reference.kv.arithmetic import F64, MORE
from narrowgauge.reference.matmul.accumulators import Accumulator
from narrowgauge.reference.matmul.bounds import Ends, absolute_error, exponents, joins


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


def bias_expected(accumulator: Accumulator, sign: F64) -> F64:
    """The sign that every error D - exact has on data of one sign; 0 where it may have either.

    A step that cuts toward zero never grows a sum, so what it gives lies between 0 and the exact sum: the error of
    terms that are not negative is never positive. How large the mean error is, is but measured. It needs steps that cut
    alone: not one float32 addition may join partial sums.
    """
    cuts = accumulator.family == "fused" and accumulator.cut and accumulator.keeps_the_largest
    return -sign if cuts and not accumulator.promote_every else np.zeros_like(sign)


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
    if accumulator.family != "fused" or not accumulator.cut or not accumulator.keeps_the_largest:
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


def error_in_order(
    accumulator: Accumulator,
    a: F64,
    b: F64,
    length: int,
    a_least: F64 | float = 0.0,
    b_least: F64 | float = 0.0,
) -> F64:
    """A sharper bound [M, N] for one unit of definite ``length`` that takes a [M, K], b [N, K] in ascending k.

    Every step is bounded by itself: all nonzero terms but the largest are cut, at the exponent that these operands
    have; what is kept is cut at that of the magnitudes summed so far. No addend, no joins. Raises ``BadInput`` for an
    accumulator that is no cutting fused one.
    """
    if accumulator.family != "fused" or not accumulator.cut:
        raise BadInput(f"error_in_order: accumulator {accumulator.name!r}; expected one of fused steps that cut")
    (_, of_a), (_, of_b) = exponents(a, a_least), exponents(b, b_least)
    size, error = np.zeros((len(a), len(b))), np.zeros((len(a), len(b)))
    for k in range(0, a.shape[1], length):
        step = slice(k, k + length)
        count = (a[:, step] != 0).astype(float) @ (b[:, step] != 0).T.astype(float)
        top = np.maximum((of_a[:, None, step] * of_b[None, :, step]).max(axis=-1), _power(size))
        kept = 1 if accumulator.keeps_the_largest else 0
        cut = np.maximum(count + (size > 0) - kept, 0) * top * 2.0**-accumulator.fraction
        size = size + np.abs(a[:, step]) @ np.abs(b[:, step]).T
        rounded = _power(size) * 2.0**-accumulator.stored + accumulator.least
        error += np.where(count > 0, cut + rounded + (count + 1) * accumulator.least, 0.0)
    # P was added up in float64, and so was the exact sum of whoever compares
    return np.asarray((error + (2 * a.shape[1] + 4) * 2.0**-53 * size) * MORE)


def _power(value: F64) -> F64:
    """2^floor(log2) of magnitudes; 0 of 0."""
    return np.where(value == 0, 0.0, np.ldexp(1.0, np.frexp(value)[1] - 1))
