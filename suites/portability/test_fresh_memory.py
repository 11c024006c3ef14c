"""Loads of memory that torch allocated and nobody wrote are reported on emulated devices, and no others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from narrowgauge.devices import discovery
from narrowgauge.devices.discovery import NO_GPU

pytestmark = [
    pytest.mark.meta,
    pytest.mark.emulated,
    pytest.mark.skipif(not discovery.has_triton(), reason="triton is not installed: nothing compiles for a target"),
]

PROGRAM = "narrowgauge.suites.portability.plugged.fresh_program"
SAID = "that nobody wrote since they were allocated, at 0x"


def test_what_nobody_wrote_is_reported_and_what_anybody_wrote_is_not(tmp_path: Path) -> None:
    plain = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    env = plain | NO_GPU | {"TRITON_CACHE_DIR": str(tmp_path), "TRITON_DEFAULT_FP_FUSION": "1"}
    ended = subprocess.run([sys.executable, "-m", PROGRAM], env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    found = json.loads(ended.stdout.splitlines()[-1])
    reported = {name: said for name, said in found.items() if said != "ran"}
    assert list(reported) == ["nobody", "a slice", "one more than the kernel wrote"]
    for said, place in zip(reported.values(), ("byte 0 of", "byte 12 of", "byte 400 of"), strict=True):
        assert said.startswith("copied at fresh_program.py:"), said
        assert SAID in said, said
        assert f"{place} argument 'x'" in said, said
    assert reported["one more than the kernel wrote"].endswith("(1 of 101 lanes)")
