# SPDX-License-Identifier: Apache-2.0
"""Wide operations: exact results lie in their intervals, whatever order float32 takes; wrong ones do not."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.faults.registry import fault_named
from narrowgauge.reference.wide.cases import CASES, call
from narrowgauge.reference.wide.catalogue import WIDE
from narrowgauge.reference.wide.run import ends_of
from narrowgauge.reference.wide.widening import Widening
from narrowgauge.suites.meta import second_wide

pytestmark = pytest.mark.meta

F64 = npt.NDArray[np.float64]
SOURCES = ("float32", "bfloat16", "float16")


def intervals(name: str, x: Coded, source: str, format_name: str = "") -> dict[str, tuple[F64, F64]]:
    """Both ends of each output, as numbers."""
    ends = ends_of(Widening(WIDE[name], source, format_name or source), x)
    return {output: (decode_values(low), decode_values(high)) for output, (low, high) in ends.items()}


def second(name: str, x: Input, row: int, source: str, format_name: str) -> Mapping[str, F64]:
    """The second derivation's outputs of a row, rounded to their formats."""
    codes = {"x": x.data, **{key: value.data for key, value in x.given.items()}}
    formats = {"x": source, **WIDE[name].given(source)}
    rows = {key: [second_wide.number(int(c), formats[key]) for c in data[row if len(data) > 1 else 0]]
            for key, data in codes.items()}  # fmt: skip
    found = second_wide.outputs_of(name, rows.pop("x"), rows, source)
    gives = WIDE[name].gives(format_name)
    return {key: np.array([_as_held(v, gives[key]) for v in values], np.float64) for key, values in found.items()}


def _as_held(value: Decimal, format_name: str) -> float:
    if format_named(format_name).family == "integer":
        return float(value)
    return float(second_wide.number(second_wide.rounded(value, format_name), format_name))


#: but for the longest, which decimals are slow of
CALLS = [(n, case) for n, wide in WIDE.items() for case in CASES
         if case not in ("long", "many") and CASES[case].suits(wide)]  # fmt: skip


@pytest.mark.parametrize(("name", "case"), CALLS)
def test_the_exact_result_lies_inside(name: str, case: str) -> None:
    """Every element of every row, of a source of each width in turn."""
    source = SOURCES[sum(map(ord, name + case)) % 3]
    x = call(case, WIDE[name], source)
    found = intervals(name, x, source)
    for row in range(x.shape[0]):
        for output, want in second(name, x, row, source, source).items():
            low, high = (end[row] for end in found[output])
            if np.isnan(want).any() and WIDE[name].chosen:  # what is chosen of a row with NaN is nobody's promise
                continue
            nan = np.isnan(want)
            assert (np.isnan(low) == nan).all(), (output, row)
            assert (np.isnan(high) == nan).all(), (output, row)
            assert ((low <= want) & (want <= high))[~nan].all(), (output, row)


# --- where NaN and infinity arrive -----------------------------------------------------------------------------------

#: of each operation: whether a NaN reaches all of its row of y, its pair, or its own place
REACH = {
    **dict.fromkeys([n for n in WIDE if "norm" in n or "softmax" in n], "row"),
    **dict.fromkeys(["rope_neox", "rope_interleaved"], "pair"),
    **dict.fromkeys(["silu_mul", "silu_mul_twice_rounded", "soft_cap"], "element"),
}


def reached(name: str, columns: int, place: int) -> set[int]:
    """Columns of y in which a NaN in one column of x arrives."""
    if REACH[name] == "row":
        return set(range(columns))
    half = columns // 2
    other = {"rope_neox": (place + half) % columns, "rope_interleaved": place ^ 1}.get(name, place)
    return {place % columns, other % columns}


