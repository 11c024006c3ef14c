"""Every kernel that computes something before it quantizes: what rounding leaves open is an interval."""

from __future__ import annotations

import pytest

from narrowgauge.suites.common import generate, test_cell

__all__ = ["test_cell"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    generate(metafunc, "then")
