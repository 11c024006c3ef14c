"""What the builder of an LLVM instruction works with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.devices.emulator.engine import Machine
from narrowgauge.devices.emulator.llvm_text import HELD, Kinds, Part, Reader, Tokens, Value
from narrowgauge.devices.emulator.memory import Active, Array

Effect = Callable[[Machine, Active], None]
Function = Callable[..., Array]
#: MODE.FP16_OVFL, which s_setreg changes
OVERFLOW = "MODE.FP16_OVFL"


@dataclass
class Build:
    """An instruction that is being built. A builder that returns None has only given a name to what there was."""

    opcode: str
    name: str  #: of the result, with its %; "" for none
    tokens: Tokens
    named: dict[str, Value]
    target: str
    kinds: Kinds = ()  #: of a call: what it returns
    arguments: Sequence[Value] = ()  #: of a call
    flags: set[str] = field(default_factory=set)

    def refuse(self) -> NotExecuted:
        """The error for what no model here knows."""
        return NotExecuted(f"opcode {self.opcode}")

    def alias(self, value: Value) -> None:
        """The result is a value that exists."""
        self.named[self.name] = value

    def registers(self, kinds: Kinds) -> list[str]:
        """Names of the registers of the result, which is defined by them."""
        names = [f"{self.name}.{i}" for i in range(len(kinds))]
        self.alias(tuple(Part(kind, reader(name, kind)) for name, kind in zip(names, kinds, strict=True)))
        return names

    def compute(self, kinds: Kinds, function: Function, *values: Value) -> Effect:
        """The effect of ``result = function(part of value 0, …)``, part by part."""
        names = self.registers(kinds)
        if any(len(value) != len(names) for value in values):
            raise self.refuse()
        rows = [(name, [part.read for part in row]) for name, *row in zip(names, *values, strict=True)]

        def effect(machine: Machine, active: Active) -> None:
            for name, reads in rows:
                machine.write(name, function(*(read(machine) for read in reads)), active)

        return effect

    def scalar(self, index: int) -> Part:
        """Argument ``index`` of a call, which has one part."""
        if len(self.arguments[index]) != 1:
            raise self.refuse()
        return self.arguments[index][0]

    def number(self, index: int) -> int:
        """Argument ``index`` of a call, which is a constant."""
        found = self.scalar(index).constant
        if found is None:
            raise self.refuse()
        return found


Builder = Callable[[Build], Effect | None]


def reader(register: str, kind: str) -> Reader:
    """A function that reads a register."""
    held = HELD[kind]
    return lambda machine: machine.read(register, held)


def chosen(machine: Machine, active: Active) -> Array:
    """Numbers of the active lanes."""
    return machine.lane if active is None else np.flatnonzero(active)


def nothing(machine: Machine, active: Active) -> None:
    """A hint, or what the engine does itself."""


def fp16_ovfl(machine: Machine) -> bool:
    """MODE.FP16_OVFL, which is 0 at the start of a kernel. It is the same for all lanes."""
    found = machine.registers.get(OVERFLOW)
    return found is not None and bool(found.all())
