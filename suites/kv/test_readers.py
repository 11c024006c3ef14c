"""Every kernel that reads a cache, on every device: every code, pages in no order, NaN in what nobody uses."""

from __future__ import annotations

import pytest

from narrowgauge.suites.common import generate, test_cell

__all__ = ["test_cell"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    generate(metafunc, "kv_read")
