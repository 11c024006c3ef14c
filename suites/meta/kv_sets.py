"""What engines' own files say of ``--kv-cache-dtype``, for the tests that compare."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from narrowgauge.suites.meta.engines.loading import folder_of


@cache
def asked(engine: str) -> dict[str, Any]:
    """What ``engines.kv_flags`` prints; the test is skipped where the engine is not in the path."""
    if folder_of(engine) is None:
        pytest.skip(f"{engine} is not in the path: its files cannot be run")
    command = [sys.executable, "-W", "ignore", "-m", "narrowgauge.suites.meta.engines.kv_flags", engine]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer
