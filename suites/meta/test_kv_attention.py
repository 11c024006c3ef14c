# SPDX-License-Identifier: Apache-2.0
"""Decode attention: kernels of every order lie in the interval, the exact result in its middle."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.reference.kv.attention import attend
from narrowgauge.reference.kv.rule import Attention
from narrowgauge.reference.kv.scores import scores_of
from narrowgauge.reference.kv.weighing import weights_of
from narrowgauge.reference.noise import noise
from narrowgauge.suites.meta.attention_kernels import Kernel, Numbers, Plan
from narrowgauge.suites.meta.attention_plans import CAPPED, FP8, PLANS, SHARES, TOKENS
from narrowgauge.suites.meta.second_attention import attention

pytestmark = pytest.mark.meta

F64 = npt.NDArray[np.float64]
Triple = tuple[F64, F64, F64]


def shaped(seed: int, *shape: int) -> F64:
    return noise(int(np.prod(shape)), seed).reshape(shape)


def in_bits(value: F64, bits: int) -> F64:
    """With so many significant bits: what fp8 (4) or bfloat16 (8) hold, exponents apart."""
    mantissa, exponent = np.frexp(value)
    return np.asarray(np.ldexp(np.round(np.ldexp(mantissa, bits)), exponent - bits))


def float32(value: F64) -> F64:
    return np.asarray(value.astype(np.float32).astype(np.float64))


def inputs(keys: int, width: int, columns: int) -> dict[str, Triple]:
    """q [3 heads, d], k [keys, d], v [keys, columns]."""
    q, k, v = in_bits(shaped(1, 3, width), 8), in_bits(shaped(2, keys, width), 4), in_bits(shaped(3, keys, columns), 4)
    whole = np.round(4 * k)
    rising = np.zeros((keys, width))
    rising[:, 0] = np.minimum(0.7 * np.arange(keys), 90)
    one = np.zeros((3, width))
    one[:, 0] = np.float32(width**0.5)
    dominant = k.copy()
    dominant[keys // 2] = 60 * q[0]
    return {
        "noise": (q, k, v),
        "of float32": (float32(shaped(4, 3, width) / 3), float32(k / 3), v / 2),
        "large scores": (8 * q, 4 * k, v),
        "small scores": (q / 64, k / 64, v),
        "rising": (one, float32(rising), np.eye(keys, columns)),
        "integers, one hot": (np.round(2 * q), whole, np.eye(keys, columns)),
        "a few values": (q, k, np.ones((keys, columns)) + v / 1024),
        "equal scores": (np.zeros_like(q), k, v),
        "one key dominates": (q, dominant, v),
        "tiny values": (q, k, np.ldexp(v, -126)),
        "large values": (q, k, np.ldexp(v, 100)),
    }


def slack(plan: Plan, numbers: Numbers, triple: Triple, ends: tuple[F64, F64]) -> float:
    """How near a simulated result comes to an end, as a share of half the width; below 0 it is outside."""
    q, k, v = triple
    low, high = ends
    found = Kernel(plan, numbers)(q, k, v).astype(np.float64)
    assert np.isfinite(found).all()
    half = (high - low) / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        left = np.where(half == 0, np.where(found == low, 1.0, -1.0), np.minimum(found - low, high - found) / half)
    return float(left.min())


def asked(triple: Triple, numbers: Numbers, rule: Attention) -> tuple[F64, F64]:
    q, k, v = triple
    return attend(q, k[:, None], v[:, None], rule, numbers.key_scale, numbers.value_scale)


def rules(numbers: Numbers, plan: Plan) -> Attention:
    return Attention(
        float(np.float32(numbers.scale)),
        numbers.soft_cap,
        numbers.weights,
        numbers.weights_scale,
        plan.shares,
        sums={"truncated": "matrix_unit", "of_fp8": "fp8_matrix_unit"}.get(plan.add.__name__, "ieee"),
        tile=max(1, plan.tile),
        tanh="instruction" if plan.tanh == "instruction" else "function",
        products=numbers.products,
        scaled_first=plan.scaled != "score",
    )


SIZES = ((1, 16), (2, 64), (7, 16), (64, 64), (200, 128))
WEIGHTS = ("float32", "bfloat16", "float16")


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize(("keys", "width"), SIZES)
def test_every_kernel_lies_inside(keys: int, width: int, weights: str) -> None:
    least = {}
    for name, triple in inputs(keys, width, 6).items():
        for scales in ((1.0, 1.0), (0.37, 2.9)):
            key_scale, value_scale = (float(np.float32(s)) for s in scales)
            numbers = Numbers(
                float(np.float32(width**-0.5)), 0.0, weights, key_scale=key_scale, value_scale=value_scale
            )
            for plan in (*PLANS, *SHARES):
                left = slack(plan, numbers, triple, asked(triple, numbers, rules(numbers, plan)))
                least[f"{name}, {plan.name}"] = left
    worst = min(least, key=least.__getitem__)
    print(keys, width, weights, worst, round(least[worst], 4))
    assert least[worst] >= 0, f"{worst}: {least[worst]}"


@pytest.mark.parametrize("products", ["bfloat16", "float16"])
def test_every_kernel_that_rounds_products_lies_inside(products: str) -> None:
    for name, triple in inputs(40, 64, 6).items():
        numbers = Numbers(0.125, 0.0, "bfloat16", products)
        for plan in PLANS:
            if plan.scaled == "score":
                left = slack(plan, numbers, triple, asked(triple, numbers, rules(numbers, plan)))
                assert left >= 0, f"{name}, {plan.name}: {left}"


@pytest.mark.parametrize("up", [1.0, 256.0])
@pytest.mark.parametrize("keys", [1, 33, 130])
def test_every_kernel_in_fp8_lies_inside(keys: int, up: float) -> None:
    for name, (q, k, v) in inputs(keys, 64, 6).items():
        triple = (in_bits(q, 4), in_bits(k, 4), in_bits(v, 4))
        numbers = Numbers(0.125, 0.0, "float8_e4m3fn", weights_scale=up)
        for plan in FP8:
            left = slack(plan, numbers, triple, asked(triple, numbers, rules(numbers, plan)))
            assert left >= 0, f"{name}, {plan.name}: {left}"


@pytest.mark.parametrize("cap", [0.5, 30.0])
def test_every_soft_cap_lies_inside(cap: float) -> None:
    for name, triple in inputs(40, 64, 6).items():
        for weights in WEIGHTS[:2]:
            numbers = Numbers(0.125, cap, weights)
            instruction = [replace(p, tanh="instruction") for p in CAPPED if p.tanh == "function"]
            for plan in (*CAPPED, *instruction):
                left = slack(plan, numbers, triple, asked(triple, numbers, rules(numbers, plan)))
                assert left >= 0, f"{name}, {plan.name}, {weights}: {left}"


@pytest.mark.parametrize("weights", WEIGHTS)
def test_every_kernel_with_a_scale_for_each_token_lies_inside(weights: str) -> None:
    keys = 70
    of_keys, of_values = (float32(np.abs(shaped(seed, keys)) + 0.01) for seed in (8, 9))
    for name, (q, k, v) in inputs(keys, 64, 6).items():
        numbers = Numbers(0.125, 0.0, weights, "float32", of_keys, of_values)
        for plan in TOKENS:
            ends = attend(q, k[:, None], v[:, None], rules(numbers, plan), of_keys[:, None], of_values[:, None])
            assert slack(plan, numbers, (q, k, v), ends) >= 0, f"{name}, {plan.name}"


@pytest.mark.parametrize("cap", [0.0, 20.0])
def test_the_exact_result_lies_inside(cap: float) -> None:
    """And next to the middle, where values have no extreme near the result that cuts one side off."""
    scale = float(np.float32(0.3))
    for name, (q, k, v) in inputs(12, 16, 3).items():
        low, high = attend(q, k[:, None], v[:, None], Attention(0.25, cap), 0.75, scale)
        for head in range(3):
            own = attention(q[head].tolist(), k.tolist(), v.tolist(), 0.25, cap, [0.75] * 12, [scale] * 12)
            exact = np.array([float(x) for x in own])
            inside = (low[head] < exact) & (exact < high[head]) | (low[head] == high[head])
            assert inside.all(), f"{name}: {low[head]} {exact} {high[head]}"
            if name == "noise":
                half = (high[head] - low[head]) / 2
                assert (np.abs(low[head] + half - exact) <= 1e-6 * half).all()


def test_weights_are_exact() -> None:
    """To float64's own errors, over 100 powers of e."""
    q, k, _ = inputs(12, 16, 3)["large scores"]
    scores = scores_of(q[None], k[None], np.full((1, 1, 12), 0.25), Attention(0.25))
    found = weights_of(scores, 1).exact[0]
    for head in range(3):
        exact = attention(q[head].tolist(), k.tolist(), np.eye(12).tolist(), 0.25)
        np.testing.assert_allclose(found[head], [float(x) for x in exact], rtol=2e-13)
