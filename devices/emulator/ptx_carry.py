"""Sums and products of 32 bits that pass a carry on, in the flag CC.CF: .cc sets it, addc, subc and madc add it."""

from __future__ import annotations

import numpy as np

from narrowgauge.devices.emulator.engine import Machine
from narrowgauge.devices.emulator.memory import Active, Array
from narrowgauge.devices.emulator.ptx_operands import Build, Builder, Effect

FLAG = "CC.CF"
_LOW, _BITS = np.uint64(0xFFFFFFFF), np.uint64(32)


def _carry(machine: Machine) -> Array:
    return machine.read(FLAG, np.dtype(bool)).astype(np.uint64)


def _effect(b: Build, first: int, sets: bool, uses: bool, minus: bool, part: str) -> Effect:
    """``first`` operands make the first summand (two of a product), one the second."""
    reads = [b.reader(i + 1, "u32") for i in range(first + 1)]
    write = b.writer(0, "u32")

    def effect(machine: Machine, active: Active) -> None:
        *factors, other = (read(machine).astype(np.uint64) for read in reads)
        summand = factors[0]
        if first == 2:
            product = factors[0] * factors[1]
            summand = product >> _BITS if part == "hi" else product & _LOW
        carry = _carry(machine) if uses else np.uint64(0)
        total = summand - other - carry if minus else summand + other + carry
        write(machine, (total & _LOW).astype(np.uint32), active)
        if sets:
            machine.write(FLAG, total >> _BITS != 0, active)

    return effect


def carrying(b: Build) -> Effect:
    """add.cc, addc, sub.cc, subc, mad.cc, madc. Of signed words too, whose patterns are added the same way."""
    product = b.base.startswith("mad")
    part = b.flag("lo", "hi") if product else ""
    sets = bool(b.flag("cc"))
    kind = b.type("u32", "s32", "b32")
    if len(b.operands) != (4 if product else 3) or (product and not part) or (part == "hi" and kind == "s32"):
        raise b.refuse()
    return _effect(b, 2 if product else 1, sets, b.base.endswith("c"), b.base.startswith("sub"), part)


def or_carrying(builder: Builder) -> Builder:
    """An opcode that may have .cc."""
    return lambda b: carrying(b) if "cc" in b.modifiers else builder(b)


OPCODES: dict[str, Builder] = {"addc": carrying, "subc": carrying, "madc": carrying}
