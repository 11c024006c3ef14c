"""Mutate the emulator's models and opcodes, one small change at a time, and see whether their tests notice.

``python -m narrowgauge.suites.meta.mutate_models [MODULE…]`` prints the survivors that suites/meta/model_mutants.py does
not list as equivalent, and exits with 1 where there are any; ``--only WORDS`` looks at mutants whose names have the
words. Each mutant lives in a process of its own, forked from this one. Tests are called without pytest, which is too
slow for two thousand mutants: those that take fixtures are left out.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import os
import signal
import sys
import traceback
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from decimal import getcontext
from typing import Any

import numpy as np
import pytest

# Imported once, before the forks.
from narrowgauge.reference import behaviour, codec, fast_codec, inputs, judge, message  # noqa: F401
from narrowgauge.suites.meta.model_mutants import EQUIVALENT
from narrowgauge.suites.meta.mutation import Finder, Mutant, mutants

#: modules of devices/emulator/models, and the tests that look at each, the quickest first
BY_HAND, REFERENCE = ("test_models", "test_models_bands"), ("test_models_reference",)
EMULATED = ("test_emulator_ptx_words", "test_emulator_ptx", "test_emulator_ptx_wide", "test_emulator_models")
MODELS: dict[str, tuple[str, ...]] = {
    "lanes": ("test_models_lanes",),
    "bands": BY_HAND,
    "nvidia_approx": BY_HAND,
    "answers": (*BY_HAND, *REFERENCE),
    "rounding_ieee": (*EMULATED, *REFERENCE),
    "ptx_arithmetic": EMULATED,
    "amd_plain": (*BY_HAND, *REFERENCE),
    "amd": (*BY_HAND, *REFERENCE),
    "nvidia": (*BY_HAND, *REFERENCE),
    "rounding": (*BY_HAND, *REFERENCE),
}
LLVM = (
    "test_emulator_llvm_words",
    "test_emulator_llvm",
    "test_emulator_llvm_wide",
    "test_emulator_llvm_more",
    "test_emulator_llvm_fusion",
    "test_emulator_llvm_machine",
)
#: modules of devices/emulator
OPCODES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("ptx_integer", "ptx_float", "ptx_convert", "ptx_carry", "ptx_warp"), EMULATED[:3]),
    **dict.fromkeys(("llvm_integer", "llvm_float", "llvm_convert", "llvm_amdgcn"), LLVM),
}
TESTS = MODELS | OPCODES
LIMIT = 120  #: seconds after which a mutant that does not end is taken for noticed


def name_of(mutant: Mutant) -> str:
    """The mutant without its line, as it is listed."""
    return f"{mutant.module.rpartition('.')[2]}: {mutant.what}"


def mutants_of(name: str) -> Iterator[Mutant]:
    """All mutants of a module of TESTS."""
    return mutants(f"devices.emulator.{'models.' if name in MODELS else ''}{name}")


def survives(mutant: Mutant | None, tests: Sequence[str]) -> bool:
    """Whether no test fails. What cannot even be imported, or does not end, is noticed. None changes nothing."""
    child = os.fork()
    if child == 0:
        signal.alarm(LIMIT)
        try:
            _run(mutant, tests)
        except BaseException as error:
            if mutant is None:
                print("without a mutant:", *traceback.format_exception(error))
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _run(mutant: Mutant | None, tests: Sequence[str]) -> None:
    if mutant is not None:
        assert f"narrowgauge.{mutant.module}" not in sys.modules
        sys.meta_path.insert(0, Finder(f"narrowgauge.{mutant.module}", mutant.tree()))
    getcontext().prec = 200  # what the fixture of test_models_bands sets
    for name in tests:
        module = importlib.import_module(f"narrowgauge.suites.meta.{name}")
        for test, arguments in _calls(module):
            with warnings.catch_warnings(), np.errstate(**np.geterr()):
                warnings.simplefilter("error" if mutant is None else "ignore")
                test(**arguments)


def _calls(module: types.ModuleType) -> Iterator[tuple[Callable[..., None], dict[str, Any]]]:
    """The tests of a module with each of their parameters."""
    for name, test in list(vars(module).items()):
        if not name.startswith("test_") or not isinstance(test, types.FunctionType):
            continue
        axes = [list(_axis(mark)) for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
        for chosen in itertools.product(*axes):
            arguments = {key: value for part in chosen for key, value in part.items()}
            if arguments.keys() == set(test.__code__.co_varnames[: test.__code__.co_argcount]):
                yield test, arguments


def _axis(mark: pytest.Mark) -> Iterator[dict[str, Any]]:
    names, rows = mark.args[0], mark.args[1]
    names = [part.strip() for part in names.split(",")] if isinstance(names, str) else list(names)
    for row in rows:
        values = row.values if hasattr(row, "marks") else row if len(names) > 1 else (row,)
        yield dict(zip(names, values, strict=True))


def main() -> None:
    """Print the survivors that nobody explained; exit with 1 where there are any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"of {', '.join(TESTS)}; all if none")
    parser.add_argument("--only", default="", metavar="WORDS", help="mutants whose names have these words")
    given, left = parser.parse_args(), 0
    for module in given.modules or TESTS:
        assert survives(None, TESTS[module]), "the tests fail without a mutant"
        made = [m for m in mutants_of(module) if given.only in name_of(m) and name_of(m) not in EQUIVALENT]
        found = [m for m in made if survives(m, TESTS[module])]
        print(f"{module}: {len(made)} mutants, {len(found)} not noticed", *found, sep="\n    ", flush=True)
        left += len(found)
    sys.exit(left > 0)


if __name__ == "__main__":
    main()
