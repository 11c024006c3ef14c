"""Mutants of the emulator: what may survive still exists, and a few of them are noticed (all: mutate_models.py)."""

from __future__ import annotations

import subprocess
import sys

import pytest

from narrowgauge.suites.meta.model_mutants import EQUIVALENT
from narrowgauge.suites.meta.mutate_models import TESTS, name_of
from narrowgauge.suites.meta.mutation import mutants

pytestmark = pytest.mark.meta


def test_equivalent_mutants_still_exist() -> None:
    """A stale entry would excuse something else later."""
    made = {name_of(m) for module in TESTS for m in mutants(f"devices.emulator.{module}")}
    assert EQUIVALENT - made == set()


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("models.nvidia_approx", "-20.5 becomes 20.5"),
        ("models.lanes", "31 becomes 32 in offset >> 10"),
    ],
)
def test_some_mutants_are_noticed(module: str, words: str) -> None:
    program = [sys.executable, "-m", "narrowgauge.suites.meta.mutate_models", module, "--only", words]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 mutants" not in done.stdout
