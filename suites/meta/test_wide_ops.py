# SPDX-License-Identifier: Apache-2.0
"""Wide operations: exact results lie in their intervals, whatever order float32 takes; wrong ones do not."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.wide import WIDE
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.wide.cases import CASES, call
from narrowgauge.reference.wide.run import ends_of
from narrowgauge.reference.wide.widening import Widening
from narrowgauge.suites.meta import second_wide

pytestmark = pytest.mark.meta

F64 = npt.NDArray[np.float64]
SOURCES = ("float32", "bfloat16", "float16")
#: rows of the longest cases that decimals look at
FEW = 5


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


def _as_held(value: second_wide.Decimal, format_name: str) -> float:
    if format_named(format_name).family == "integer":
        return float(value)
    return float(second_wide.number(second_wide.rounded(value, format_name), format_name))


@pytest.mark.parametrize("case", [case for case in CASES if case not in ("long", "many")])
@pytest.mark.parametrize("name", WIDE)
def test_the_exact_result_lies_inside(name: str, case: str) -> None:
    """Every element of every row, of a source of each width in turn."""
    if not CASES[case].suits(WIDE[name]):
        return
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
