# SPDX-License-Identifier: Apache-2.0
"""Conversions as the engines' own code does them, where it is in the path."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from narrowgauge.suites.meta.engines.loading import folder_of
from narrowgauge.suites.meta.marks import needs_torch

pytestmark = [pytest.mark.meta, needs_torch]

#: packages whose own code is compared, and how many conversions of each
PACKAGES = {"vllm": 7, "sglang": 9, "transformers": 1, "compressed_tensors": 4}


def answers(package: str) -> list[dict[str, Any]]:
    """The lines of a program that imports torch."""
    command = [sys.executable, "-W", "ignore", "-m", "narrowgauge.suites.meta.engines.conversions", package]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("package", PACKAGES)
def test_engines_convert_so(package: str) -> None:
    if folder_of(package) is None:
        pytest.skip(f"{package} is not in the path: its code cannot be run")
    found = answers(package)
    assert [answer for answer in found if answer["wrong"]] == []
    assert len(found) == PACKAGES[package]
