"""Mutate the models of instructions and the opcodes, one small change at a time, and see whether their tests notice.

``python -m narrowgauge.suites.meta.mutate_models [MODULE…]`` prints the survivors that are not listed as equivalent in
suites/meta/model_mutants.py and exits with 1 where there are any; ``--only WORDS`` looks at mutants whose names have
the words. Each mutant lives in a process of its own, forked from this one. Tests are called without pytest, which is
too slow for two thousand mutants: those that take fixtures are left out.
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

#: the modules below devices.emulator, and the tests that look at each, the quickest first
BY_HAND, REFERENCE = ("test_models", "test_models_bands", "test_models_amd"), ("test_models_reference",)
PTX = ("test_emulator_ptx", "test_emulator_ptx_more", "test_emulator_ptx_wide", "test_emulator_ptx_words",
       "test_emulator_ptx_reals")  # fmt: skip
LLVM = (
    "test_emulator_llvm", "test_emulator_llvm_rest", "test_emulator_llvm_more", "test_emulator_llvm_wide",
    "test_emulator_llvm_machine", "test_emulator_llvm_fusion", "test_emulator_llvm_words", "test_emulator_llvm_reals",
)  # fmt: skip
TESTS: dict[str, tuple[str, ...]] = {
    "models.lanes": ("test_models_lanes",),
    "models.bands": BY_HAND,
    "models.nvidia_approx": BY_HAND,
    "models.answers": (*BY_HAND, "test_emulator_models", *REFERENCE),
    "models.rounding_ieee": (*BY_HAND, *PTX, "test_emulator_models", *REFERENCE),
    "models.ptx_arithmetic": (*PTX, "test_emulator_models"),
    "models.amd": (*BY_HAND, *LLVM[:3], *REFERENCE),
    **{f"models.{name}": (*BY_HAND, *REFERENCE) for name in ("amd_plain", "nvidia", "rounding")},
    **{
        f"ptx_{name}": PTX
        for name in ("integer", "float", "convert", "memory", "matrix", "carry", "atomic", "async", "warp")
    },
    **{f"llvm_{name}": LLVM for name in ("integer", "float", "convert", "memory", "amdgcn", "narrow", "fusion")},
}
LIMIT = 120  #: seconds after which a mutant that does not end is taken for noticed


def name_of(mutant: Mutant) -> str:
    """The mutant without its line, as it is listed."""
    return f"{mutant.module.rpartition('.')[2]}: {mutant.what}"


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
        for test, arguments in calls(module):
            with warnings.catch_warnings(), np.errstate(**np.geterr()):
                warnings.simplefilter("error" if mutant is None else "ignore")
                test(**arguments)


def calls(module: types.ModuleType) -> Iterator[tuple[Callable[..., None], dict[str, Any]]]:
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
        named = [m for m in mutants(f"devices.emulator.{module}") if given.only in name_of(m)]
        made = [m for m in named if name_of(m) not in EQUIVALENT]
        found = [m for m in made if survives(m, TESTS[module])]
        print(f"{module}: {len(made)} mutants, {len(found)} not noticed", *found, sep="\n    ", flush=True)
        left += len(found)
    sys.exit(left > 0)


if __name__ == "__main__":
    main()
