"""What a product may give: an interval of each element, one point where every order of every sum is exact."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.interval import Expected, Interval
from narrowgauge.reference.kv.arithmetic import digits, power_of_two
from narrowgauge.reference.matmul.bounds import (
    after_roundings,
    flushed_terms,
    largest_exponents,
    summed,
)
from narrowgauge.reference.matmul.call import check_call, columns_of, input_of_call
from narrowgauge.reference.matmul.exact import is_exact
from narrowgauge.reference.matmul.multiplying import F64, Ends, Multiplying, Terms
from narrowgauge.reference.matmul.one_sided import one_sided, sign_of_terms
from narrowgauge.reference.matmul.reading import Rows, terms_by_expert
from narrowgauge.reference.matmul.specials import specials_of

#: significant bits of float32, and the magnitudes between which no product of scales leaves its normal numbers
_DIGITS, _LEAST, _LARGEST = 24, 2.0**-126, 2.0**127
#: whole numbers below this are exact in float64
_WHOLE = 2.0**53


def multiplied(multiplying: Multiplying, x: Coded) -> Expected:
    """The result ``codes`` [M, N] of a product, right or wrong. Raises ``BadInput`` for a call that is none."""
    product = multiplying.product
    check_call(product, multiplying.source, multiplying.format, x)
    call = input_of_call(x)
    for change in multiplying.received:
        call = change(call)
    terms_of = terms_by_expert(multiplying, call) if multiplying.received else _read(_reading(multiplying), x)
    shape = (call.shape[0], columns_of(product, call))
    low, high, special = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    with np.errstate(all="ignore"):
        for rows, terms in terms_of:
            for change_terms in multiplying.terms:
                terms = change_terms(terms)
            special[rows] = specials_of(terms)
            low[rows], high[rows] = _result(multiplying, _finite(terms))
        found = _rounded(multiplying, (low, high), special)
    for finish in multiplying.after:
        found = finish(found, call)
    return {"codes": found}


def _reading(multiplying: Multiplying) -> Multiplying:
    """What decides on the numbers that are multiplied, and nothing of what is done with them."""
    return replace(multiplying, terms=(), dot=None, combine=None, sums=(), biased=(), after=())


@lru_cache(maxsize=2)
def _read(multiplying: Multiplying, x: Coded) -> list[tuple[Rows, Terms]]:
    """The terms of a call. A diagnosis asks for those of one call some hundred times."""
    return terms_by_expert(multiplying, input_of_call(x))


def _finite(terms: Terms) -> Terms:
    """The same with 0 for what is not finite: what that makes of the result is known apart."""
    a, b, a_scale, b_scale = (_without_specials(v) for v in (terms.a, terms.b, terms.a_scale, terms.b_scale))
    bias = None if terms.bias is None else _without_specials(terms.bias)
    return replace(terms, a=a, b=b, a_scale=a_scale, b_scale=b_scale, bias=bias)


def _without_specials(value: F64) -> F64:
    return np.where(np.isfinite(value), value, 0.0)


def _result(multiplying: Multiplying, terms: Terms) -> Ends:
    """Real ends before the last rounding."""
    scaled = multiplying.product.scaled
    if scaled == "unit":
        ends = _sum(multiplying, prescaled(terms))
    else:
        stretches = [_scaled(multiplying, terms, place) for place in range(len(terms.ends))]
        ends = _added(multiplying, stretches, (len(terms.a), len(terms.b)))
    ends = _times(ends, terms.factors, terms.divisors)
    for change in multiplying.sums:
        ends = change(ends, terms)
    if terms.bias is not None and multiplying.product.bias == "wide":
        ends = _nearest32(ends[0] + terms.bias), _nearest32(ends[1] + terms.bias)
    if terms.bias is not None and multiplying.product.bias == "narrow":
        low, high = (decode_values(_as_result(multiplying, end)) for end in ends)
        ends = low + terms.bias, high + terms.bias
    for change in multiplying.biased:
        ends = change(ends, terms)
    return ends


def prescaled(terms: Terms) -> Terms:
    """One stretch of numbers under their scales: products of few bits, which float64 holds."""
    each = np.diff((0, *terms.ends))
    of_a, of_b = np.repeat(terms.a_scale, each, axis=1), np.repeat(terms.b_scale, each, axis=1)
    depth, one = terms.a.shape[1], np.ones((1, 1))
    return replace(
        terms,
        a=terms.a * of_a,
        b=terms.b * of_b,
        a_scale=one,
        b_scale=one,
        ends=(depth,) if depth else (),
        a_least=np.abs(of_a) * terms.a_least,
        b_least=np.abs(of_b) * terms.b_least,
    )


def _sum(multiplying: Multiplying, terms: Terms) -> Ends:
    """The sum over all of K, before any scale."""
    if multiplying.dot is not None:
        found = multiplying.dot(terms.a, terms.b)
        return found, found
    a, b = terms.a, terms.b
    exact = a @ b.T
    size = np.abs(a) @ np.abs(b).T
    if (size > _LARGEST).any():
        raise BadInput(f"{multiplying.product.name}: sums of products beyond 2^127; what they give is not derived")
    if multiplying.accumulator.whole:
        total = _whole_sum(multiplying, exact, size)
        return total, total
    least = (terms.a_least, terms.b_least)
    known = is_exact(a, b, multiplying.accumulator, None, *least)
    flushed = flushed_terms(a, b, *least) if multiplying.accumulator.flushes else 0.0
    top = largest_exponents(a, b, *least)
    low, high = one_sided(multiplying.accumulator, exact, size, a.shape[1], sign_of_terms(a, b), top, flushed)
    entered = _entered(terms)
    low, high = np.where(known, exact, low) - entered, np.where(known, exact, high) + entered
    return low, high


def _whole_sum(multiplying: Multiplying, exact: F64, size: F64) -> F64:
    """A sum in int32, which wraps, whatever the order; it becomes float32 before it meets a scale, or stays."""
    if (size >= _WHOLE).any():
        raise BadInput(f"{multiplying.product.name}: sums of whole numbers beyond 2^53; what they give is not derived")
    wrapped = exact - 2.0**32 * np.floor((exact + 2.0**31) / 2.0**32)
    return wrapped if format_named(multiplying.format).family == "integer" else _nearest32(wrapped)


def _entered(terms: Terms) -> F64:
    """How far the sum may be off because of what a unit makes of the operands that enter it."""
    if terms.a_open is None or terms.b_open is None:
        return np.zeros((len(terms.a), len(terms.b)))
    a, b = np.abs(terms.a), np.abs(terms.b)
    return terms.a_open @ b.T + a @ terms.b_open.T + terms.a_open @ terms.b_open.T


def _scaled(multiplying: Multiplying, terms: Terms, place: int) -> Ends:
    """One stretch under its scales, in any association of float32 products."""
    where = terms.slices[place]
    ends = _sum(multiplying, _cut(terms, where))
    of_a, of_b = terms.a_scale[:, place, None], terms.b_scale[None, :, place]
    if multiplying.product.scaled == "operands":
        return ends
    _check_range(multiplying, ends, of_a, of_b)
    low, high = (np.minimum(*_signed(ends, of_a * of_b)), np.maximum(*_signed(ends, of_a * of_b)))
    bits = digits(ends[0][..., None]) + _more_digits(of_a) + _more_digits(of_b)
    known = (ends[0] == ends[1]) & (bits <= _DIGITS)
    steps = 2 - power_of_two(of_a).astype(int) - power_of_two(of_b).astype(int)
    wide = after_roundings(low, high, np.broadcast_to(steps, low.shape))
    known |= ~np.isfinite(low)
    return np.where(known, low, wide[0]), np.where(known, high, wide[1])


def _more_digits(scale: F64) -> F64:
    """By how many bits a product with it may be longer; by none with a power of two."""
    return np.where(power_of_two(scale), 0.0, digits(scale[..., None]))


def _cut(terms: Terms, where: slice) -> Terms:
    a_open, b_open = (None if v is None else v[:, where] for v in (terms.a_open, terms.b_open))
    return replace(terms, a=terms.a[:, where], b=terms.b[:, where], ends=(), a_open=a_open, b_open=b_open)


def _signed(ends: Ends, scale: F64) -> Ends:
    return ends[0] * scale, ends[1] * scale


def _check_range(multiplying: Multiplying, ends: Ends, of_a: F64, of_b: F64) -> None:
    """Raise ``BadInput`` where an association of the products would leave float32's normal numbers."""
    largest = np.maximum(np.abs(ends[0]), np.abs(ends[1]))
    largest = np.where(np.isfinite(largest), largest, 0.0)  # a fault may overflow; infinity stays what it is
    for one, other in ((of_a, of_b), (largest, of_a), (largest, of_b), (largest, of_a * of_b)):
        size = np.abs(one * other)
        if ((size > _LARGEST) | ((size < _LEAST) & (size > 0))).any():
            raise BadInput(
                f"{multiplying.product.name}: products with scales leave float32's normal numbers; what engines give "
                "depends on the order in which they multiply, and is not derived"
            )


