# SPDX-License-Identifier: Apache-2.0
"""The second derivation of the quantizers of weights to four bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial, reduce

from narrowgauge.suites.meta.second_bits import special
from narrowgauge.suites.meta.second_derivation import Number, is_zero, whole_number
from narrowgauge.suites.meta.second_levels import signed, subtract, to_int32
from narrowgauge.suites.meta.second_quantizers import divide, fmax, fmin
from narrowgauge.suites.meta.second_recipes import (
    Answer,
    Block,
    Given,
    Rule,
    constant,
    least,
    rounded,
)

_ONE, _ZERO, _NAN = whole_number(1), whole_number(0), Number("nan", False, Fraction(0))

# ---------------- weights of four bits


def ends(block: Block) -> tuple[Number, Number]:
    """The least and the largest; NaN is dropped."""
    return reduce(fmin, block), reduce(fmax, block)


def unsigned(x: Number) -> Number:
    return Number(x.kind, False, x.magnitude)


def negated(x: Number) -> Number:
    return x if x.kind == "nan" else Number(x.kind, not x.negative, x.magnitude)


def whole(x: Number) -> Number:
    """To the nearest whole number, ties to even."""
    return whole_number(round(signed(x))) if x.kind == "finite" else x


def _code4(y: Number, zero: Number) -> int:
    """A whole number plus the zero point, held to 0 to 15; NaN is 0."""
    total = subtract(y, negated(zero))
    return 0 if total.kind == "nan" else min(max(to_int32(total), 0), 15)


def vllm_weights(with_zero: bool, absolute: bool, block: Block, source: str, format: str, given: Given) -> Answer:
    """Of GPTQ: max(|max/7|, |min/-8|), and 8 is zero. Of AWQ: a fifteenth of the span of 1e-5 at least, and the whole
    number next to min/s with its sign turned, or without it, held to 0 to 15. Everything in the weight's format."""
    low, high = ends(block)
    if with_zero:
        span = least(rounded(subtract(high, low), source), rounded(constant(1e-5), source))
        scale = rounded(divide(span, whole_number(15)), source)
        ratio = rounded(divide(low, scale), source)
        zero = whole(unsigned(ratio) if absolute else negated(ratio))
        zero = fmin(fmax(zero, _ZERO), whole_number(15))
    else:
        parts = [unsigned(rounded(divide(e, whole_number(d)), source)) for e, d in ((low, -8), (high, 7))]
        scale, zero = max_keep(parts), whole_number(8)
    ys = [whole(rounded(divide(x, scale), source)) for x in block]
    stored = cast_stored(scale, source)
    return Answer([_code4(y, zero) for y in ys], stored, to_int32(zero) % 2**32 if with_zero else None)


def max_keep(parts: Sequence[Number]) -> Number:
    return _NAN if any(p.kind == "nan" for p in parts) else reduce(fmax, parts)


def cast_stored(scale: Number, format: str) -> int:
    """The code of the nearest value; what overflows is infinity."""
    return special(scale, format)


def gptq_weights(symmetric: bool, kept_as: str, block: Block, source: str, format: str, given: Given) -> Answer:
    """Of a range that holds 0; symmetric: from -amax to amax, or from 0 where nothing is negative. In float32."""
    low, high = ends(block)
    low, high = fmin(low, _ZERO), fmax(high, _ZERO)
    if symmetric:
        high = fmax(unsigned(low), high)
        low = _ZERO if is_zero(low) else negated(high)
    if is_zero(low) and is_zero(high):
        low, high = whole_number(-1), _ONE
    scale = divide(subtract(high, low), whole_number(15))
    zero = whole_number(8) if symmetric else whole(divide(negated(low), scale))
    point = whole_number(signed_int(zero)) if not symmetric else zero
    codes = [_code4(whole(divide(x, scale)), point) for x in block]
    return Answer(codes, cast_stored(scale, kept_as), None if symmetric else to_int32(zero) % 2**32)


def signed_int(x: Number) -> int:
    """What is stored of a zero point as an int32."""
    return to_int32(x)


WEIGHTS: Mapping[str, Rule] = {
    **{f"vllm.uint4b8{on}": partial(vllm_weights, False, False) for on in ("", "_bf16")},
    **{f"vllm.uint4_zero_point{on}": partial(vllm_weights, True, True) for on in ("", "_bf16")},
    **{f"awq.uint4{on}": partial(vllm_weights, True, False) for on in ("", "_bf16")},
    **{
        f"gptq.uint4_{n}{on}": partial(gptq_weights, n == "symmetric", kept_as)
        for n in ("symmetric", "asymmetric")
        for on, kept_as in (("", "float16"), ("_bf16", "bfloat16"))
    },
}
