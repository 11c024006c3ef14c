# SPDX-License-Identifier: Apache-2.0
"""Mutants of the bound: without a term, a kernel that errs as that term allows leaves the interval.

Each case is inside with the term and outside without it. Terms that only widen what others cover already (the base of
exp2, one division, lse: a few u each) are held by the whole of what they belong to, ``_logarithms``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from narrowgauge.reference.kv import scores, weighing
from narrowgauge.reference.kv.arithmetic import SUMS, TANH, Rounding
from narrowgauge.reference.kv.attention import attend
from narrowgauge.reference.kv.rule import Attention
from narrowgauge.suites.meta.attention_kernels import F64, Kernel, Numbers, Plan, of_fp8

pytestmark = pytest.mark.meta

U = 2.0**-24
ABOVE = float(np.float32(1.01 * U))
Patches = tuple[tuple[ModuleType, str, Any], ...]


@dataclass(frozen=True)
class Case:
    """One query of ones, unless given: k [keys, d], v [keys, columns]."""

    plan: Plan
    numbers: Numbers
    keys: F64
    values: F64
    without: dict[str, Patches]  #: by term, what takes it away
    query: F64 | None = None
    tanh: str = "function"
    sums: str = "ieee"

    def inside(self) -> bool:
        query = np.ones((1, self.keys.shape[1])) if self.query is None else self.query
        plan, numbers = self.plan, self.numbers
        rule = Attention(
            numbers.scale,
            numbers.soft_cap,
            numbers.weights,
            shares=plan.shares,
            sums=self.sums,
            tanh=self.tanh,
            products=numbers.products,
            tile=plan.tile or len(self.keys),
        )
        low, high = attend(query, self.keys[:, None], self.values[:, None], rule)
        found = Kernel(plan, numbers)(query, self.keys, self.values)
        return bool(((found >= low) & (found <= high)).all())


def float32(value: F64 | float) -> F64:
    return np.asarray(value, np.float32).astype(np.float64)


def column(*scores: float) -> F64:
    """Keys of one column: with a query of 1 these are the scores."""
    return float32(np.array(scores))[:, None]


def _part_of(function: Callable[..., Any], part: int, value: float) -> Callable[..., Any]:
    """The function with one of its two results replaced."""

    def changed(*given: Any) -> Any:
        found = list(function(*given))
        found[part] = found[part] * value
        return tuple(found)

    return changed


def dot(small: float, width: int = 64, cap: float = 0.0) -> Case:
    """Products of about 2^-24 vanish or grow one after the other beside 1; the score is 16 times that."""
    keys = np.zeros((2, width))
    keys[0] = small
    keys[0, 0] = 1
    no_sum = {name: replace(each, add=0.0) for name, each in SUMS.items()}
    all_exact = {name: replace(each, bits=60) for name, each in SUMS.items()}
    without: dict[str, Patches] = {
        "sum of a dot product": ((scores, "SUMS", no_sum),),
        "bits of an exact sum": ((scores, "SUMS", all_exact),),
        "unit of all products": ((scores, "grid", lambda value: np.abs(value).max(axis=-1)),),
    }
    if cap:
        capped = scores._capped
        without = {
            "error of a score that is capped": ((scores, "_capped", lambda s, e, *more: capped(s, 0 * e, *more)),)
        }
    return Case(Plan("in turn"), Numbers(16.0, cap), keys, np.eye(2), without)


def far_below() -> Case:
    """A weight of e^-70 is a number as any other: the same error of a dot product shows."""
    keys = np.zeros((2, 64))
    keys[1] = -U
    keys[1, 0] = -1
    return Case(Plan("in turn"), Numbers(70.0), keys, np.eye(2), {"what is gone": ((weighing, "_GONE", -60.0),)})


def cancelling(small: float, scale: float, cap: float = 0.0) -> Case:
    """The same, and -1 in the end: what is left is nothing, or twice what it should be."""
    keys = np.zeros((2, 64))
    keys[0] = small
    keys[0, [0, 63]] = 1, -1
    without: dict[str, Patches] = {
        "magnitudes of products": ((scores, "SUMS", {name: replace(each, add=0.0) for name, each in SUMS.items()}),)
    }
    return Case(Plan("in turn"), Numbers(scale, cap), keys, np.eye(2), without)


def small_products() -> Case:
    """A product of 2^-127 is flushed; scaled, it would be 1/2."""
    without: dict[str, Patches] = {"underflow of products": ((scores, "TINY", 0.0),)}
    return Case(
        Plan("at once", flush=True),
        Numbers(2.0**126),
        column(2.0**-70, 0),
        np.eye(2),
        without,
        np.full((1, 1), 2.0**-57),
    )


def float16_products() -> Case:
    """2^-26 is 0 in float16; scaled, it would be 1/2."""
    without: dict[str, Patches] = {
        "underflow of float16": ((scores, "rounding_to", lambda name: Rounding(2.0**-11, 0.0, np.inf)),)
    }
    numbers = Numbers(2.0**25, products="float16")
    return Case(Plan("at once"), numbers, column(2.0**-26, 0), np.eye(2), without)


def alike() -> Case:
    """The same dot product, out of two products that are flushed, and out of one that is not."""
    keys = np.array([[2.0**-70, 2.0**-70], [2.0**-69, 0]])
    without: dict[str, Patches] = {"underflow of equal products": ((scores, "TINY", 0.0),)}
    plan, numbers = Plan("at once", flush=True), Numbers(2.0**126)
    return Case(plan, numbers, keys, np.eye(2), without, np.full((1, 2), 2.0**-57))


def products() -> Case:
    """Every product is rounded up by nearly half an ulp of bfloat16; d digits and d digits make 2 d."""
    keys = np.zeros((2, 16))
    keys[0] = 1 + 2.0**-7
    without: dict[str, Patches] = {
        "rounding of products": ((scores, "rounding_to", lambda name: Rounding(0.0, 0.0, np.inf)),),
        "digits of products": ((scores, "digits", lambda value: 0 * value[..., 0]),),
    }
    query = np.full((1, 16), 1 + 2.0**-7 + 2.0**-6)
    return Case(Plan("in turn"), Numbers(1.0, products="bfloat16"), keys, np.eye(2), without, query)


def rising() -> Case:
    """Every key is a new maximum, every factor 3 ulp off where an ulp is largest; only the first has a value."""
    keys = column(*(np.log(2) * 0.9999 * np.arange(63)))
    nothing: Patches = ((weighing, "_logarithms", lambda scores, below, rescalings: 0 * below),)
    return Case(
        Plan("key by key", tile=1, ulps=3), Numbers(1.0), keys, np.eye(63)[:, :1], {"logarithm of weights": nothing}
    )


def sums() -> Case:
    """Of 1024 keys the sum of weights is rounded up and the sum of values down, every time."""
    weight = float(float32(2.0**-23 * 0.51))
    keys = column(0.0, *[np.log(weight)] * 1023)
    values = float32(np.full((1024, 1), U / np.exp(keys[1, 0])))
    values[0] = 1
    without: dict[str, Patches] = {
        "sum of values": ((weighing, "_sums", _part_of(weighing._sums, 0, 0.0)),),
        "sum of weights": ((weighing, "_sums", _part_of(weighing._sums, 1, 0.0)),),
    }
    return Case(Plan("in turn"), Numbers(1.0), keys, values, without)


def narrow(weights: str) -> Case:
    """A weight of 1/3 is rounded; the largest, which is exact, may not stand for it."""
    without: dict[str, Patches] = {
        "rounding of weights": ((weighing, "_narrowed", _part_of(weighing._narrowed, 0, 0.0)),),
        "rivals": ((weighing, "_rivals", lambda scores: 0 * scores.value),),
    }
    return Case(Plan("at once"), Numbers(1.0, weights=weights), column(0, -1.1), np.eye(2), without)


def of_fp8_sums() -> Case:
    """Hopper's unit drops what lies 13 bits below: 64 keys of equal weight, one value 2^14 times the others."""
    values = np.full((64, 1), 1.0)
    values[0] = 2.0**14
    without: dict[str, Patches] = {"bits of fp8 sums": ((weighing, "SUMS", dict.fromkeys(SUMS, SUMS["matrix_unit"])),)}
    plan, numbers = Plan("13 bits", add=of_fp8), Numbers(1.0, weights="float8_e4m3fn")
    return Case(plan, numbers, np.zeros((64, 1)), values, without, sums="fp8_matrix_unit")