def _added(multiplying: Multiplying, stretches: list[Ends], shape: tuple[int, int]) -> Ends:
    """The sum of all stretches."""
    if not stretches:
        return np.zeros(shape), np.zeros(shape)
    if multiplying.combine is not None:
        total = np.zeros(shape)
        for low, _ in stretches:
            total = multiplying.combine(total, low)
        return total, total
    return summed(np.stack([low for low, _ in stretches]), np.stack([high for _, high in stretches]))


def _times(ends: Ends, factors: tuple[float, ...], divisors: tuple[float, ...]) -> Ends:
    """Under the scales of whole tensors, multiplied out in any order, and inverted before or after."""
    if not factors and not divisors:
        return ends
    scale = np.asarray(np.prod(factors) / np.prod(divisors), np.float64)
    low, high = np.minimum(*_signed(ends, scale)), np.maximum(*_signed(ends, scale))
    count = int(np.count_nonzero(~power_of_two(np.array(factors))))
    count += 2 * int(np.count_nonzero(~power_of_two(np.array(divisors))))
    # without rounding where all are powers of two; each factor is a product, each divisor a reciprocal and a product
    return after_roundings(low, high, np.full(low.shape, count)) if count else (low, high)


def _as_result(multiplying: Multiplying, value: F64) -> Coded:
    """Numbers in the format of the result."""
    return multiplying.rounding.run(Coded("float64", np.ascontiguousarray(value).view(np.uint64)))["codes"]


def _nearest32(value: F64) -> F64:
    return value.astype(np.float32).astype(np.float64)


def _rounded(multiplying: Multiplying, ends: Ends, special: F64) -> Interval:
    """Both ends in the result's format: rounding is monotone."""
    codes = []
    for end in ends:
        if multiplying.format == "int32":
            codes.append(Coded("int32", np.asarray(np.round(end)).astype(np.int64).astype(np.uint32)))
            continue
        codes.append(_as_result(multiplying, np.where(special == 0, end, special)))
    return Interval(*codes) if not np.array_equal(codes[0].data, codes[1].data) else Interval.exactly(codes[0])
