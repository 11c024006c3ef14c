"""Mutants of the emulator: what may survive still exists, and a few of them are noticed (all: mutate_models.py)."""

from __future__ import annotations

import subprocess
import sys

import pytest

from narrowgauge.suites.meta.model_mutants import EQUIVALENT, EQUIVALENT_FOR
from narrowgauge.suites.meta.mutate_models import TESTS, mutants_of, name_of

pytestmark = pytest.mark.meta


def test_equivalent_mutants_still_exist() -> None:
    """A stale entry would excuse something else later."""
    modules = {module for covered in EQUIVALENT_FOR.values() for module in covered}
    made = {name_of(m) for module in modules for m in mutants_of(module)}
    assert modules <= TESTS.keys()
    assert EQUIVALENT - made == set()


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("nvidia_approx", "-20.5 becomes 20.5"),
        ("ptx_integer", "n >= width becomes n > width"),
    ],
)
def test_some_mutants_are_noticed(module: str, words: str) -> None:
    program = [sys.executable, "-m", "narrowgauge.suites.meta.mutate_models", module, "--only", words]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 mutants" not in done.stdout
