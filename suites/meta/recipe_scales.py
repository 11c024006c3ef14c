# SPDX-License-Identifier: Apache-2.0
"""How the values of a recipe follow the largest magnitude of a block, found by going through its steps with bounds.

A value is ``between[0] * a**power`` to ``between[1] * a**power``, where a is the largest magnitude of finite data that
take in zero. Roundings are left out: those who ask allow for them. No step of reference.steps is run for this.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.recipe import Chain, Destination, Recipe

#: what is given beside x: the static recipes then hold to their range on rows of magnitude 2^6 and less
GIVEN = {"scale": 0.7, "upper_bound": 3.0, "zero_point": 5}
#: by it a reader divides, or multiplies
GLOBAL = {True: 16.0, False: 1 / 16}
#: the part by which a format rounds what is normal in it
ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float8_e4m3fn": 2.0**-4}
#: the part by which a logarithm in float32 may be off: half an ulp of one below 128 is 2^-18
LOGARITHM = float(2.0 ** (2.0**-18))


@dataclass(frozen=True)
class Bounded:
    """A value, up to roundings."""

    power: int
    between: tuple[float, float]
    sign: int = 1  #: 0: not known
    #: the magnitude from which on it follows, and that up to which
    span: tuple[float, float] = (0.0, np.inf)
    floor: float = 0.0  #: the part of the span's start below which it stays where it is
    is_power: bool = False  #: it is a power of two
    rounded: int = 0  #: 1 where it was rounded up to that power, so that half of it may do; -1 where down
    by_logarithm: bool = False  #: that power was found by a logarithm in float32

    @property
    def constant(self) -> bool:
        return self.power == 0 and self.between[0] == self.between[1]

    def widened(self, low: float, high: float, **changes: Any) -> Bounded:
        return replace(self, between=(self.between[0] * low, self.between[1] * high), **changes)

    def starting(self, least: float, *, stays: bool = False) -> Bounded:
        """It follows from where it is ``least`` on."""
        if self.power != 1 or least <= 0:
            return self
        start = least / (self.between[0] or self.between[1])
        floor = max(self.floor, start) if stays else self.floor
        return replace(self, span=(max(self.span[0], start), self.span[1]), floor=floor)


def number(value: float) -> Bounded:
    sign = int(np.sign(value))
    return Bounded(0, (abs(value), abs(value)), sign, is_power=bool(value and np.frexp(abs(value))[0] == 0.5))


def _product(a: Bounded, b: Bounded) -> Bounded:
    (first, second), ends = sorted((a, b), key=lambda v: v.constant), (a.between, b.between)
    between = (ends[0][0] * ends[1][0], ends[0][1] * ends[1][1])
    return replace(
        first, power=a.power + b.power, between=between, sign=a.sign * b.sign,
        span=(max(a.span[0], b.span[0]), min(a.span[1], b.span[1])), floor=max(a.floor, b.floor),
        is_power=a.is_power and b.is_power, by_logarithm=a.by_logarithm or b.by_logarithm,
        rounded=first.rounded if second.is_power else 0,
    )  # fmt: skip


def _inverse(a: Bounded) -> Bounded:
    """What was rounded up is rounded down in its inverse, and the other way round."""
    low, high = a.between
    inverted = (1 / high if high else np.inf, 1 / low if low else np.inf)
    return replace(a, power=-a.power, between=inverted, rounded=-a.rounded)


def _sum(a: Bounded, b: Bounded) -> Bounded:
    """Of a range's ends: no less than the larger. Of two that belong to one number: just so much."""
    if b.between == (0.0, 0.0):
        return a
    if a.between == (0.0, 0.0):
        return replace(b, span=(max(a.span[0], b.span[0]), b.span[1]))
    if a.constant and b.constant:
        return number(a.sign * a.between[0] + b.sign * b.between[0])
    if a.power != b.power:  # one for a whole number that is added, or for what stays out of the way
        return a
    if a.sign and b.sign:
        parts = sorted(abs(a.sign * x + b.sign * y) for x, y in zip(a.between, b.between, strict=True))
        return replace(a, between=(parts[0], parts[1]), sign=a.sign if a.between[0] >= b.between[0] else b.sign)
    return replace(a, between=(max(a.between[0], b.between[0]), a.between[1] + b.between[1]), sign=0)


