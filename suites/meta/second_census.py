# SPDX-License-Identifier: Apache-2.0
"""A census by counting in plain Python: every element alone, in exact fractions, by the second derivation's casts."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from narrowgauge.suites.meta.second_derivation import LAYOUTS, Number, bind, cast_bound, decode, is_zero


class Fate(NamedTuple):
    """What one value becomes in a destination."""

    beyond: bool
    flushed: bool
    subnormal: bool
    inexact: bool


_POLICY = {
    "rounding": "nearest_even", "limit": None, "overflow": "special", "infinity": "special", "nan": "nan",
    "negative_zero": "keep", "subnormals": "keep",
}  # fmt: skip
#: formats without a NaN have no special result; the largest value is told from what lies beyond it by a wider grid
_FINITE = {"float6_e2m3fn": Fraction(31, 4), "float6_e3m2fn": Fraction(30), "float4_e2m1fn": Fraction(7)}


@lru_cache
def _rule(to: str) -> Any:
    return bind(_POLICY | ({"overflow": "max", "infinity": "max", "nan": "zero"} if to in _FINITE else {}), to)


def fate(code: int, source: str, to: str) -> Fate:
    """Of one finite code, by the definition: cast to nearest even, and read back. A sign makes no difference."""
    return _fate(decode(code, source).magnitude, to)


@lru_cache(maxsize=1 << 18)
def _fate(magnitude: Fraction, to: str) -> Fate:
    value = Number("finite", False, magnitude)
    layout = LAYOUTS[to]
    if to in _FINITE and value.magnitude >= _FINITE[to]:
        # halfway to the next value of the grid, were there one: ties go to it, for the largest code is odd
        return Fate(beyond=True, flushed=False, subnormal=False, inexact=True)
    there = decode(cast_bound(value, _rule(to)), to)
    if there.kind != "finite":
        return Fate(beyond=True, flushed=False, subnormal=False, inexact=True)
    smallest_normal = Fraction(2) ** (1 - layout.bias)
    zero = is_zero(there)
    return Fate(
        beyond=False,
        flushed=zero and not is_zero(value),
        subnormal=not zero and there.magnitude < smallest_normal,
        inexact=there.magnitude != value.magnitude,
    )


def count(codes: Sequence[int], source: str, into: Sequence[str]) -> dict[str, object]:
    """Everything that a census counts of these codes, under the same names; ``into`` as tuples of four counts."""
    numbers = [decode(code, source) for code in codes]
    finite = [n for n in numbers if n.kind == "finite"]
    nonzero = [n.magnitude for n in finite if n.magnitude]
    said: dict[str, object] = {
        "elements": len(numbers),
        "nan": sum(n.kind == "nan" for n in numbers),
        "plus_infinite": sum(n.kind == "inf" and not n.negative for n in numbers),
        "minus_infinite": sum(n.kind == "inf" and n.negative for n in numbers),
        "zeros": sum(map(is_zero, numbers)),
        "negative_zeros": sum(is_zero(n) and n.negative for n in numbers),
        "negative": sum(_below_zero(n) for n in numbers),
        "amax": float(max(nonzero, default=0)),
        "least": float(min(nonzero)) if nonzero else float("inf"),
    }
    whole = [code for code, n in zip(codes, numbers, strict=True) if n.kind == "finite"]
    for to in into:
        fates = [fate(code, source, to) for code in whole]
        said[to] = tuple(sum(getattr(f, field) for f in fates) for field in Fate._fields)
    return said


def _below_zero(number: Number) -> bool:
    return number.negative and number.kind != "nan" and not is_zero(number)


def first(codes: Sequence[int], source: str, to: str, field: str) -> list[int]:
    """Places of the first five finite values of a fate."""
    found = [
        at for at, code in enumerate(codes)
        if decode(code, source).kind == "finite" and getattr(fate(code, source, to), field)
    ]  # fmt: skip
    return found[:5]
