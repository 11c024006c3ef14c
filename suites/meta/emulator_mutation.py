"""Mutate the emulator, one small change at a time, and see whether a test of it notices.

``python -m narrowgauge.suites.meta.emulator_mutation MODULE…`` lists what survives (all of ``MODULES`` without names:
an hour of one core); ``--lines 10-40`` looks at part of a module. Each mutant runs in a fork of this process, in which
the tests of its module import it in place of the real one. What may survive, and why, is in test_emulator_mutation.py.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterable, Iterator

import pytest

from narrowgauge.suites.meta.mutation import ROOT, Mutant, in_its_place, mutants

_MODELS = ("test_models", "test_models_bands", "test_models_lanes", "test_models_reference")
_PTX = ("test_emulator_ptx", "test_emulator_ptx_words", "test_emulator_ptx_wide", "test_models_bands")
_LLVM = (
    "test_emulator_llvm",
    "test_emulator_llvm_words",
    "test_emulator_llvm_more",
    "test_emulator_llvm_wide",
    "test_emulator_llvm_fusion",
    "test_emulator_llvm_machine",
)
#: what is mutated, and the tests that ought to notice, the quickest first
MODULES: dict[str, tuple[str, ...]] = {
    **{
        f"devices.emulator.models.{name}": _MODELS
        for name in ("answers", "bands", "rounding", "nvidia", "nvidia_approx", "amd", "amd_plain", "lanes")
    },
    **{f"devices.emulator.models.{name}": _PTX for name in ("ptx_arithmetic", "rounding_ieee")},
    **{
        f"devices.emulator.{name}": _PTX
        for name in ("ptx_integer", "ptx_float", "ptx_convert", "ptx_carry", "ptx_warp", "ptx_atomic", "ptx_matrix")
    },
    **{
        f"devices.emulator.{name}": _LLVM
        for name in ("llvm_integer", "llvm_float", "llvm_convert", "llvm_amdgcn", "llvm_narrowing")
    },
}
#: seconds after which a mutant that does not end is taken to be noticed
LIMIT = 90


def survives(mutant: Mutant) -> bool:
    """Whether all tests of its module pass."""
    child = os.fork()
    if child == 0:
        _run(mutant)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


def _run(mutant: Mutant) -> None:
    """In the fork: the tests, quietly; the process ends here."""
    signal.alarm(LIMIT)
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    code = 1
    try:
        with in_its_place(mutant):
            files = [str(ROOT / "suites" / "meta" / f"{name}.py") for name in MODULES[mutant.module]]
            files = [file for file in files if os.path.exists(file)]
            options = ["-x", "-q", "-m", "meta", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
            code = int(pytest.main([*options, *files]))
    finally:
        os._exit(code)


def survivors(chosen: Iterable[Mutant]) -> Iterator[Mutant]:
    """Those that no test notices, as they are found."""
    return (mutant for mutant in chosen if survives(mutant))


def main() -> None:
    """Print each survivor, and exit with 1 where there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", help="as in MODULES, without devices.emulator.")
    parser.add_argument("--lines", default="1-100000")
    given = parser.parse_args()
    first, last = (int(line) for line in given.lines.split("-"))
    names = [f"devices.emulator.{name}" for name in given.modules] or list(MODULES)
    found = 0
    for name in names:
        chosen = [m for m in mutants(name) if first <= m.line <= last]
        left = 0
        for mutant in survivors(chosen):
            left += 1
            print(mutant, flush=True)
        print(f"{name}: {len(chosen)} mutants, {left} survive", flush=True)
        found += left
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