@pytest.mark.parametrize("name", REACH)
@pytest.mark.parametrize("place", [0, 5, 17])
def test_a_nan_arrives_where_the_operation_says_and_nowhere_else(name: str, place: int) -> None:
    """And no other row changes, whatever comes."""
    clean = call("noise", WIDE[name], "float32")
    columns = CASES["noise"].columns
    want = intervals(name, clean, "float32")
    for number in (np.nan, np.inf, -np.inf):
        data = clean.data.copy()
        data[2, place] = np.array(number, np.float32).view(np.uint32)
        given = {k: Coded(v.format, np.full_like(v.data, columns)) if k == "lengths" else v
                 for k, v in clean.given.items()}  # fmt: skip
        found = intervals(name, Input(clean.format, data, given), "float32")
        want = intervals(name, Input(clean.format, clean.data, given), "float32")
        for output, ends in found.items():
            for end, before in zip(ends, want[output], strict=True):
                assert np.array_equal(np.delete(end, 2, 0), np.delete(before, 2, 0), equal_nan=True), output
            if output == "y" and np.isnan(number):
                at = set(np.flatnonzero(np.isnan(ends[0][2])).tolist())
                assert at == reached(name, columns, place) == set(np.flatnonzero(np.isnan(ends[1][2])).tolist())


@pytest.mark.parametrize("name", [n for n in REACH if "norm" in n and n != "log_softmax" and "softmax" not in n])
def test_an_infinity_is_nan_in_its_place_and_makes_zeros_of_its_row(name: str) -> None:
    """1 / √∞ is 0, and ∞ · 0 is NaN."""
    x = call("specials", WIDE[name], "bfloat16")
    for row in (3, 5):
        for end in intervals(name, x, "bfloat16")["y"]:
            assert np.flatnonzero(np.isnan(end[row])).tolist() == [3 * row]
            assert (np.delete(end[row], 3 * row) == 0).all()


# --- what a narrow kernel gives --------------------------------------------------------------------------------------


def wrong(fault: str, name: str, case: str, source: str) -> dict[str, tuple[F64, F64]]:
    made = fault_named(fault).applied_to(Widening(WIDE[name], source, WIDE[name].outputs[0].format or source))
    ends = ends_of(made, call(case, WIDE[name], source))
    return {output: (decode_values(low), decode_values(high)) for output, (low, high) in ends.items()}


def test_a_sum_of_4096_ones_in_bfloat16_stops_at_256() -> None:
    """So that a norm of ones is 4, at weight 1, and each share of 4,096 equal ones is 1 / 256."""
    right = intervals("rms_norm", call("long", WIDE["rms_norm"], "bfloat16"), "bfloat16")["y"]
    narrow = wrong("wide.squares_summed_in_bfloat16", "rms_norm", "long", "bfloat16")["y"]
    assert (right[0][0, 0], right[1][0, 0]) == (1.0, 1.0)
    assert (narrow[0][0, 0], narrow[1][0, 0]) == (4.0, 4.0)
    shares = wrong("wide.summed_in_bfloat16", "softmax", "long", "bfloat16")["y"]
    assert (shares[0][:3] == 1 / 256).all()


def test_a_variance_in_float16_overflows_to_a_row_of_zeros() -> None:
    """300² is 90,000, which float16 does not hold: no NaN shows it."""
    for fault in ("wide.squares_in_float16", "wide.mean_in_float16"):
        low, high = wrong(fault, "rms_norm", "long", "float16")["y"]
        assert (low[1] == 0).all()
        assert (high[1] == 0).all()
    assert (np.abs(intervals("rms_norm", call("long", WIDE["rms_norm"], "float16"), "float16")["y"][0][1]) > 0.2).all()


def test_four_logits_that_tie_in_bfloat16_give_another_token() -> None:
    """20, 20.03, 20.06, 19.97 are all 20, of which the first is taken."""
    right = intervals("greedy", call("near", WIDE["greedy"], "float32"), "float32", "int32")["token"]
    narrow = wrong("wide.taken_in_bfloat16", "greedy", "near", "float32")["token"]
    assert right[0][:3].ravel().tolist() == right[1][:3].ravel().tolist() == [2, 52, 98]
    assert narrow[0][:3].ravel().tolist() == narrow[1][:3].ravel().tolist() == [0, 50, 96]
