# SPDX-License-Identifier: Apache-2.0
"""Decode kernels simulated in float32: the orders, foldings and last bits in which right ones may differ.

A kernel here is a ``Plan``. One kv head at a time: q [heads, d], k [keys, d], v [keys, columns], all float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
LOG2E = np.float32(np.log2(np.e))
ONE, TWO = np.float32(1), np.float32(2)


def f32(value: npt.ArrayLike) -> F32:
    return np.asarray(value, np.float32)


# --- sums over the last axis, of products that are exact in float64 ---------------------------------------------------


def in_turn(terms: F64) -> F32:
    return np.asarray(np.cumsum(f32(terms), axis=-1, dtype=np.float32)[..., -1])


def backwards(terms: F64) -> F32:
    return in_turn(terms[..., ::-1])


def in_pairs(terms: F64) -> F32:
    left = f32(terms)
    while left.shape[-1] > 1:
        if left.shape[-1] % 2:
            left = np.concatenate([left, np.zeros_like(left[..., :1])], axis=-1)
        left = left[..., ::2] + left[..., 1::2]
    return np.asarray(left[..., 0])


def by_lanes(terms: F64) -> F32:
    """Each of 8 lanes its own in turn, then those in pairs."""
    short = np.zeros((*terms.shape[:-1], -(-terms.shape[-1] // 8) * 8), np.float32)
    short[..., : terms.shape[-1]] = terms
    lanes = np.cumsum(short.reshape(*terms.shape[:-1], -1, 8), axis=-2, dtype=np.float32)[..., -1, :]
    return in_pairs(lanes.astype(np.float64))


def fused(terms: F64) -> F32:
    """A chain of fused multiply-adds."""
    total = np.zeros(terms.shape[:-1], np.float32)
    for i in range(terms.shape[-1]):
        total = f32(total.astype(np.float64) + terms[..., i])
    return total


def truncated(terms: F64) -> F32:
    """A tensor core of 8 products, 24 bits below the largest, 24 bits written."""
    return _cut(terms, 8, 24, 24)


def of_fp8(terms: F64) -> F32:
    """Hopper's of 32 products of fp8, 13 bits below the largest, 14 bits written."""
    return _cut(terms, 32, 13, 14)


def _cut(terms: F64, together: int, below: int, bits: int) -> F32:
    """All terms of a step, and what is there, cut to a common exponent; the sum cut to so many bits."""
    total = np.zeros(terms.shape[:-1])
    for start in range(0, terms.shape[-1], together):
        chunk = np.concatenate([terms[..., start : start + together], total[..., None]], axis=-1)
        unit = np.ldexp(1.0, np.frexp(np.abs(chunk).max(axis=-1))[1] - 1 - below)
        total = (np.trunc(chunk / unit[..., None]) * unit[..., None]).sum(axis=-1)
        last = np.ldexp(1.0, np.frexp(total)[1] - bits)
        total = np.trunc(total / last) * last
    return f32(total)


# --- last bits --------------------------------------------------------------------------------------------------------


def moved(value: F64, ulps: int) -> F32:
    """The float32 at so many ulps from the nearest one, up or down to zero. 0, 1 and infinity are exact."""
    found = f32(value)
    for _ in range(abs(ulps)):
        found = np.nextafter(found, np.float32(np.inf if ulps > 0 else 0))
    return np.where((value == 0) | (value == 1) | np.isinf(value), f32(value), found)


def flushed(value: F32) -> F32:
    return np.where(np.abs(value) < np.float32(2.0**-126), np.float32(0), value)


def bfloat16(value: npt.ArrayLike) -> F32:
    bits = f32(value).view(np.uint32)
    return np.asarray((bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000).astype(np.uint32).view(np.float32))


def float16(value: F32) -> F32:
    return np.asarray(value.astype(np.float16).astype(np.float32))


def e4m3(value: F32) -> F32:
    """Of numbers up to 448."""
    exponent = np.maximum(np.frexp(value)[1] - 1, -6)
    return f32(np.ldexp(np.round(np.ldexp(value.astype(np.float64), 3 - exponent)), exponent - 3))


