"""Every product on every device: sums that are exact in any order, any numbers within bounds, NaN in its row alone."""

from __future__ import annotations

import pytest

from narrowgauge.suites.common import generate, judge_drawn, test_cell, test_cell_golden
from narrowgauge.suites.matmul.drawn import calls
from narrowgauge.suites.planning import Planned

__all__ = ["test_cell", "test_cell_golden"]


def test_cell_property(planned: Planned, request: pytest.FixtureRequest) -> None:
    """Calls of any sizes, with any codes of a in any places."""
    judge_drawn(planned, request, calls(planned.claim))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    generate(metafunc, "matmul")
