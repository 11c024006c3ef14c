"""Every converter on every device: every code under scales of every kind, shards of unlike sizes, zeros that wrap."""

from __future__ import annotations

import pytest

from narrowgauge.suites.checkpoints.drawn import calls
from narrowgauge.suites.common import generate, judge_drawn, test_cell, test_cell_golden
from narrowgauge.suites.planning import Planned

__all__ = ["test_cell", "test_cell_golden"]


def test_cell_property(planned: Planned, request: pytest.FixtureRequest) -> None:
    """Calls of any sizes, with any codes in any places."""
    judge_drawn(planned, request, calls(planned.claim))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    generate(metafunc, "convert")
