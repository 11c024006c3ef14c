"""Every kernel that writes into a cache, on every device: the whole cache is judged, and what no token names too."""

from __future__ import annotations

import pytest

from narrowgauge.suites.common import test_cell, test_cell_golden
from narrowgauge.suites.kv.cells import generate_kv, test_cell_property, test_cell_scale_response

__all__ = ["test_cell", "test_cell_golden", "test_cell_property", "test_cell_scale_response"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    generate_kv(metafunc, "kv_write")
