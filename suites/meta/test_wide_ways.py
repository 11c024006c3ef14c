# SPDX-License-Identifier: Apache-2.0
"""Every way in which float32 can compute softmax, a cap, a rotation or a router lies in its interval, and the intervals
are narrow enough to exclude what 16 bits give."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.reference.fast_codec import decode_values, to_float32
from narrowgauge.reference.kv.arithmetic import coded
from narrowgauge.reference.noise import noise
from narrowgauge.reference.wide.cases import CASES, call, call_with
from narrowgauge.reference.wide.catalogue import WIDE
from narrowgauge.reference.wide.run import ends_of
from narrowgauge.reference.wide.steps import STRETCHES
from narrowgauge.reference.wide.widening import Widening
from narrowgauge.suites.meta.test_wide import SUMS, flushed, moved

pytestmark = pytest.mark.meta

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
ONE, LOG2_E = np.float32(1), np.float32(np.log2(np.e))


def ends(name: str, x: Coded, format_name: str) -> dict[str, tuple[F64, F64]]:
    found = ends_of(Widening(WIDE[name], x.format, format_name), x)
    return {output: (decode_values(low), decode_values(high)) for output, (low, high) in found.items()}


def inside(found: F32, name: str, x: Coded, output: str = "y") -> None:
    low, high = ends(name, x, "float32")[output]
    value = found.astype(np.float64)
    fits = ((low <= value) & (value <= high)) | (np.isnan(value) & np.isnan(low) & np.isnan(high))
    assert fits.all(), (np.argwhere(~fits)[:3], value[~fits][:3], low[~fits][:3], high[~fits][:3])


def powers(x: F32) -> Iterator[F32]:
    """exp(x - max), in base e or 2, by functions that are up to 2 ulp off, subnormals kept or flushed."""
    top = x.max(axis=1, keepdims=True)
    below = x - top
    exponents = [np.exp(below.astype(np.float64)), np.exp2((below * LOG2_E).astype(np.float64)),
                 np.exp2((x * LOG2_E - top * LOG2_E).astype(np.float64))]  # fmt: skip
    for exact, ulps in product(exponents, (-2, 0, 2)):
        yield moved(exact.astype(np.float32), ulps)
        yield flushed(moved(exact.astype(np.float32), ulps))


def in_stretches(x: F32, count: int) -> tuple[F32, F32]:
    """exp(x - max) and its sum, of a row that is read in so many stretches, all rescaled where the largest rises."""
    best = np.full((len(x), 1), -np.inf, np.float32)
    total, kept = np.zeros_like(best), np.zeros_like(x[:, :0])
    for part in np.array_split(x, count, axis=1):
        higher = np.maximum(best, part.max(axis=1, keepdims=True))
        scale, power = np.exp(best - higher), np.exp(part - higher)
        total = total * scale + power.sum(axis=1, keepdims=True, dtype=np.float32)
        kept, best = np.concatenate([kept * scale, power], axis=1), higher
    return kept, total


LOGITS = [case for case in CASES if CASES[case].suits(WIDE["softmax"])]


@pytest.mark.parametrize("case", LOGITS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_way_to_compute_softmax_lies_inside(case: str) -> None:
    x = call(case, WIDE["softmax"], "float32")
    value = to_float32(x)
    for power in powers(value):
        for add in SUMS.values():
            total = add(power)
            inside(power / total, "softmax", x)
            inside(power * (ONE / total), "softmax", x)
            inside(value - value.max(axis=1, keepdims=True) - np.log(total), "log_softmax", x)
            inside(value - (value.max(axis=1, keepdims=True) + np.log(total)), "log_softmax", x)
    power, total = in_stretches(value, min(STRETCHES, value.shape[1]))
    inside(power / total, "softmax", x)


def capped(x: F32, cap: np.float32) -> Iterator[F32]:
    """By a function tanh, and by one exponential in each of three forms."""
    y = x / cap
    for ulps in (-2, 0, 2):
        yield cap * moved(np.tanh(y.astype(np.float64)).astype(np.float32), ulps)
    twice, small = np.exp(2 * y), np.exp(-2 * np.abs(y))
    yield cap * (ONE - 2 / (twice + ONE))
    yield cap * (2 / (ONE + np.exp(-2 * y)) - ONE)
    yield cap * np.copysign((ONE - small) / (ONE + small), y)


@pytest.mark.parametrize("case", [case for case in CASES if CASES[case].suits(WIDE["soft_cap"])])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_way_to_cap_lies_inside(case: str) -> None:
    x = call(case, WIDE["soft_cap"], "float32")
    for found in capped(to_float32(x), np.float32(30)):
        inside(found, "soft_cap", x)


@pytest.mark.parametrize("name", ["rope_neox", "rope_interleaved"])
def test_every_way_to_rotate_lies_inside(name: str) -> None:
    """Two products and their sum, or one product and a fused one."""
    x = call("noise", WIDE[name], "float32")
    value, cos, sin = to_float32(x), to_float32(x.given["cos"]), to_float32(x.given["sin"])
    half = value.shape[1] // 2
    one, two = (slice(half), slice(half, None)) if name == "rope_neox" else (slice(0, None, 2), slice(1, None, 2))
    a, b = value[:, one], value[:, two]

    def fused(p: F32, q: F32, rest: F32) -> F32:
        return (p.astype(np.float64) * q + rest).astype(np.float32)

    ways = (
        (a * cos - b * sin, b * cos + a * sin),
        (fused(a, cos, -(b * sin)), fused(b, cos, a * sin)),
        (fused(-b, sin, a * cos), fused(a, sin, b * cos)),
    )
    for first, second in ways:
        found = np.empty_like(value)
        found[:, one], found[:, two] = first, second
        inside(found, name, x)


@pytest.mark.parametrize("case", [case for case in CASES if CASES[case].suits(WIDE["router_sigmoid"])])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_way_to_route_lies_inside(case: str) -> None:
    """Sigmoids by exponentials of both bases; then the choice, of equal ones the lower first, and the shares."""
    x = call(case, WIDE["router_sigmoid"], "float32")
    value, bias = to_float32(x), to_float32(x.given["bias"])
    half = np.float32(0.5)
    for exponential in (np.exp(-value), np.exp2(-value * LOG2_E), np.tanh(half * value)):
        for ulps in (-2, 0, 2):
            found = moved(exponential, ulps)
            score = half + half * found if (exponential < 0).any() else ONE / (ONE + found)
            experts = np.argsort(-(score + bias), axis=1, kind="stable")[:, :4]
            weights = np.take_along_axis(score, experts, 1)
            inside(experts.astype(np.float32), "router_sigmoid", x, "experts")
            inside(weights / weights.sum(axis=1, keepdims=True) * np.float32(2.5), "router_sigmoid", x, "weights")


# --- the intervals are narrow ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "output", "power"), [
    ("softmax", "y", -14), ("capped_softmax", "y", -10), ("router_softmax", "weights", -14), ("rms_norm", "y", -14),
    ("router_sigmoid", "weights", -14), ("rms_norm_one_more", "y", -14), ("add_rms_norm", "y", -14),
    ("rope_neox", "y", -14),
])  # fmt: skip
def test_what_16_bits_lose_does_not_hide_in_an_interval(name: str, output: str, power: int) -> None:
    """Of ordinary numbers, an interval is narrower than an eighth of what rounding to float16 may take away; that of a
    capped score, whose tanh may cancel, than half of what rounding to bfloat16 may. Products of rotations cancel
    too: those are that narrow against the largest product."""
    wide = WIDE[name]
    value = np.stack([noise(64 * wide.parts, seed) for seed in range(6)])
    low, high = ends(name, call_with(value, wide, "float32"), "float32")[output]
    size = np.abs(value).max() if name == "rope_neox" else np.maximum(np.abs(low), np.abs(high))
    assert (high - low <= 2.0**power * size).all()
    assert (high > low).any()


def test_an_exact_choice_is_decided() -> None:
    """Logits decide a greedy token alone, and in rows of ordinary numbers a router's experts."""
    for name, output in (("greedy", "token"), ("router_softmax", "experts"), ("router_chosen_softmax", "experts")):
        low, high = ends(name, coded(np.stack([noise(64, seed) for seed in range(6)]), "float32"), "float32")[output]
        assert (low == high).all()
