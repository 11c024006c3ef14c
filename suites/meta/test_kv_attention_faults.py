# SPDX-License-Identifier: Apache-2.0
"""What the interval can see: each mistake, exactly computed, is outside by far, on inputs made for it.

Weights that are rounded to 16 bits leave about one code of bfloat16 open, so on ordinary noise a scale that is off
by 2^-8 is inside (the last test). Few keys with one value each, and scores that lie well apart, show it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.kv.attention import attend, rounded
from narrowgauge.reference.kv.rule import Attention
from narrowgauge.reference.noise import noise
from narrowgauge.suites.meta.attention_kernels import F64, bfloat16

pytestmark = pytest.mark.meta


@dataclass(frozen=True)
class Given:
    """One query head: q [d], k [keys, d], v [keys, columns]."""

    query: F64
    keys: F64
    values: F64
    scale: float = 0.125
    cap: float = 0.0
    key_scale: float = 1.0
    value_scale: float = 1.0


def exact(given: Given, add: Callable[[F64], F64] = lambda weights: weights.sum(axis=-1)) -> F64:
    """The definition, in float64."""
    score = given.keys @ given.query * given.scale * given.key_scale
    score = given.cap * np.tanh(score / given.cap) if given.cap else score
    weight = np.exp(score - score.max())
    return np.asarray(weight @ given.values * given.value_scale / add(weight))


def in_bfloat16(weights: F64) -> F64:
    """One after the other in 16 bits: where the sum is 256 times a weight, it stands still."""
    total = np.zeros(())
    for weight in weights:
        total = bfloat16(total + weight).astype(np.float64)
    return total


def changed(given: Given, **to: float | F64) -> F64:
    return exact(Given(**{**vars(given), **to}))


#: 64 columns, so scores are q · k / 8: exact, 0 to -8 by 2
_ONE = np.concatenate([[8.0], np.zeros(63)])
_STEPS = np.outer(-2.0 * np.arange(5), np.concatenate([[1.0], np.zeros(63)]))
STEPS = Given(_ONE, _STEPS, np.eye(5))
SCALED = Given(_ONE, _STEPS / 0.75, np.eye(5), key_scale=0.75, value_scale=float(np.float32(2.9)))
EQUAL = Given(np.zeros(64), np.zeros((100, 64)), np.eye(100))
CAPPED = Given(_ONE, _STEPS * 8, np.eye(5), cap=30.0)
MANY = Given(np.zeros(64), np.zeros((1024, 64)), np.eye(1024, 4) + 1)


@dataclass(frozen=True)
class Fault:
    name: str
    given: Given
    wrong: Callable[[Given], F64]


FAULTS = (
    Fault("key scale off by 2^-8", SCALED, lambda g: changed(g, key_scale=g.key_scale * (1 + 2.0**-8))),
    Fault("key scale dropped", SCALED, lambda g: changed(g, key_scale=1.0)),
    Fault("value scale dropped", SCALED, lambda g: changed(g, value_scale=1.0)),
    Fault("value scale twice", SCALED, lambda g: changed(g, value_scale=g.value_scale**2)),
    Fault("scales swapped", SCALED, lambda g: changed(g, key_scale=g.value_scale, value_scale=g.key_scale)),
    Fault("first key missing", STEPS, lambda g: np.r_[0, exact(Given(g.query, g.keys[1:], g.values[1:, 1:]))]),
    Fault("one key of 100 missing", EQUAL, lambda g: changed(g, keys=g.keys[1:], values=g.values[1:])),
    Fault(
        "a masked key counted as well",
        EQUAL,
        lambda g: changed(g, keys=np.zeros((101, 64)), values=np.eye(101, 100)),
    ),
    Fault(
        "a key read twice", EQUAL, lambda g: changed(g, keys=np.zeros((101, 64)), values=np.r_[g.values, g.values[:1]])
    ),
    Fault("softmax scale dropped", STEPS, lambda g: changed(g, scale=1.0)),
    Fault("softmax scale of another width", STEPS, lambda g: changed(g, scale=128**-0.5)),
    Fault("2^x for e^x", STEPS, lambda g: changed(g, scale=g.scale * np.log(2))),
    Fault("soft cap dropped", CAPPED, lambda g: changed(g, cap=0.0)),
    Fault("soft cap before the scale", CAPPED, lambda g: changed(g, cap=g.cap * g.scale)),
    Fault("weights summed in bfloat16", MANY, lambda g: exact(g, in_bfloat16)),
    Fault("not divided by the sum", EQUAL, lambda g: exact(g, lambda weights: np.ones(()))),
)


def ends(given: Given, weights: str) -> tuple[F64, F64]:
    rule = Attention(float(np.float32(given.scale)), given.cap, weights)
    low, high = attend(
        given.query[None], given.keys[:, None], given.values[:, None], rule, given.key_scale, given.value_scale
    )
    return low[0], high[0]


@pytest.mark.parametrize("weights", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_outside_by_more_than_the_width(fault: Fault, weights: str) -> None:
    low, high = ends(fault.given, weights)
    right, wrong = exact(fault.given), fault.wrong(fault.given)
    assert ((low <= right) & (right <= high)).all()
    beyond = np.maximum(low - wrong, wrong - high) / (high - low)
    assert beyond.max() > 1


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_outside_in_bfloat16(fault: Fault) -> None:
    """Weights, and then the output, rounded to 16 bits."""
    interval = rounded(*ends(fault.given, "bfloat16"), "bfloat16")
    wrong = bfloat16(fault.wrong(fault.given))
    assert ((wrong < decode_values(interval.low)) | (wrong > decode_values(interval.high))).any()


def test_noise_hides_a_scale_that_is_off() -> None:
    """Why inputs are made for it: 256 keys of noise hold a key scale off by 2^-8 inside, weights in bfloat16."""
    q, k, v = (noise(n, seed) for n, seed in ((64, 1), (256 * 64, 2), (256 * 64, 3)))
    given = Given(bfloat16(q).astype(np.float64), k.reshape(256, 64), v.reshape(256, 64))
    low, high = ends(given, "bfloat16")
    wrong = changed(given, key_scale=1 + 2.0**-8)
    assert ((low <= wrong) & (wrong <= high)).all()