NARROW: dict[str, Callable[[F32], F32]] = {
    "float32": f32,
    "bfloat16": bfloat16,
    "float16": float16,
    "float8_e4m3fn": e4m3,
}


@dataclass(frozen=True)
class Plan:
    """One way to compute it. ``tile`` of 0: the maximum of a split is known first."""

    name: str
    add: Callable[[F64], F32] = in_turn
    power: Literal["natural", "to_base_2", "folded", "fused"] = "natural"
    scaled: Literal["score", "query", "keys"] = "score"
    values_scaled: Literal["end", "values", "weights"] = "end"
    tile: int = 0
    splits: int = 1
    merge: Literal["maxima", "means"] = "maxima"
    shares: bool = False  #: weights are divided by their sum before they are narrowed
    ulps: int = 0  #: by which exponentials are off
    divided: int = 0  #: and divisions
    tanh: Literal["function", "power", "sigmoid", "instruction"] = "function"
    flush: bool = False
    turned: bool = False  #: the last key first


@dataclass(frozen=True)
class Numbers:
    """What a kernel is given beside q, k and v."""

    scale: float
    soft_cap: float = 0.0
    weights: str = "float32"
    products: str = "float32"
    key_scale: float | F64 = 1.0  #: one, or one for each key
    value_scale: float | F64 = 1.0
    weights_scale: float = 1.0


@dataclass(frozen=True)
class _Part:
    top: F32  #: maximum of some keys
    total: F32
    values: F32


