"""Every attention over a cache, on every device: any order of sums, and nothing from what nobody uses."""

from __future__ import annotations

import pytest

from narrowgauge.suites.common import generate, test_cell

__all__ = ["test_cell"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    generate(metafunc, "attend")
