"""Fixtures that several tests of the suite itself use."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from narrowgauge.golden.manifest import VECTORS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the vectors that a test may damage."""
    copy = tmp_path / "vectors"
    shutil.copytree(VECTORS, copy)
    return copy
