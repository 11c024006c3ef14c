"""Every cast kernel on every device: structured inputs, golden vectors, and inputs that hypothesis looks for."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import as_codes, format_named
from narrowgauge.reference.inputs import case_named
from narrowgauge.suites.common import generate, judge_drawn, test_cell, test_cell_golden
from narrowgauge.suites.planning import Planned

__all__ = ["test_cell", "test_cell_golden"]
#: elements of a generated input; a single one could be explained by any mistake
SHORTEST, LONGEST = 16, 64


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    generate(metafunc, "cast")


def test_cell_property(planned: Planned, request: pytest.FixtureRequest) -> None:
    """Half of what is drawn lies at a tie, a boundary or a special, where those can be listed."""
    source, edges = planned.claim.source, case_named("edges")
    codes = st.integers(0, format_named(source).code_count - 1)
    if edges.applies(planned.claim):
        codes = st.one_of(st.sampled_from(edges.make(planned.claim).data.tolist()), codes)
    lists = st.lists(codes, min_size=SHORTEST, max_size=LONGEST)
    judge_drawn(planned, request, lists.map(lambda drawn: Coded(source, as_codes(source, drawn))))