def _negative(a: Bounded) -> Bounded:
    return replace(a, sign=-a.sign)


def _at_least(a: Bounded, b: Bounded) -> Bounded:
    if b.between == (0.0, 0.0):
        return a
    if a.constant and b.constant:
        return a if a.sign * a.between[0] >= b.sign * b.between[0] else b
    if b.power == 0:
        return a.starting(b.between[0], stays=True)
    return replace(a, between=(min(a.between[0], b.between[0]), max(a.between[1], b.between[1])))


def _at_most(a: Bounded, b: Bounded) -> Bounded:
    """Of a limit that is far away, nothing; "amax at most 0" is how a recipe asks for 0 or NaN."""
    if b.between == (0.0, 0.0) and a.sign == 1:
        return number(0.0)
    if b.power == 0 and a.power == 1 and b.between[0]:
        return replace(a, span=(a.span[0], min(a.span[1], b.between[0] / a.between[1])))
    if b.power == 1:
        return replace(a, between=(min(a.between[0], b.between[0]), min(a.between[1], b.between[1])))
    return a


def _up(a: Bounded, *, by_logarithm: bool = False) -> Bounded:
    """2^-126 is the least that rounding a pattern up gives; a logarithm knows powers below."""
    if a.is_power:
        return a
    low = 1 / LOGARITHM if by_logarithm else 1.0
    found = a.widened(low, 2.0, is_power=True, rounded=1, by_logarithm=by_logarithm)
    return found if by_logarithm else found.starting(2.0**-126)


def _down(a: Bounded, *, by_logarithm: bool = False) -> Bounded:
    if a.is_power:
        return a
    high = LOGARITHM if by_logarithm else 1.0
    if a.constant:
        return number(2.0 ** np.floor(np.log2(a.between[0])))
    found = a.widened(0.5, high, is_power=True, rounded=-1, by_logarithm=by_logarithm)
    return found if by_logarithm else found.starting(2.0**-126)


def _even(a: Bounded, mantissa: Bounded) -> Bounded:
    """From half a unit of the last place below 2 on, up; else down."""
    top = 2 - 2.0 ** -(mantissa.between[0] + 1)
    return a.widened(1 / top, 2 / top, is_power=True, rounded=0).starting(2.0**-126)


def _rounded(a: Bounded, format_name: Bounded | None) -> Bounded:
    """To a format by its name, which is no value; float16 holds no more than its normal numbers exactly enough."""
    if a.power == 0 or format_name != _FLOAT16:
        return a
    least, largest = (2.0**-14, 65504.0) if a.power == 1 else (1 / 65504.0, 2.0**14)  # of the value, or its inverse
    part = a.between if a.power == 1 else _inverse(a).between
    return replace(a, span=(max(a.span[0], least / part[0]), min(a.span[1], largest / part[1])))


_FLOAT16 = Bounded(0, (16.0, 16.0))
_STEPS: dict[str, Callable[..., Bounded]] = {
    "mul": _product, "div": lambda a, b: _product(a, _inverse(b)), "rdiv": lambda a, b: _product(b, _inverse(a)),
    "recip": _inverse, "recip_approx": _inverse, "recip_or_zero": _inverse,
    "add": _sum, "sub": lambda a, b: _sum(a, _negative(b)), "rsub": lambda a, b: _sum(b, _negative(a)),
    "at_least": _at_least, "at_least_or_nan": _at_least, "at_most": _at_most, "at_most_or_nan": _at_most,
    "clamp_keep_nan": _at_most, "clamp_fmax_first": _at_most,
    "ceil_pow2": _up, "floor_pow2": _down, "even_pow2": _even,
    "exp2_ceil_log2": lambda a: _up(a, by_logarithm=True),
    "exp2_ceil_log2_in": lambda a, _: _up(a, by_logarithm=True),  # in the format of x, float32 here
    "exp2_floor_log2": lambda a: _down(a, by_logarithm=True),
    "exp2_floor_log2_in": lambda a, _: _down(a, by_logarithm=True),
    "abs": lambda a: replace(a, sign=1), "zero_to": lambda a, _: a, "nan_to": lambda a, _: a,
    "not_finite_to": lambda a, _: a, "zero_where_zero": lambda a, _: a, "round": _rounded,
    "rint": lambda a: a, "add_half_and_cut": lambda a: a,
}  # fmt: skip


