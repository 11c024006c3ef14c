"""Every converter on every device: every code under scales of every kind, shards of unlike sizes, zeros that wrap."""

from __future__ import annotations

import pytest

from narrowgauge.suites.common import generate, test_cell, test_cell_golden

__all__ = ["test_cell", "test_cell_golden"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    generate(metafunc, "convert")
