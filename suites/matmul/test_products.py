"""Every product on every device: sums that are exact in any order, any numbers within bounds, NaN in its row alone."""

from __future__ import annotations

import pytest

from narrowgauge.suites.common import generate, test_cell

__all__ = ["test_cell"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    generate(metafunc, "matmul")
