"""Mutate the models of instructions, one small change at a time, and see whether their tests notice.

``python -m narrowgauge.suites.meta.mutate_models [MODULE…]`` prints the survivors that are not listed as equivalent in
suites/meta/model_mutants.py and exits with 1 where there are any. All modules take about half an hour of one core.
Each mutant lives in a process of its own, forked from this one, and runs the tests until one of them fails.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np  # noqa: F401  imported once, before the forks
import pytest

from narrowgauge.suites.meta.model_mutants import EQUIVALENT
from narrowgauge.suites.meta.mutation import Finder, Mutant, mutants

HERE = Path(__file__).parent
#: the modules, and the tests that look at each, the quickest first
BY_HAND, REFERENCE = "test_models.py", "test_models_reference.py"
EMULATED = ("test_emulator_models.py", "test_emulator_ptx.py", "test_emulator_ptx_wide.py", "test_emulator_opcodes.py")
TESTS: dict[str, tuple[str, ...]] = {
    "amd": (BY_HAND, REFERENCE),
    "amd_plain": (BY_HAND, REFERENCE),
    "answers": (BY_HAND, REFERENCE, *EMULATED),
    "bands": (BY_HAND, *EMULATED),
    "lanes": ("test_models_lanes.py",),
    "nvidia": (BY_HAND, REFERENCE),
    "nvidia_approx": (BY_HAND, *EMULATED),
    "ptx_arithmetic": EMULATED,
    "rounding": (BY_HAND, REFERENCE),
    "rounding_ieee": (BY_HAND, REFERENCE, *EMULATED),
}
LIMIT = 120  #: seconds after which a mutant that does not end is taken for noticed


def name_of(mutant: Mutant) -> str:
    """The mutant without its line, as it is listed."""
    return f"{mutant.module.rpartition('.')[2]}: {mutant.what}"


def survives(mutant: Mutant | None, tests: Sequence[str]) -> bool:
    """Whether no test fails. What cannot even be imported, or does not end, is noticed. None changes nothing."""
    child = os.fork()
    if child == 0:
        os._exit(_tested(mutant, tests))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _tested(mutant: Mutant | None, tests: Sequence[str]) -> int:
    signal.alarm(LIMIT)
    if mutant is not None:
        assert f"narrowgauge.{mutant.module}" not in sys.modules
        sys.meta_path.insert(0, Finder(f"narrowgauge.{mutant.module}", mutant.tree()))
    files = [str(HERE / test) for test in tests]
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        # The fuzzer's kernels take seconds and would fail for no other reason than the tests do.
        chosen = ["-k", "not random_kernels and not fuzzer", "-m", "meta"]
        quiet = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # this process has imported the package already
        return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *quiet, *chosen, *files]))


def main() -> None:
    """Print the survivors that nobody explained; exit with 1 where there are any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"of {', '.join(TESTS)}; all if none")
    left = 0
    for module in parser.parse_args().modules or TESTS:
        assert survives(None, TESTS[module]), "the tests fail without a mutant"
        made = [m for m in mutants(f"devices.emulator.models.{module}") if name_of(m) not in EQUIVALENT]
        found = [m for m in made if survives(m, TESTS[module])]
        print(f"{module}: {len(made)} mutants, {len(found)} not noticed", *found, sep="\n    ", flush=True)
        left += len(found)
    sys.exit(left > 0)


if __name__ == "__main__":
    main()
