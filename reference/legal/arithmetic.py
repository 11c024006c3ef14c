"""Arithmetic on a few numbers whose every result is rounded to one format, as of a kernel that computes in it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.reference.codec import values
from narrowgauge.reference.fast_codec import cast, decode_values

#: ties to even; beyond the largest there is infinity in formats that have it, and the largest in the others
_IEEE = CastPolicy(overflow="special", infinity="special")
_SATURATED = CastPolicy()


def held(value: float, format_name: str) -> float:
    """What a format makes of a number: the nearest of its own."""
    if format_name == "int32":  # no destination of the codec's
        return float(np.clip(np.rint(value), -(2.0**31), 2.0**31 - 1))
    policy = _IEEE if format_named(format_name).family == "ieee" else _SATURATED
    wide = Coded("float64", np.array([value], np.float64).view(np.uint64))
    return float(decode_values(cast(wide, format_name, policy))[0])


def largest(format_name: str) -> float:
    """Of the finite numbers of a format."""
    each = values(format_named(format_name))
    return float(each[np.isfinite(each)].max())


@cache
def repeated(term: float, count: int, format_name: str) -> float:
    """The sum of ``count`` equal terms, one after another. A sum that one of them leaves as it is stays."""
    total = held(term, format_name)
    for _ in range(count - 1):
        more = held(total + term, format_name)
        if more == total:
            break
        total = more
    return total


def added(terms: Sequence[float], format_name: str) -> float:
    """The sum of terms, one after another."""
    total = terms[0]
    for term in terms[1:]:
        total = held(total + term, format_name)
    return total


def divided(one: float, other: float, format_name: str) -> float:
    """A quotient as IEEE 754 has it, by zero and of infinities too, rounded."""
    with np.errstate(all="ignore"):
        return held(float(np.float64(one) / np.float64(other)), format_name)
