# SPDX-License-Identifier: Apache-2.0
"""What comes before a fused quantizer: float32 computations of every kind lie in its interval, wrong ones do not."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.operations import Claim
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.reference.behaviour import behaviour_of
from narrowgauge.reference.fast_codec import cast, decode_values, to_float32
from narrowgauge.reference.faults.registry import fault_named
from narrowgauge.reference.inputs import cases_for
from narrowgauge.reference.judge import judge
from narrowgauge.reference.noise import noise
from narrowgauge.reference.wide.catalogue import WIDE
from narrowgauge.reference.wide.run import wide_result

pytestmark = pytest.mark.meta

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
SOURCES = ("float32", "bfloat16", "float16")
U = 2.0**-24
_NEAREST = CastPolicy(overflow="special", infinity="special")
ONE, EPSILON = np.float32(1), np.float32(1e-6)


def as_format(value: F64 | F32, format_name: str) -> Coded:
    wide = np.ascontiguousarray(value, np.float64)
    return cast(Coded("float64", wide.view(np.uint64)), format_name, _NEAREST)


def rounded(value: F32, format_name: str) -> F32:
    return to_float32(as_format(value, format_name))


def asked(name: str, x: F64, source: str, weight: F64 | None = None) -> tuple[F32, F32, F64, F64]:
    """x and weight as the format holds them, and the ends that the reference gives."""
    coded = as_format(x, source)
    beside = as_format(np.ones((1, x.shape[1])) if weight is None else weight, source)
    given = {held.name: beside for held in WIDE[name].inputs}
    ends = wide_result(Input(coded.format, coded.data, given), name)
    assert [end.format for end in ends] == [source, source]
    low, high = (decode_values(end) for end in ends)
    return to_float32(coded), to_float32(beside), low, high


def rows(n: int) -> F64:
    """Noise of several magnitudes; one outlier; ones and thirds alone, which err to one side; zeros; about sqrt(ε);
    what a result is subnormal of."""
    some = [np.ldexp(noise(n, seed=k), power) for k, power in enumerate((-30, -12, -10, -3, 0, 0, 5, 7))]
    outlier = noise(n, seed=30)
    outlier[n // 3] = 200.0
    tiny = [np.full(n, 2.0**-60), np.full(n, 2.0**-137)]
    return np.stack([*some, outlier, np.ones(n), np.full(n, 1 / 3), np.zeros(n), np.full(n, 1e-3), *tiny])


def weights(n: int) -> F64:
    return np.resize(np.array([1.0, 0.75, -1.5, 0.3, 2.0, 1.1, 0.0]), (1, n))


# --- sums in several orders ------------------------------------------------------------------------------------------


def in_turn(terms: F32) -> F32:
    """One after the other."""
    return np.cumsum(terms, axis=1, dtype=np.float32)[:, -1:]


def in_pairs(terms: F32) -> F32:
    """A tree of halves, as threads of a block reduce."""
    while terms.shape[1] > 1:
        half = (terms.shape[1] + 1) // 2
        rest = np.zeros_like(terms[:, :half])
        rest[:, : terms.shape[1] - half] = terms[:, half:]
        terms = terms[:, :half] + rest
    return terms


def by_lanes(terms: F32) -> F32:
    """Each of 32 threads its own, then those in pairs."""
    padded = np.zeros((len(terms), -(-terms.shape[1] // 32) * 32), np.float32)
    padded[:, : terms.shape[1]] = terms
    return in_pairs(np.cumsum(padded.reshape(len(terms), -1, 32), axis=1, dtype=np.float32)[:, -1])


SUMS: dict[str, Callable[[F32], F32]] = {
    "in turn": in_turn,
    "backwards": lambda terms: in_turn(terms[:, ::-1]),
    "in pairs": in_pairs,
    "by lanes": by_lanes,
    "numpy's": lambda terms: terms.sum(axis=1, keepdims=True, dtype=np.float32),
}


def moved(value: F32, ulps: int) -> F32:
    """So many float32 numbers further from zero, or nearer. Zero and infinity are what they are."""
    found = value
    for _ in range(abs(ulps)):
        found = np.nextafter(found, np.copysign(np.float32(np.inf if ulps > 0 else 0), value))
    return np.where((value == 0) | np.isinf(value), value, found)


def flushed(value: F32) -> F32:
    """Subnormals as zeros, as a kernel compiled for speed has them."""
    return np.where(np.abs(value) < np.float32(2.0**-126), np.float32(0), value)


def roots(mean: F32, x: F32) -> list[F32]:
    """x over the root: by a reciprocal root that is off by up to 2 ulp, or a root and a division by 1 and 2."""
    exact = 1 / np.sqrt(mean.astype(np.float64))
    found = [x * moved(exact.astype(np.float32), ulps) for ulps in (-2, 0, 2)]
    root = np.sqrt(mean.astype(np.float64)).astype(np.float32)
    return found + [moved(x / moved(root, one), two) for one, two in ((0, 0), (-1, 2), (1, -2))]


def check(found: F32, low: F64, high: F64, source: str) -> None:
    value = rounded(found, source).astype(np.float64)
    outside = ~((value >= low) & (value <= high))
    assert not outside.any(), f"{value[outside][:3]} outside {low[outside][:3]} to {high[outside][:3]}"


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("n", [2, 3, 16, 129, 1000, 4096])
def test_every_way_to_compute_rms_norm_lies_inside(source: str, n: int) -> None:
    x, weight, low, high = asked("rms_norm", rows(n), source, weights(n))
    _, _, low_twice, high_twice = asked("rms_norm_twice_rounded", rows(n), source, weights(n))
    for add in SUMS.values():
        mean = add(x * x) / np.float32(n) + EPSILON
        for normal in roots(mean, x):
            check(normal * weight, low, high, source)
            check(flushed(normal * weight), low, high, source)
            check(rounded(normal, source) * weight, low_twice, high_twice, source)
        scale = (1 / np.sqrt(mean.astype(np.float64))).astype(np.float32)
        check(x * (scale * weight), low, high, source)  # the factors in another order


def exponentials(gate: F32) -> list[F32]:
    """exp(-gate) as a power of two off by up to 2 ulp, or the nearest one; subnormal results kept or flushed."""
    with np.errstate(over="ignore", under="ignore"):
        power = (-gate * np.float32(np.log2(np.e))).astype(np.float64)
        found = [moved(np.exp2(power).astype(np.float32), ulps) for ulps in (-2, 0, 2)]
        found.append(np.exp(-gate.astype(np.float64)).astype(np.float32))
    return found + [flushed(each) for each in found]


def gates(n: int) -> F64:
    """Ordinary ones, and those where exp(-gate) overflows, vanishes, or the result is subnormal."""
    edge = np.array(
        [0.0, -0.0, 1e-30, -1e-30, 17, 18, -17, -86.5, -87.5, -88, -88.8, -100, -104, -120, 88, 100, 2e4, -2e4]
    )
    up = np.array([1.0, -3.0, 0.25, 100.0, 0.0, 1.1])
    first = np.stack([noise(n, 1), 8 * noise(n, 2), 40 * noise(n, 3), np.resize(edge, n)])
    second = np.stack([noise(n, 4), noise(n, 5), np.resize(up, n), np.resize(up, n)])
    return np.concatenate([first, second], axis=1)


@pytest.mark.parametrize("source", SOURCES)
def test_every_way_to_compute_silu_lies_inside(source: str) -> None:
    n = 1500
    x, _, low, high = asked("silu_mul", gates(n), source)
    _, _, low_twice, high_twice = asked("silu_mul_twice_rounded", gates(n), source)
    gate, up = x[:, :n], x[:, n:]
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for exponential, ulps in product(exponentials(gate), (-2, 0, 2)):
            silu = moved(gate / (ONE + exponential), ulps)
            check(silu * up, low, high, source)
            check(rounded(silu, source) * up, low_twice, high_twice, source)


# --- the intervals are narrow ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 64, 4096])
def test_an_interval_is_no_wider_than_the_errors_it_holds(n: int) -> None:
    """Of float32: (n / 2 + 8.5) u each way, half an ulp of its own, and a subnormal. Of 16 bits most are one code."""
    _, _, low, high = asked("rms_norm", rows(n), "float32", weights(n))
    assert (high - low <= 2 * ((n / 2 + 9.5) * U * 1.01 * np.maximum(np.abs(low), np.abs(high)) + 2.0**-125)).all()
    assert (high > low).mean() > 0.5
    for source, share in (("bfloat16", 0.95), ("float16", 0.6)):
        _, _, low, high = asked("rms_norm", rows(n), source, weights(n))
        assert (low == high).mean() > share


def test_a_silu_of_ordinary_numbers_is_within_30_ulp() -> None:
    _, _, low, high = asked("silu_mul", np.concatenate([noise(999, 1), noise(999, 2)])[None], "float32")
    assert (high - low <= 60 * U * np.maximum(np.abs(low), np.abs(high)) + 2.0**-124).all()


Norm = Callable[[F64, F64, int], F64]


def _norm(x: F64, weight: F64, n: int, epsilon: float = 1e-6, left: F64 | None = None, count: int = 0) -> F64:
    squares = (x**2).sum(axis=1, keepdims=True) - (0 if left is None else left**2)
    normal: F64 = x / np.sqrt(squares / (count or n) + epsilon) * weight
    return normal


WRONG: dict[str, Norm] = {
    "no weight": lambda x, weight, n: _norm(x, np.ones_like(weight), n),
    "the next one's weight": lambda x, weight, n: _norm(x, np.roll(weight, 1), n),
    "one more than the weight": lambda x, weight, n: _norm(x, weight + 1, n),
    "no ε": lambda x, weight, n: _norm(x, weight, n, epsilon=0.0),
    "an ε of 1e-5": lambda x, weight, n: _norm(x, weight, n, epsilon=1e-5),
    "without the largest of the sum": lambda x, weight, n: _norm(
        x, weight, n, left=np.abs(x).max(axis=1, keepdims=True)
    ),
    "without the last of the sum": lambda x, weight, n: _norm(x, weight, n, left=x[:, -1:]),
    "a mean of n - 1": lambda x, weight, n: _norm(x, weight, n, count=n - 1),
    "the mean taken off": lambda x, weight, n: _norm(x - x.mean(axis=1, keepdims=True), weight, n),
    "ε outside the root": lambda x, weight, n: x / (np.sqrt((x**2).mean(axis=1, keepdims=True)) + 1e-6) * weight,
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("n", [16, 1000])
def test_a_wrong_norm_lies_outside(wrong: str, source: str, n: int) -> None:
    """Somewhere, even exactly computed, in rows whose squares are near ε; and the right one lies inside everywhere."""
    value = np.ldexp(np.stack([noise(n, seed) for seed in range(6)]), -9)
    value[:, -1] = np.abs(value).max(axis=1)
    x, weight, low, high = asked("rms_norm", value, source, weights(n))
    exact, beside = x.astype(np.float64), weight.astype(np.float64)
    for norm, holds in ((_norm, True), (WRONG[wrong], False)):
        found = decode_values(as_format(norm(exact, beside, n), source))
        assert ((found >= low) & (found <= high)).all() == holds


def _sigmoid(gate: F64) -> F64:
    found: F64 = 1 / (1 + np.exp(-gate))
    return found


Gate = Callable[[F64, F64], F64]
WRONG_GATES: dict[str, Gate] = {
    "halves swapped": lambda gate, up: up * _sigmoid(up) * gate,
    "no up": lambda gate, up: gate * _sigmoid(gate),
    "no gate": lambda gate, up: _sigmoid(gate) * up,
    "a ReLU": lambda gate, up: np.maximum(gate, 0) * up,
    "GELU by a sigmoid": lambda gate, up: gate * _sigmoid(1.702 * gate) * up,
    "gate and up in turns": lambda gate, up: up[:, ::-1] * gate * _sigmoid(gate),
}


@pytest.mark.parametrize("wrong", WRONG_GATES)
@pytest.mark.parametrize("source", SOURCES)
def test_a_wrong_gate_lies_outside(wrong: str, source: str) -> None:
    value = np.stack([noise(400, seed) for seed in range(4)])
    x, _, low, high = asked("silu_mul", value, source)
    gate, up = x[:, :200].astype(np.float64), x[:, 200:].astype(np.float64)
    right = gate * _sigmoid(gate) * up
    for value, holds in ((right, True), (WRONG_GATES[wrong](gate, up), False)):
        found = decode_values(as_format(value, source))
        assert ((found >= low) & (found <= high)).all() == holds


@pytest.mark.parametrize("name", [name for name in WIDE if name.endswith("_twice_rounded")])
@pytest.mark.parametrize("source", ["bfloat16", "float16"])
def test_one_rounding_and_two_are_told_apart(name: str, source: str) -> None:
    """Somewhere each excludes what the other gives."""
    once, twice = (
        asked(which, rows(512), source, weights(512))[2:] for which in (name.removesuffix("_twice_rounded"), name)
    )
    assert ((once[0] > twice[1]) | (once[1] < twice[0])).any()


# --- verdicts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("claim", ["then/rms_norm+vllm.fp8_per_token_dynamic/bfloat16/float8_e4m3fn",
                                   "then/silu_mul+vllm.fp8_group/float32/float8_e4m3fn"])  # fmt: skip
@pytest.mark.parametrize("fault", ["scale.inverted", "scale.unity", "element.scaled_twice"])
def test_a_wrong_fused_kernel_is_named(claim: str, fault: str) -> None:
    """Every fault is tried on it, those too of which an interval of inputs says nothing."""
    asks = Claim.parse(claim)
    x, wrong = cases_for(asks, "smoke")["noise"], fault_named(fault).applied_to(behaviour_of(asks))
    assert wrong is not None
    verdict = judge(asks, x, wrong.run(x))
    assert verdict.result == "failed"
    assert fault in verdict.explanations[0].faults


@pytest.mark.parametrize(("claim", "fault"), [
    ("then/rms_norm+vllm.fp8_per_token_dynamic/bfloat16/float8_e4m3fn", "wide.weight_missing"),
    ("then/rms_norm+vllm.fp8_group/float32/float8_e4m3fn", "wide.sum_for_mean"),
    ("then/silu_mul+vllm.fp8_group/float32/float8_e4m3fn", "wide.gate_and_up_swapped"),
])  # fmt: skip
def test_what_is_wrong_before_the_quantizer_is_named(claim: str, fault: str) -> None:
    asks = Claim.parse(claim)
    x, wrong = cases_for(asks, "smoke")["noise"], fault_named(fault).applied_to(behaviour_of(asks))
    assert wrong is not None
    verdict = judge(asks, x, wrong.run(x))
    assert verdict.result == "failed"
    assert fault in verdict.explanations[0].faults
    assert verdict.explanations[0].left == 0


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "x", "given", "words"),
    [
        ("rms", np.ones((1, 4)), {}, r"unknown operation 'rms'"),
        ("rms_norm", np.ones((1, 4)), {}, r"rms_norm: weight is nothing; expected float32 \[1, 4\]"),
        ("rms_norm", np.ones((1, 4)), {"weight": as_format(np.ones((1, 3)), "float32")}, r"weight is float32 \[1, 3\]"),
        ("rms_norm", np.ones((1, 4)), {"weight": as_format(np.ones((1, 4)), "float16")}, r"weight is float16 \[1, 4\]"),
        ("silu_mul", np.ones((1, 3)), {}, r"x has shape \[1, 3\]; expected \[rows, 2 · columns\]"),
        ("silu_mul", np.array([[1.0, np.nan]]), {}, "not finite or above 2"),
        ("silu_mul", np.array([[1.0, np.inf]]), {}, "not finite or above 2"),
        ("silu_mul", np.array([[1.0, 2.0**41]]), {}, "not finite or above 2"),
    ],
)  # fmt: skip
def test_what_has_no_bound_is_refused(name: str, x: F64, given: dict[str, Coded], words: str) -> None:
    coded = as_format(x, "float32")
    with pytest.raises(BadInput, match=words):
        wide_result(Input(coded.format, coded.data, given), name)