class Kernel:
    """A plan at work on one kv head."""

    def __init__(self, plan: Plan, numbers: Numbers) -> None:
        self.plan, self.numbers = plan, numbers
        self.scale = f32(f32(numbers.scale) * f32(numbers.key_scale)) if plan.scaled != "keys" else f32(numbers.scale)
        self.factor = f32(self.scale * LOG2E)

    def __call__(self, query: F64, keys: F64, values: F64) -> F32:
        with np.errstate(all="ignore"):
            scores = self._scores(query, keys)
            v, own = f32(values), np.broadcast_to(f32(self.numbers.value_scale), len(values))
            if self.plan.values_scaled == "values":
                v = v * own[:, None]
            order = np.arange(len(v))[:: -1 if self.plan.turned else 1]
            chunks = [i for i in np.array_split(order, self.plan.splits) if len(i)]
            parts = [self._part(scores[:, i], v[i], own[i]) for i in chunks]
            found = self._merged(parts)
            if self.plan.values_scaled == "end":
                found = found * f32(self.numbers.value_scale)
            return self._own(found)

    def _own(self, value: F32) -> F32:
        return flushed(value) if self.plan.flush else value

    def _vanishing(self, products: F64) -> F64:
        return np.where(np.abs(products) < 2.0**-126, 0.0, products) if self.plan.flush else products

    def _scores(self, query: F64, keys: F64) -> F32:
        q, k = f32(query), f32(keys)
        if self.plan.scaled == "keys":
            k = k * f32(self.numbers.key_scale)[..., None]
        if self.plan.scaled == "query":
            q = q * (self.factor if self.plan.power == "folded" else self.scale)
        products = q.astype(np.float64)[:, None, :] * k.astype(np.float64)[None]
        if self.numbers.products != "float32":
            products = NARROW[self.numbers.products](f32(products)).astype(np.float64)
        dot = self.plan.add(self._vanishing(products))
        if self.plan.power == "fused" or self.plan.scaled == "query":
            return dot
        score = dot * (self.factor if self.plan.power == "folded" else self.scale)
        if not self.numbers.soft_cap:
            return score
        cap = f32(self.numbers.soft_cap)
        return cap * self._tanh(moved((score / cap).astype(np.float64), self.plan.divided))

    def _tanh(self, y: F32) -> F32:
        wide = np.tanh(y.astype(np.float64))
        if self.plan.tanh == "function":
            return moved(wide, 2 * np.sign(self.plan.ulps))
        if self.plan.tanh == "instruction":
            return f32(wide * (1 + 2.0**-11.01 * np.sign(self.plan.ulps)))
        if self.plan.tanh == "power":
            return ONE - self._divide(TWO, self._exp(TWO * y) + ONE)
        return TWO * self._divide(ONE, ONE + self._exp(-(TWO * y))) - ONE

    def _exp(self, x: F32) -> F32:
        if self.plan.power == "natural":
            return self._own(moved(np.exp(x.astype(np.float64)), self.plan.ulps))
        return self._exp2(x * LOG2E)

    def _exp2(self, x: F32) -> F32:
        return self._own(moved(np.exp2(x.astype(np.float64)), self.plan.ulps))

    def _divide(self, a: F32 | np.float32, b: F32 | np.float32) -> F32:
        return moved(np.asarray(f32(a).astype(np.float64) / b), self.plan.divided)

    def _weight(self, score: F32, top: F32) -> F32:
        if self.plan.power == "fused":
            product = score.astype(np.float64) * self.factor
            return self._exp2(f32(product - f32(top * self.factor).astype(np.float64)))
        return self._factor(score, top)

    def _factor(self, old: F32, new: F32) -> F32:
        """What sums under an old maximum are multiplied by under a new one."""
        if self.plan.power == "fused":
            return self._exp2((old - new) * self.factor)
        return self._exp2(old - new) if self.plan.power == "folded" else self._exp(old - new)

    def _part(self, scores: F32, values: F32, scale: F32) -> _Part:
        tile = self.plan.tile or scores.shape[1]
        heads = len(scores)
        part = _Part(f32([-np.inf] * heads), f32([0] * heads), f32(np.zeros((heads, values.shape[1]))))
        for start in range(0, scores.shape[1], tile):
            here, v = scores[:, start : start + tile], values[start : start + tile]
            top = np.maximum(part.top, here.max(axis=1))
            factor = self._factor(part.top, top)
            weight = self._weight(here, top[:, None])
            add = in_turn if self.plan.add is of_fp8 else self.plan.add  # weights themselves are no fp8
            total = self._own(part.total * factor) + add(weight.astype(np.float64))
            met = self._divide(weight, total[:, None]) if self.plan.shares else weight
            if self.plan.values_scaled == "weights":
                met = met * scale[start : start + tile]
            up = f32(self.numbers.weights_scale)
            met = NARROW[self.numbers.weights](met * up) / up
            products = met.astype(np.float64)[:, None, :] * v.T.astype(np.float64)[None]
            added = self.plan.add(self._vanishing(products))
            part = _Part(top, total, self._own(part.values * factor[:, None]) + added)
        return part

    def _merged(self, parts: list[_Part]) -> F32:
        if self.plan.shares:
            return parts[0].values
        if len(parts) == 1:
            return self._divide(parts[0].values, parts[0].total[:, None])
        top = np.max([p.top for p in parts], axis=0)
        if self.plan.merge == "maxima":
            factors = [self._factor(p.top, top) for p in parts]
            total = self.plan.add(
                np.stack([p.total * f for p, f in zip(parts, factors, strict=True)], axis=-1).astype(np.float64)
            )
            scaled = [self._own(p.values * f[:, None]) for p, f in zip(parts, factors, strict=True)]
        else:
            logs = [self._logarithm(p) for p in parts]
            largest = np.max(logs, axis=0)
            in_base_2 = self.plan.power in ("folded", "fused")
            factors = [self._exp2(each - largest) if in_base_2 else self._exp(each - largest) for each in logs]
            total = self.plan.add(np.stack(factors, axis=-1).astype(np.float64))
            scaled = [
                self._own(self._divide(p.values, p.total[:, None]) * f[:, None])
                for p, f in zip(parts, factors, strict=True)
            ]
        return self._divide(self.plan.add(np.stack(scaled, axis=-1).astype(np.float64)), total[:, None])

    def _logarithm(self, part: _Part) -> F32:
        if self.plan.power in ("natural", "to_base_2"):
            return part.top + f32(np.log(part.total.astype(np.float64)))
        return (part.top * self.factor if self.plan.power == "fused" else part.top) + f32(
            np.log2(part.total.astype(np.float64))
        )