def vanishing() -> Case:
    """e^-18 is below half the smallest float16."""
    without: dict[str, Patches] = {
        "underflow of narrow weights": ((weighing, "_narrowed", _part_of(weighing._narrowed, 1, 0.0)),)
    }
    return Case(Plan("at once"), Numbers(1.0, weights="float16"), column(0, -18), np.eye(2), without)


def flushing(value: float) -> Case:
    """e^-87.6 is a subnormal float32; a large value makes a large number of it."""
    without: dict[str, Patches] = {"underflow": ((weighing, "TINY", 0.0),)}
    return Case(Plan("at once", flush=True), Numbers(1.0), column(0, -87.6), value * np.eye(2), without)


def shares(half: int) -> Case:
    """A share next to a tie of bfloat16."""
    share = (2 * half + 1) / 512
    nothing: Patches = (
        (weighing, "_logarithms", lambda scores, below, rescalings: 0 * below),
        (weighing, "_sums", _part_of(weighing._sums, 1, 0.0)),
        (weighing, "DIVISION", 0.0),
    )
    return Case(
        Plan("shares", shares=True, ulps=3, divided=2),
        Numbers(1.0, weights="bfloat16"),
        column(0, np.log(share / (1 - share))),
        np.eye(2),
        {"ties of shares": nothing},
    )


