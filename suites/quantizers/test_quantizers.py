"""Every quantizer kernel on every device: named rows, tails, empty tensors, golden vectors, generated matrices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import as_codes, format_named
from narrowgauge.reference.inputs import case_named
from narrowgauge.suites.common import generate, judge_drawn, test_cell, test_cell_golden
from narrowgauge.suites.planning import Planned

__all__ = ["test_cell", "test_cell_golden"]
WIDEST, TALLEST = 40, 4  #: columns and rows of a generated matrix


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    generate(metafunc, "quantize")


def test_cell_property(planned: Planned, request: pytest.FixtureRequest) -> None:
    """Matrices of a few rows, of any patterns of the source and of magnitudes that a row may have."""
    source = planned.claim.source
    known = sorted(set(case_named("rows_128").make(planned.claim).data.ravel().tolist()))
    codes = st.one_of(st.sampled_from(known), st.integers(0, format_named(source).code_count - 1))
    matrices = st.integers(1, WIDEST).flatmap(
        lambda columns: st.lists(st.lists(codes, min_size=columns, max_size=columns), min_size=1, max_size=TALLEST)
    )
    judge_drawn(planned, request, matrices.map(lambda rows: Coded(source, as_codes(source, np.array(rows, np.int64)))))