def _stored(scale: Bounded, recipe: Recipe) -> Bounded:
    """The scale as its format holds it: powers of two by the cast's rule, others within half a place."""
    if recipe.scale_format == "float8_e8m0fnu":
        rule = {"e8m0_ceil": _up, "e8m0_rceil": _up, "e8m0_floor": _down}.get(recipe.scale_cast)
        assert rule is not None or scale.is_power, f"{recipe.name}: how is {scale} stored?"
        kept = scale if rule is None or scale.is_power else replace(rule(scale), span=scale.span)
        return kept.starting(2.0**-127, stays=True)
    if recipe.scale_format == "float32":
        return scale
    fmt, part = format_named(recipe.scale_format), ROUNDING[recipe.scale_format]
    ends = (1.0, 1 + 2 * part) if recipe.scale_cast == "e4m3_ceil" else (1 - part, 1 + part)
    found = scale.widened(*ends, is_power=False).starting(2.0 ** (1 - fmt.bias))
    largest = {"float8_e4m3fn": 448.0, "float16": 65504.0, "bfloat16": 2.0**127}[recipe.scale_format]
    return _at_most(found, number(largest))


def bounded(recipe: Recipe, destination: Destination) -> dict[str, Bounded]:
    """Every named value of a recipe, "stored", and "reader", what its reader multiplies codes by."""
    statistic = Bounded(1, (1.0, 1.0))
    known: dict[str, Bounded] = {
        "amax": statistic, "tensor_amax": statistic,
        "min": replace(statistic, sign=0), "max": replace(statistic, sign=0),
        "bound": number(destination.bound), "1/bound": number(1 / destination.bound),
        "epsilon": number(2.0**-23), "least_normal": number(2.0**-126), "float16": _FLOAT16,
    }  # fmt: skip
    # a given scale is chosen for x; what it is a part of is not known, and of a bound on amax too
    known |= {name: Bounded(1, (0.0, np.inf)) for name in recipe.inputs if name in ("scale", "upper_bound")}
    divides = ("div", "global_scale") in {s for chain in recipe.reader.chains for s in chain[1:]}
    reads = any("global_scale" in s for chain in recipe.reader.chains for s in chain[1:])
    if "global_scale" in recipe.inputs:
        known["global_scale"] = Bounded(-1 if divides or not reads else 1, (0.0, np.inf))
    if "scale" in recipe.inputs:
        known["stored"] = known["scale"]
    known |= {"zero_point": number(5.0)} if "zero_point" in recipe.inputs else {}
    for name, chain in recipe.steps:
        known[name] = run(chain, known)
        if name == "scale":
            known["stored"] = _stored(known[name], recipe)
    for name, chain in recipe.reader.blocks:
        known[name] = run(chain, known)
    factors: Chain = tuple(s for s in recipe.reader.element[1:] if s[0] in ("mul", "div"))
    known["reader"] = run(("one", *factors), known | {"one": number(1.0)})
    return known


def run(chain: Chain, known: dict[str, Bounded]) -> Bounded:
    """A chain of a block's values."""
    value = known[str(chain[0])]
    for step in chain[1:]:
        name, operands = (step, ()) if isinstance(step, str) else (str(step[0]), step[1:])
        value = _STEPS[name](value, *(number(o) if isinstance(o, int | float) else known.get(o) for o in operands))
    return value
