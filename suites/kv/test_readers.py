"""Every kernel that reads a cache, on every device: every code, pages in no order, NaN in what nobody uses."""

from __future__ import annotations

import pytest

from narrowgauge.suites.common import test_cell, test_cell_golden
from narrowgauge.suites.kv.cells import generate_kv, test_cell_property, test_cell_scale_response

__all__ = ["test_cell", "test_cell_golden", "test_cell_property", "test_cell_scale_response"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    generate_kv(metafunc, "kv_read")