def capped() -> Case:
    """1 - 2 / (e^2y + 1) near 0, where 1 and the fraction cancel."""
    without: dict[str, Patches] = {"difference in tanh": ((scores, "TANH_ABSOLUTE", 0.0),)}
    return Case(
        Plan("by power", tanh="power", ulps=3, divided=2), Numbers(1.0, 30.0), column(0.32, -0.5), np.eye(2), without
    )


def by_instruction() -> Case:
    without: dict[str, Patches] = {"tanh": ((scores, "TANH", {**TANH, "instruction": TANH["function"]}),)}
    plan = Plan("by instruction", tanh="instruction", ulps=3)
    return Case(plan, Numbers(1.0, 30.0), column(2, -2), np.eye(2), without, tanh="instruction")


CASES = {
    "dot": dot(U),
    "dot, rounded up": dot(ABOVE),
    "dot, capped": dot(U, 512, 16.0),
    "far below": far_below(),
    "cancelling": cancelling(ABOVE, 2.0**17),
    "cancelling, capped": cancelling(ABOVE, 2.0**17, 1.0),
    "anything": cancelling(U, 2.0**20),
    "small products": small_products(),
    "products in float16": float16_products(),
    "alike": alike(),
    "products": products(),
    "rising": rising(),
    "sums": sums(),
    "bfloat16": narrow("bfloat16"),
    "float16": narrow("float16"),
    "sums of fp8": of_fp8_sums(),
    "vanishing": vanishing(),
    "flushing": flushing(1.0),
    "flushing, large": flushing(2.0**100),
    "capped": capped(),
    "by instruction": by_instruction(),
}


@pytest.mark.parametrize(("name", "term"), [(name, term) for name, case in CASES.items() for term in case.without])
def test_a_term_is_needed(name: str, term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    assert case.inside(), "with every term"
    for module, attribute, value in case.without[term]:
        monkeypatch.setattr(module, attribute, value)
    assert not case.inside(), f"without {term!r} the interval still holds the kernel"


def test_ties_of_shares_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not every share that is solved for lands within the errors of a tie: some of these do."""
    cases = [shares(half) for half in range(65, 128)]
    assert all(case.inside() for case in cases)
    for module, attribute, value in cases[0].without["ties of shares"]:
        monkeypatch.setattr(module, attribute, value)
    assert not all(case.inside() for case in cases)


def test_the_sums_of_1024_keys_reach_nine_tenths_of_the_bound() -> None:
    """So it could not be much narrower."""
    case = CASES["sums"]
    low, high = attend(
        np.ones((1, 1)), case.keys[:, None], case.values[:, None], Attention(1.0, sums="ieee", tile=1024)
    )
    found = float(Kernel(case.plan, case.numbers)(np.ones((1, 1)), case.keys, case.values)[0, 0])
    middle, half = (low[0, 0] + high[0, 0]) / 2, (high[0, 0] - low[0, 0]) / 2
    assert 0.9 < abs(found - middle) / half < 1
