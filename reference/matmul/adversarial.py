"""Operands that make a sum as wrong as an accumulator can: how near a bound is to what may happen."""

from __future__ import annotations

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import Format, format_named
from narrowgauge.reference.codec import values
from narrowgauge.reference.kv.arithmetic import coded
from narrowgauge.reference.matmul.accumulators import Accumulator

#: of a format with more fraction bits than this not all significands are tried
_FEW_BITS = 4


def adversarial_case(
    a_format: str, b_format: str, m: int, n: int, k: int, accumulator: Accumulator
) -> tuple[Coded, Coded]:
    """Operands a [m, k], b [n, k]: a power of two U first, then k - 1 products that the accumulator loses, each alone.

    Fused steps lose a term below U 2^-F, nearest ones a term of at most half a unit in the last place of U. The
    products are the largest such; odd rows of a are negative. All of K but the first place is lost, so the error is
    (k - 1) times such a product. Where alignment keeps more bits than the sum, the last of every L is larger by these,
    and lost when the sum is stored. Where sums are promoted, that is so in the first stretch.

    Raises ``BadInput`` for formats that do not reach so far down, and for accumulators that lose nothing.
    """
    if accumulator.family in ("exact", "whole", "floored"):
        raise BadInput(f"adversarial_case: no single term that {accumulator.name!r} loses next to a large one is known")
    a_fmt, b_fmt = format_named(a_format), format_named(b_format)
    (most_a, least_a), (most_b, least_b) = _range(a_fmt), _range(b_fmt)
    most_a = min(most_a, int(np.log2(accumulator.largest)) - most_b - 1)
    nearest = accumulator.family == "nearest" or not accumulator.cut
    bits = accumulator.stored + 1 if nearest else accumulator.fraction
    # x y is below 2, or 1 where the power of two itself is lost: a tie that goes to even
    x, y = (1.0, 1.0) if nearest else _just_below_two(a_fmt, b_fmt)
    power = most_a + most_b - bits - (0 if nearest else 1)
    of_b = max(least_b, min(most_b, power - least_a))
    if not least_a <= power - of_b <= most_a:
        raise BadInput(
            f"adversarial_case: {a_fmt.name} and {b_fmt.name} have products from 2^{most_a + most_b} down to "
            f"2^{least_a + least_b}; expected {bits} powers of two between"
        )
    a, b = np.full((m, k), x * 2.0 ** (power - of_b)), np.full((n, k), y * 2.0**of_b)
    if not nearest:  # bits that alignment keeps and the stored sum does not: the last term of a step is lost there
        a[:, accumulator.length - 1 :: accumulator.length] *= 2.0 ** (accumulator.fraction - accumulator.stored)
    a[:, 0], b[:, 0] = 2.0**most_a, 2.0**most_b
    a[1::2] *= -1
    return coded(a, a_fmt.name), coded(b, b_fmt.name)


def _range(fmt: Format) -> tuple[int, int]:
    """The exponents of the largest and of the smallest normal power of two; sums of such stay far below overflow."""
    if not fmt.exponent or not fmt.mantissa:
        raise BadInput(f"adversarial_case: operand of {fmt.name}; expected a float")
    least = 1 - fmt.bias
    if fmt.bits <= 8:
        finite = values(fmt)
        return int(np.frexp(finite[np.isfinite(finite)].max())[1]) - 1, least
    return min(8, fmt.bias), max(least, -40)


def _just_below_two(a_fmt: Format, b_fmt: Format) -> tuple[float, float]:
    """Significands whose product is as large as can be, but below 2."""
    few = min(a_fmt.mantissa, _FEW_BITS), min(b_fmt.mantissa, _FEW_BITS)
    one, other = (1 + np.arange(2**bits) / 2**bits for bits in few)
    product = np.outer(one, other)
    best = np.unravel_index(np.argmax(np.where(product < 2, product, 0)), product.shape)
    found = float(one[best[0]]), float(other[best[1]])
    if max(a_fmt.mantissa, b_fmt.mantissa) <= _FEW_BITS:
        return found
    return (2 - 2.0**-a_fmt.mantissa, 1.0) if a_fmt.mantissa >= b_fmt.mantissa else (1.0, 2 - 2.0**-b_fmt.mantissa)
