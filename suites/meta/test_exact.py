"""Exact cases are exact under every unit and order, and use what they are given; beyond the limit they cannot be."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.kv.arithmetic import in_format
from narrowgauge.reference.matmul.accumulators import accumulator_named
from narrowgauge.reference.matmul.adversarial import adversarial_case
from narrowgauge.reference.matmul.drawing import Signs
from narrowgauge.reference.matmul.exact import exact_case, is_exact
from narrowgauge.suites.meta import second_bounds as second
from narrowgauge.suites.meta.exact_strategies import FLOATS, INTEGERS, ExactCall, exact_calls

pytestmark = pytest.mark.meta


def _right(a: Coded, b: Coded, way: second.Sum, seed: int = 0) -> np.ndarray:
    """Whether each sum comes out exactly, by definition."""
    rng, found = random.Random(seed), []
    for row in a.data.tolist():
        for column in b.data.tolist():
            terms = second.terms(row, column, a.format, b.format)
            found.append(way(terms, rng) == sum(t.value for t in terms))
    return np.array(found).reshape(len(a.data), len(b.data))


@pytest.mark.parametrize("accumulator", ["tensor_core_13", "promoted_128", "float32", "float16"])
def test_every_way_to_add_is_exact(accumulator: str) -> None:
    for format_name in ("float8_e4m3fn", "float8_e5m2", "float16", "float4_e2m1fn"):
        for k in (33, 130):
            signs: Signs = "mixed" if k == 33 else "one"
            case = exact_case(format_name, format_name, 3, 2, k, accumulator_named(accumulator), k, signs=signs)
            for name, way in second.WAYS[accumulator].items():
                assert _right(case.a, case.b, way).all(), (format_name, k, name)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(exact_calls())
def test_any_case_keeps_its_promises(call: ExactCall) -> None:
    case = call.case()
    a, b = decode_values(case.a) - call.zeros[0], decode_values(case.b) - call.zeros[1]
    x, y = (np.vectorize(int, otypes=[object])(v) for v in (a * 2**10, b * 2**10))  # exact: units are 2^-4 at least
    assert ((x @ y.T) == np.vectorize(int, otypes=[object])(case.sums * 2**20)).all()
    size = abs(x) @ abs(y).T
    limit = (2**call.held_in.exact_bits - 1) * int(case.unit * 2**20)
    assert (size <= limit).all()
    assert (x % int(x_unit(call.a_format) * 2**10) == 0).all()
    if call.signs == "positive":
        assert (a >= 0).all()
        assert (b >= 0).all()
    if call.signs == "one" or call.accumulator == "rdna3":
        assert (abs(x @ y.T) == size).all()
    assert (x != 0).any(axis=0).all()  # every place of K is in some row,
    assert (y[0] != 0).all()  # and meets a number
    if call.accumulator in second.WAYS and call.a_format in second.FORMATS and call.b_format in second.FORMATS:
        ways = list(second.WAYS[call.accumulator].values())
        assert _right(case.a, case.b, ways[call.seed % len(ways)], call.seed).all()


def x_unit(format_name: str) -> float:
    """What whole numbers of a format count."""
    return {"float4_e2m1fn": 0.5, "float6_e2m3fn": 0.125, "float6_e3m2fn": 0.0625}.get(format_name, 1.0)


@pytest.mark.parametrize("format_name", FLOATS + INTEGERS)
def test_cases_use_up_budget_codes_and_places(format_name: str) -> None:
    accumulator = accumulator_named("int32" if format_name in INTEGERS else "tensor_core_13")
    case = exact_case(format_name, format_name, 20, 31, 300, accumulator, 3)
    for x, y in ((case.a, case.b), (case.b, case.a)):
        assert len(np.unique(x.data, axis=0)) == len(x.data)
        assert len(np.unique(x.data, axis=1).T) > 250
        assert len(np.unique(x.data)) >= min(16, len(np.unique(y.data)))
    size = np.abs(case.a_values) @ np.abs(case.b_values).T / case.unit
    if format_name not in INTEGERS:
        assert size.max() < 0.99 * 2**14
        full = size.max(axis=1)[::3]  # rows of the largest numbers use up their budget
        assert np.median(full) > 0.987 * 2**14
    # A place of K that is dropped shows in some element, also after bfloat16.
    right = in_format(case.sums, "bfloat16")
    for k in range(300):
        without = case.sums - np.outer(case.a_values[:, k], case.b_values[:, k])
        assert (in_format(without, "bfloat16") != right).any(), k


@pytest.mark.parametrize("seed", [5, 22, 30])
def test_rows_that_come_out_alike_are_drawn_again(seed: int) -> None:
    """Of 3 places and the 15 numbers of E2M1: the first draw of these seeds has two rows alike."""
    case = exact_case("float4_e2m1fn", "float4_e2m1fn", 5, 5, 3, accumulator_named("tensor_core_13"), seed)
    assert len(np.unique(case.a.data, axis=0)) == len(np.unique(case.b.data, axis=0)) == 5


def test_a_transposed_operand_shows() -> None:
    case = exact_case("float8_e4m3fn", "float8_e4m3fn", 16, 24, 24, accumulator_named("tensor_core_13"), 1)
    assert (case.a_values @ case.b_values != case.sums).mean() > 0.9
    square = exact_case("float8_e4m3fn", "float8_e4m3fn", 24, 24, 24, accumulator_named("tensor_core_13"), 1)
    assert (square.b_values @ square.a_values.T != square.sums).mean() > 0.9


def test_cases_are_the_same_every_time() -> None:
    arguments = ("float8_e5m2", "float8_e4m3fn", 5, 7, 90, accumulator_named("promoted_128"))
    one, again, other = (exact_case(*arguments, seed) for seed in (4, 4, 5))
    assert one.a.digest() == again.a.digest()
    assert one.b.digest() == again.b.digest()
    assert one.a.digest() != other.a.digest()
    assert one.b.digest() != other.b.digest()


@pytest.mark.parametrize("format_name", ["float8_e4m3fn", "float8_e5m2", "bfloat16", "float4_e2m1fn"])
def test_beyond_the_limit_narrower_sums_are_all_wrong(format_name: str) -> None:
    """The pair just below and 1.5 times above 2^14: 13 bits fail the second alone, float32 neither."""
    narrow = accumulator_named("tensor_core_13")
    below = exact_case(format_name, format_name, 3, 3, 360, narrow, 0, signs="positive")
    above = exact_case(format_name, format_name, 3, 3, 360, narrow, 0, beyond=True)
    for way in ("ada", "hopper", "hopper, shuffled"):
        run = second.WAYS["tensor_core_13"][way]
        assert _right(below.a, below.b, run).all()
        assert not _right(above.a, above.b, run).any()
    for way in ("volta", "mma.sync fp8", "blackwell fp8", "cdna3, fp8", "tree", "chain"):
        assert _right(above.a, above.b, second.WAYS["float32"][way]).all()
    assert is_exact(above.a_values, above.b_values, accumulator_named("float32")).all()
    assert not is_exact(above.a_values, above.b_values, narrow).any()


def test_beyond_float32_every_unit_is_wrong() -> None:
    case = exact_case("float16", "float16", 2, 2, 96, accumulator_named("float32"), 0, beyond=True)
    for name, way in second.WAYS["float32"].items():
        assert not _right(case.a, case.b, way).any(), name
    half = exact_case("float16", "float16", 3, 2, 40, accumulator_named("float16"), 0, beyond=True)
    for name, way in second.WAYS["float16"].items():
        assert not _right(half.a, half.b, way).any(), name
    assert _right(half.a, half.b, second.WAYS["float32"]["volta"]).all()


def test_what_is_exact_is_seen_from_the_numbers_alone() -> None:
    """At the limit, with an addend, with subnormal operands, and by sign."""
    narrow, wide, whole = (accumulator_named(n) for n in ("tensor_core_13", "float32", "int32"))
    a = np.array([[127.0, 1.0, 0.0], [127.0, 2.0, 0.0], [0.0, 0.0, 0.0]])
    b = np.array([[129.0, 0.0, 8.0], [129.0, 1.0, 0.5]])
    assert is_exact(a, b, narrow).tolist() == [[True, False], [True, False], [True, True]]
    assert is_exact(a, b * 2.0**-9, narrow).tolist() == [[True, False], [True, False], [True, True]]
    assert is_exact(a, b, narrow, np.array([[1.0, 0], [2, 0], [0.5, 0]])).tolist() == [
        [False, False],
        [False, False],
        [True, True],
    ]
    assert not is_exact(np.array([[4.0]]), np.array([[4.0]]), narrow, np.array([[2.0**-10]])).any()
    assert is_exact(a, b, wide).all()
    assert is_exact(a, b, whole).tolist() == [[True, False], [True, False], [True, True]]
    low, other = Coded("float8_e4m3fn", np.array([[1, 1]], np.uint8)), np.array([[0x78, 0x20]], np.uint8)
    x, y = decode_values(low), decode_values(Coded("float8_e4m3fn", other))  # 2^-9, aligned at 2^-6; 2^8 and 2^-3
    assert is_exact(x, y, narrow).all()
    assert not is_exact(x, y, narrow, None, 2.0**-6, 2.0**-6).any()
    assert is_exact(x, y[:, :1] * [1, 0], narrow, None, 2.0**-6, 2.0**-6).all()
    assert not _right(low, Coded(low.format, other), second.WAYS["tensor_core_13"]["ada"]).any()
    small = np.array([[2.0**-15, 1.0]])
    assert is_exact(small, np.ones((1, 2)), wide).all()
    assert is_exact(small, np.ones((1, 2)), wide, None, 2.0**-14, 0.0).all()
    flushed = accumulator_named("float32_flushed")
    assert not is_exact(small, np.ones((1, 2)), flushed, None, 2.0**-14, 0.0).any()
    assert is_exact(small, np.ones((1, 2)), accumulator_named("tensor_core_23"), None, 2.0**-14, 0.0).all()
    one_sign = accumulator_named("rdna3")
    assert is_exact(np.array([[1.0, -1.0]]), np.array([[1.0, 1.0], [1.0, -1.0]]), one_sign).tolist() == [[False, True]]
    large = np.full((1, 2), 256.0)
    assert is_exact(large, large / 4, accumulator_named("float16")).all()
    assert not is_exact(large, large / 2, accumulator_named("float16")).any()  # 2^16
    assert is_exact(np.array([[2.0**-80]]), np.array([[2.0**-80]]), wide).tolist() == [[False]]


def test_promoted_sums_are_exact_by_stretches() -> None:
    """2^20 in the first 32 places and small numbers in the others; not where both meet in one stretch."""
    narrow, promoted = accumulator_named("tensor_core_13"), accumulator_named("promoted_32")
    a, b = np.full((3, 70), 0x38, np.uint8), np.full((1, 70), 0x38, np.uint8)  # 1
    a[:, 0], b[:, 0] = 0x78, 0x78  # 2^16
    a[0, 1:32], a[1, 1:32], a[2, 2:] = 0, 0x40, 0  # alone; 2; beside a 1
    coded = Coded("float8_e4m3fn", a), Coded("float8_e4m3fn", b)
    x, y = (decode_values(each) for each in coded)
    assert is_exact(x, y, promoted)[:, 0].tolist() == [True, False, False]
    assert not is_exact(x, y, narrow).any()
    assert _right(*coded, second.WAYS["promoted_32"]["hopper"])[:, 0].tolist() == [True, False, False]
    assert not is_exact(x[:1], y, promoted, np.ones((1, 1))).any()  # the addend meets 2^16
    beyond = x[:1] * np.where(np.arange(70) == 0, 2.0**8, 1)
    assert not is_exact(beyond, y, promoted).any()  # 2^24 and 38 are more than a float32
    assert is_exact(x[:1, :32], y[:, :32], promoted).all()
    later = np.roll(x[:1], 40, axis=1), np.roll(y, 40, axis=1)
    assert not is_exact(*later, promoted).any()  # 2^16 stands in the second stretch, beside ones
    assert not is_exact(x[:1] + 2.0**-4, y, promoted).any()


def test_calls_that_cannot_be_are_refused() -> None:
    narrow = accumulator_named("tensor_core_13")
    calls: dict[str, Callable[[], object]] = {
        "expected 1 or more": lambda: exact_case("int8", "int8", 0, 1, 1, narrow, 0),
        "is no format|expected a float of at most 32 bits": lambda: exact_case("e8m0", "e4m3", 1, 1, 1, narrow, 0),
        "expected at least 148": lambda: exact_case(
            "e4m3", "e4m3", 1, 1, 20, accumulator_named("float32"), 0, beyond=True
        ),
        "floats have none": lambda: exact_case("e4m3", "e4m3", 1, 1, 20, narrow, 0, zeros=(1, 0)),
        "have no positive numbers": lambda: exact_case(
            "uint4", "int8", 1, 1, 20, narrow, 0, signs="positive", zeros=(15, 0)
        ),
        "expected 13 powers of two between": lambda: adversarial_case("e2m1", "e2m1", 1, 1, 20, narrow),
        "no single term": lambda: adversarial_case("e4m3", "e4m3", 1, 1, 20, accumulator_named("int32")),
        "expected a float": lambda: adversarial_case("int8", "int8", 1, 1, 20, narrow),
    }
    for words, call in calls.items():
        with pytest.raises(BadInput, match=words):
            call()
