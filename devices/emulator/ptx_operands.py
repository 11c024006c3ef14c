"""Types and operands of PTX, and what the builder of an opcode works with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.devices.emulator.engine import Machine
from narrowgauge.devices.emulator.memory import UNSIGNED, Active, Array

Effect = Callable[[Machine, Active], None]
Reader = Callable[[Machine], Array]
Writer = Callable[[Machine, Array, Active], None]

#: how NumPy holds a value of a type; bf16 and the packed types are patterns, which their instructions take apart
TYPES: dict[str, np.dtype[Any]] = {
    **{f"{kind}{bits}": np.dtype(f"{code}{bits // 8}") for kind, code in (("u", "u"), ("b", "u"), ("s", "i"))
       for bits in (8, 16, 32, 64)},
    "f16": np.dtype(np.float16), "f32": np.dtype(np.float32), "f64": np.dtype(np.float64), "bf16": np.dtype(np.uint16),
    "u16x2": np.dtype(np.uint32),
    "s16x2": np.dtype(np.uint32),
    "f16x2": np.dtype(np.uint32), "bf16x2": np.dtype(np.uint32), "f32x2": np.dtype(np.uint64),
    "e4m3x2": np.dtype(np.uint16), "e5m2x2": np.dtype(np.uint16), "pred": np.dtype(bool),
}  # fmt: skip


@dataclass(frozen=True)
class Operand:
    """One operand. ``register`` or ``value`` (an immediate's pattern), or a vector, or an address."""

    register: str = ""
    type: str = ""  #: of the register, as declared
    value: int | None = None
    special: str = ""
    vector: tuple[Operand, ...] = ()
    address: bool = False
    symbol: str = ""  #: a parameter or a variable in shared memory
    offset: int = 0
    negated: bool = False


@dataclass
class Build:
    """An instruction that is being built: the builder takes modifiers and operands from it."""

    text: str
    base: str
    modifiers: list[str]
    operands: Sequence[Operand]
    symbols: Mapping[str, int] = field(default_factory=dict)

    def refuse(self) -> NotExecuted:
        """The error for what no model here knows."""
        return NotExecuted(f"opcode {self.opcode}")

    def __post_init__(self) -> None:
        self.opcode = ".".join([self.base, *self.modifiers])

    def flag(self, *names: str) -> str:
        """The first of these modifiers that is there, taken out; "" where none is."""
        for name in names:
            if name in self.modifiers:
                self.modifiers.remove(name)
                return name
        return ""

    def type(self, *allowed: str) -> str:
        """The next type among the modifiers, taken out. Refuses when it is not among those allowed (all, if none)."""
        for name in self.modifiers:
            if name in TYPES:
                if allowed and name not in allowed:
                    raise self.refuse()
                self.modifiers.remove(name)
                return name
        raise self.refuse()

    def reader(self, index: int, type: str) -> Reader:
        """A function that gives operand ``index`` as a value of a type [lanes] or [1]."""
        return self.read(self.operands[index], type)

    def read(self, operand: Operand, type: str) -> Reader:
        want = TYPES[type]
        if operand.value is not None or operand.symbol in self.symbols:
            number = operand.value if operand.value is not None else self.symbols[operand.symbol]
            if type == "pred":
                constant: Array = np.array([bool(number)])
            else:
                bits = int(number) & (1 << 8 * want.itemsize) - 1
                constant = np.array([bits], UNSIGNED[want.itemsize]).view(want)
            return lambda machine: constant
        if operand.special:
            special = operand.special
            return lambda machine: machine.special(special).astype(UNSIGNED[want.itemsize], copy=False).view(want)
        name = operand.register
        if not name:
            raise self.refuse()
        if type == "pred":
            if operand.negated:
                return lambda machine: ~machine.read(name, want)
            return lambda machine: machine.read(name, want)
        have = TYPES[operand.type]
        if have.itemsize < want.itemsize or have == TYPES["pred"]:
            raise self.refuse()
        narrow, held = UNSIGNED[want.itemsize], UNSIGNED[have.itemsize]
        if have.itemsize == want.itemsize:
            return (lambda m: m.read(name, held)) if narrow == want else (lambda m: m.read(name, held).view(want))
        return lambda machine: machine.read(name, held).astype(narrow).view(want)

    def writer(self, index: int, type: str) -> Writer:
        """A function that sets operand ``index`` to a value of a type; a wider register is extended by its sign."""
        return self.write(self.operands[index], type)

    def write(self, operand: Operand, type: str) -> Writer:
        name, have = operand.register, TYPES[type]
        if name == "_":
            return lambda machine, value, active: None
        if not name:
            raise self.refuse()
        want = TYPES[operand.type]
        if (want.itemsize < have.itemsize) or ((want == TYPES["pred"]) != (type == "pred")):
            raise self.refuse()
        if type == "pred":
            return lambda machine, value, active: machine.write(name, value, active)
        storage = UNSIGNED[want.itemsize]
        if want.itemsize == have.itemsize:
            return lambda machine, value, active: machine.write(name, value.view(storage), active)
        wider = np.dtype(f"{'i' if type[0] == 's' else 'u'}{want.itemsize}")
        bits = have if have.kind in "iu" else UNSIGNED[have.itemsize]
        return lambda machine, value, active: machine.write(name, value.view(bits).astype(wider).view(storage), active)

    def compute(self, function: Callable[..., Array], to: str, *sources: str) -> Effect:
        """The effect of ``operand 0 = function(operand 1, operand 2, …)``."""
        if len(self.operands) != len(sources) + 1:
            raise self.refuse()
        write = self.writer(0, to)
        reads = [self.reader(i + 1, source) for i, source in enumerate(sources)]
        if len(reads) == 1:
            (one,) = reads
            return lambda machine, active: write(machine, function(one(machine)), active)
        if len(reads) == 2:
            first, second = reads
            return lambda machine, active: write(machine, function(first(machine), second(machine)), active)
        return lambda machine, active: write(machine, function(*(r(machine) for r in reads)), active)


Builder = Callable[[Build], Effect]
