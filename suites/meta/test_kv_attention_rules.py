# SPDX-License-Identifier: Apache-2.0
"""Decode attention where the answer is known whatever the order, what NaN and infinity do, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from narrowgauge.contracts.errors import BadInput
from narrowgauge.reference.compare import compare
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.kv.arithmetic import Rounding, coded, digits, grid, rounding_to
from narrowgauge.reference.kv.attention import attend, rounded
from narrowgauge.reference.kv.rule import Attention
from narrowgauge.suites.meta.attention_kernels import F64, Kernel, Numbers
from narrowgauge.suites.meta.attention_plans import PLANS
from narrowgauge.suites.meta.second_attention import attention
from narrowgauge.suites.meta.test_kv_attention import in_bits, shaped

pytestmark = pytest.mark.meta

RULE = Attention(0.125)
NAN, INF = float("nan"), float("inf")


def judged(found: F64, low: F64, high: F64, format_name: str = "bfloat16") -> int:
    """How many elements of a result are no code of the interval."""
    return compare({"out": coded(found, format_name)}, {"out": rounded(low, high, format_name)}).total


def given(keys: int = 8, heads: int = 2, of_query: int = 4, width: int = 16) -> tuple[F64, F64, F64]:
    return shaped(1, of_query, width), in_bits(shaped(2, keys, heads, width), 4), in_bits(shaped(3, keys, heads, 6), 4)


@pytest.mark.parametrize("weights", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("keys", [1, 2, 16, 256])
@pytest.mark.parametrize("first", [False, True])
def test_equal_scores_of_a_power_of_two_give_one_code(keys: int, weights: str, first: bool) -> None:
    """Whole numbers from -4 to 4 and their mean, which bfloat16 holds."""
    values = np.resize(np.array([4.0, -4, 3, 1, -2, 0, 2, 4]), (keys, 1, 3))
    rule = Attention(0.125, weights=weights, scaled_first=first)
    low, high = attend(np.zeros((2, 16)), shaped(2, keys, 1, 16), values, rule)
    mean = np.broadcast_to(values.mean(axis=0), (2, 3))
    interval = rounded(low, high, "bfloat16")
    assert interval.exact
    np.testing.assert_array_equal(decode_values(interval.low), mean)


@pytest.mark.parametrize("cap", [0.0, 1e4])
@pytest.mark.parametrize("weights", ["float32", "bfloat16", "float16"])
def test_a_key_above_all_others_gives_its_value(weights: str, cap: float) -> None:
    """Their weights, e^-150, are none in float32; what bfloat16 holds comes back exactly."""
    query, keys = np.zeros((1, 16)), np.zeros((50, 1, 16))
    query[0, 0], keys[17, 0, 0] = 16, 75
    values = in_bits(shaped(3, 50, 1, 16), 8)
    low, high = attend(query, keys, values, Attention(0.125, cap, weights))
    interval = rounded(low, high, "bfloat16")
    assert interval.exact
    np.testing.assert_array_equal(decode_values(interval.low), values[17])


@pytest.mark.parametrize("weights", ["float32", "bfloat16"])
def test_one_key_gives_its_value(weights: str) -> None:
    query, keys, _ = given(keys=1)
    values = in_bits(shaped(5, 1, 2, 6), 8)
    interval = rounded(*attend(query, keys, values, Attention(0.3, weights=weights)), "bfloat16")
    assert interval.exact
    np.testing.assert_array_equal(decode_values(interval.low), values[0, [0, 0, 1, 1]])


def test_no_keys_give_zeros() -> None:
    query, keys, values = given()
    low, high = attend(query, keys[:0], values[:0], RULE)
    assert low.shape == high.shape == (4, 6)
    assert judged(np.zeros((4, 6)), low, high) == 0
    assert judged(np.full((4, 6), NAN), low, high) == 24


def test_heads_of_the_query_read_their_own_head() -> None:
    """Grouped: query heads 0 and 1 read head 0. Against the second derivation, which knows one head."""
    query, keys, values = given()
    low, high = attend(query, keys, values, RULE)
    for head in range(4):
        own = attention(query[head].tolist(), keys[:, head // 2].tolist(), values[:, head // 2].tolist(), 0.125)
        assert ((low[head] < [float(x) for x in own]) & ([float(x) for x in own] < high[head])).all()


def test_latent_attention_has_values_narrower_than_keys() -> None:
    """MLA: one head of 576 for all, whose first 512 columns are its value."""
    latent = in_bits(shaped(2, 20, 1, 576), 4)
    query = in_bits(shaped(1, 16, 576), 8)
    scale = float(np.float32(576**-0.5))
    low, high = attend(query, latent, latent[..., :512], Attention(scale))
    found = Kernel(PLANS[0], Numbers(scale))(query, latent[:, 0], latent[:, 0, :512])
    assert low.shape == (16, 512)
    assert judged(found.astype(np.float64), low, high) == 0


@pytest.mark.parametrize("signs", [(0.0, 0.0), (-0.0, -0.0), (0.0, -0.0)])
def test_zeros_keep_a_sign_where_no_order_can_change_it(signs: tuple[float, float]) -> None:
    """Sums that start at 0 make 0 of -0; of both zeros every sum makes 0."""
    query, keys, _ = given()
    low, high = attend(query, keys, np.broadcast_to(np.resize(np.array(signs), 8)[:, None, None], (8, 2, 6)), RULE)
    assert judged(np.zeros((4, 6)), low, high) == 0
    assert judged(np.full((4, 6), -0.0), low, high) == (0 if np.signbit(signs).all() else 24)


# --- NaN and infinity -------------------------------------------------------------------------------------------------


def simulated(query: F64, keys: F64, values: F64) -> list[F64]:
    """Results of all plans for keys [keys, 2, d], two query heads each."""
    found = []
    for plan in PLANS:
        kernel = Kernel(plan, Numbers(0.125))
        parts = [kernel(query[2 * h : 2 * h + 2], keys[:, h], values[:, h]) for h in range(2)]
        found.append(np.concatenate(parts).astype(np.float64))
    return found


def test_nan_in_a_key_that_is_used_poisons_its_heads_alone() -> None:
    query, keys, values = given(keys=40)
    keys[3, 1, 5] = NAN
    low, high = attend(query, keys, values, RULE)
    assert np.isnan(low[2:]).all()
    assert np.isnan(high[2:]).all()
    for found in simulated(query, keys, values):
        assert judged(found, low, high) == 0


def test_nan_in_the_query_poisons_its_head_alone() -> None:
    query, keys, values = given()
    query[1, 0] = NAN
    low, _ = attend(query, keys, values, RULE)
    np.testing.assert_array_equal(np.isnan(low).all(axis=1), [False, True, False, False])
    np.testing.assert_array_equal(np.isnan(low).any(axis=1), [False, True, False, False])


def test_nan_in_a_value_that_is_used_poisons_its_column_alone() -> None:
    """Even where the key's weight is none: 0 · NaN."""
    query, keys, values = given(keys=40)
    keys[7] *= 100
    values[3, 0, 2] = NAN
    low, high = attend(query, keys, values, RULE)
    np.testing.assert_array_equal(np.argwhere(np.isnan(low)), [[0, 2], [1, 2]])
    for found in simulated(query, keys, values):
        assert judged(found, low, high) == 0


