"""Every opcode and intrinsic of the emulator's tables is used by a test of the emulator."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from narrowgauge.devices.emulator import launching, llvm_ir, ptx_opcodes
from narrowgauge.suites.meta.mutate_models import calls

pytestmark = pytest.mark.meta

TABLES = {"PTX": ptx_opcodes.OPCODES, "LLVM IR": llvm_ir.OPCODES, "LLVM calls": llvm_ir.CALLS}


class Noted(dict[str, object]):
    """A table that notes what is taken from it."""

    def __init__(self, table: dict[str, object]) -> None:
        super().__init__(table)
        self.left = set(table)

    def __getitem__(self, name: str) -> object:
        self.left.discard(name)
        return super().__getitem__(name)


def _modules() -> Iterator[str]:
    """The test modules, the ones with many opcodes in few seconds first."""
    names = [path.stem for path in Path(__file__).parent.glob("test_emulator_*.py")]
    slow = ("test_emulator_coverage", "test_emulator_fuzz")
    yield from sorted((n for n in names if n not in slow), key=lambda n: (n.endswith("_words"), n))


def test_every_opcode_is_used_by_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests of the emulator, run once more until nothing is left. What they expect is from the ISA's words."""
    noted = {name: Noted(table) for name, table in TABLES.items()}  # type: ignore[arg-type]
    monkeypatch.setattr("narrowgauge.devices.emulator.ptx.OPCODES", noted["PTX"])
    monkeypatch.setattr(llvm_ir, "OPCODES", noted["LLVM IR"])
    monkeypatch.setattr(llvm_ir, "CALLS", noted["LLVM calls"])
    launching.nvidia.cache_clear()  # type: ignore[attr-defined]
    for name in _modules():
        for test, arguments in calls(importlib.import_module(f"narrowgauge.suites.meta.{name}")):
            if not any(table.left for table in noted.values()):
                return
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                test(**arguments)
    assert {name: sorted(table.left) for name, table in noted.items()} == {name: [] for name in TABLES}
