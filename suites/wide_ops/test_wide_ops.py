"""Every kernel of a wide operation on every device: narrow sums, near ties, squares that overflow, NaN in its row."""

from __future__ import annotations

import pytest

from narrowgauge.suites.common import generate, judge_drawn, test_cell
from narrowgauge.suites.planning import Planned
from narrowgauge.suites.wide_ops.drawn import calls

__all__ = ["test_cell"]


def test_cell_property(planned: Planned, request: pytest.FixtureRequest) -> None:
    """Calls of any sizes and magnitudes, with odd numbers in any places."""
    judge_drawn(planned, request, calls(planned.claim))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    generate(metafunc, "wide")
