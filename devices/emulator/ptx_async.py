"""cp.async of PTX: global to shared memory, complete when the thread has waited for the group that it belongs to.

The bytes are there at once and may not be read before the wait; other threads need a barrier after it.
"""

from __future__ import annotations

import numpy as np

from narrowgauge.devices.emulator.engine import Machine
from narrowgauge.devices.emulator.memory import Active, Array
from narrowgauge.devices.emulator.ptx_memory import HINTS, POLICY, memory_address
from narrowgauge.devices.emulator.ptx_operands import Build, Builder, Effect


def copy(b: Build) -> Effect:
    """cp.async, with .commit_group, .wait_group and .wait_all."""
    if not b.flag("async"):
        raise b.refuse()
    if b.flag("commit_group"):
        return lambda machine, active: machine.copies.commit(_lanes(machine, active))
    if b.flag("wait_all"):
        return lambda machine, active: machine.copies.wait(_lanes(machine, active), -1)
    if b.flag("wait_group"):
        left = b.operands[0].value
        if left is None:
            raise b.refuse()
        return lambda machine, active: machine.copies.wait(_lanes(machine, active), left)
    return _started(b)


def _lanes(machine: Machine, active: Active) -> Array:
    return machine.lane if active is None else np.flatnonzero(active)


def _started(b: Build) -> Effect:
    operands = list(b.operands)
    if b.flag(POLICY):
        operands.pop()
    cache = b.flag("ca", "cg")
    while b.flag(*HINTS):
        pass
    if not (b.flag("shared", "shared_cta") and b.flag("global")) or len(operands) not in (3, 4):
        raise b.refuse()
    size = operands[2].value
    if size is None or size not in ((4, 8, 16) if cache == "ca" else (16,)):
        raise b.refuse()
    to, source = memory_address(b, operands[0], "shared"), memory_address(b, operands[1], "global")
    given = b.read(operands[3], "u32") if len(operands) == 4 else None  # the rest of the bytes is zero
    step = min(size, 8)

    def effect(machine: Machine, active: Active) -> None:
        lanes = _lanes(machine, active)
        at, here = machine.wide(to(machine))[lanes], machine.wide(source(machine))[lanes]
        length = np.full(len(lanes), size) if given is None else machine.wide(given(machine))[lanes].astype(np.int64)
        for first in range(0, size, step):
            machine.copies.start(lanes, at + at.dtype.type(first), _read(machine, here, first, step, length, lanes))

    return effect


def _read(machine: Machine, address: Array, first: int, step: int, length: Array, lanes: Array) -> Array:
    """Words [lanes]; bytes from a lane's length on are zero, and not read."""
    words = np.zeros((len(address), step), np.uint8)
    whole = length >= first + step
    if whole.any():
        found = machine.memory.load(address[whole] + np.uint64(first), step, lanes[whole])
        words[whole] = found.view(np.uint8).reshape(-1, step)
    for i in range(step):
        part = ~whole & (length > first + i)
        if part.any():
            words[part, i] = machine.memory.load(address[part] + np.uint64(first + i), 1, lanes[part])
    return words.view(f"u{step}")[:, 0]


OPCODES: dict[str, Builder] = {"cp": copy}