def test_a_slot_that_is_not_used_is_not_read() -> None:
    """A kernel that multiplies before it masks lets NaN through, and is seen."""
    query, keys, values = given(keys=5)
    low, high = attend(query, keys, values, RULE)
    whole = [np.concatenate([each, np.full((3, *each.shape[1:]), NAN)]) for each in (keys, values)]
    weights = np.zeros((4, 8))
    for head in range(4):
        score = query[head] @ keys[:, head // 2].T * 0.125
        weights[head, :5] = np.exp(score - score.max()) / np.exp(score - score.max()).sum()
    leaked = np.stack([weights[head] @ whole[1][:, head // 2] for head in range(4)])
    masked = np.stack([weights[head] @ np.nan_to_num(whole[1][:, head // 2]) for head in range(4)])
    assert judged(masked, low, high) == 0
    assert judged(leaked, low, high) == 24


@pytest.mark.parametrize(("signs", "result"), [((1, 1), INF), ((-1,), -INF), ((1, -1), NAN)])
def test_infinite_values_that_are_used(signs: tuple[int, ...], result: float) -> None:
    query, keys, values = given(keys=40)
    values[: len(signs), 0, 1] = np.array(signs) * INF
    low, high = attend(query, keys, values, RULE)
    np.testing.assert_array_equal(low[:2, 1], [result, result])
    np.testing.assert_array_equal(high[:2, 1], [result, result])
    assert np.isfinite(np.delete(low, 1, axis=1)).all()
    for found in simulated(query, keys, values):
        assert judged(found, low, high) == 0


def test_an_infinite_value_in_a_head_that_is_poisoned_is_no_question() -> None:
    """Elsewhere a weight of 1/40 may vanish in fp8, and the infinity with it; here all is NaN."""
    query, keys, values = given(keys=40)
    values[3, 1, 2] = INF
    rule = Attention(0.125, weights="float8_e4m3fn")
    with pytest.raises(BadInput, match="more weight"):
        attend(np.zeros_like(query), keys, values, rule)
    keys[3, 1, 5] = NAN
    low, _ = attend(query, keys, values, rule)
    np.testing.assert_array_equal(np.isnan(low).all(axis=1), [False, False, True, True])


def test_a_score_of_infinity_poisons() -> None:
    """Infinity minus itself is NaN, in every order."""
    query, keys, values = given(keys=40)
    query[:, 5] = 1
    keys[3, 1, 5] = INF
    low, high = attend(query, keys, values, RULE)
    np.testing.assert_array_equal(np.isnan(low).all(axis=1), [False, False, True, True])
    for found in simulated(query, keys, values):
        assert judged(found, low, high) == 0


# --- what is refused --------------------------------------------------------------------------------------------------


def test_what_is_not_derived_is_refused() -> None:
    query, keys, values = given()
    query[:, 5] = 1
    below, huge, vanishing = keys.copy(), 2.0**126 * np.sign(values), values.copy()
    below[0, 0, 5] = -INF
    vanishing[0, 0, 0] = INF
    lone = keys.copy()
    lone[1:] = 300 * np.sign(query[[0, 2]])[None]
    cases = (
        (below, values, RULE, "-infinity"),
        (-below, values, Attention(0.125, 30.0), "soft cap"),
        (keys, huge, RULE, "overflow"),
        (2.0**126 * keys, values, RULE, "overflow"),
        (lone, vanishing, RULE, "more weight"),
        (lone / 40, vanishing, Attention(0.125, weights="float16"), "more weight"),
    )
    for k, v, rule, words in cases:
        with pytest.raises(BadInput, match=words):
            attend(query, k, v, rule)


def test_what_does_not_fit_is_refused() -> None:
    query, keys, values = given()
    cases = (
        (query[:3], keys, values, 1.0, "multiple of kv heads"),
        (query[:, :8], keys, values, 1.0, r"query \[4, 8\]"),
        (query, keys, values[:5], 1.0, r"values \[5, 2, 6\]"),
        (query, keys, values, np.ones(3), r"key_scale has shape \[3\]"),
        (query, keys, values, 0.0, "not positive"),
        (query, keys, values, -1.0, "not positive"),
        (query, keys, values, NAN, "not positive"),
    )
    for q, k, v, scale, words in cases:
        with pytest.raises(BadInput, match=words):
            attend(q, k, v, RULE, scale)
    with pytest.raises(BadInput, match="may overflow float16"):
        attend(query, keys, values, Attention(0.125, weights="float16"), 1.0, 1e5)
    with pytest.raises(BadInput, match="a product q · k"):
        attend(1e4 * query, 1e4 * keys, values, Attention(0.125, products="float16"))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"scale": 0.0}, "scale 0"),
        ({"soft_cap": -1.0}, "soft cap -1"),
        ({"weights": "bfloat"}, "bfloat16"),
        ({"sums": "ieee754"}, "ieee"),
        ({"tanh": "approx"}, "tanh"),
        ({"products": "float"}, "float32"),
        ({"tile": 0}, "tile 0"),
        ({"weights_scale": 3.0}, "power of two"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(wrong: dict[str, float | str], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        Attention(**({"scale": 0.125} | wrong))  # type: ignore[arg-type]


def test_the_unit_and_the_digits_of_numbers() -> None:
    rows = np.array([[12.0, 40], [-0.75, 0], [1 + 2.0**-23, 2.0**-149], [0, 0]])
    np.testing.assert_array_equal(grid(rows), [4, 0.25, 2.0**-149, INF])
    np.testing.assert_array_equal(digits(rows), [3, 2, 24, 0])


def test_what_rounding_to_a_format_takes() -> None:
    assert rounding_to("float16") == Rounding(2.0**-11, 2.0**-25, 65504.0)
    assert rounding_to("float8_e4m3fn") == Rounding(2.0**-4, 2.0**-10, 448.0)
    assert rounding_to("float8_e4m3fnuz") == Rounding(2.0**-4, 2.0**-11, 240.0)


@pytest.mark.parametrize("heads", [(), (1,), (2,), (8, 2)])
def test_a_power_of_two_folded_is_the_same_as_in_the_keys(heads: tuple[int, ...]) -> None:
    query, keys, values = given()
    folded = attend(query, keys, values, RULE, np.full(heads, 0.25), np.full(heads, 4.0))
    before = attend(query, keys / 4, values * 4, RULE)
    for one, other in zip(folded, before, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
