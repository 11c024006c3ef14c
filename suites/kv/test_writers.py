"""Every kernel that writes into a cache, on every device: the whole cache is judged, and what no token names too."""

from __future__ import annotations

import pytest

from narrowgauge.suites.common import generate, test_cell

__all__ = ["test_cell"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    generate(metafunc, "kv_write")
