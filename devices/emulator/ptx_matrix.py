"""ldmatrix and stmatrix: 8 x 8 matrices of 16-bit elements between shared memory and the registers of a warp.

They move data and compute nothing. Lane 8 i + r has the address of row r of matrix i. Register i of lane t holds
elements (t / 4, 2 (t % 4)) and the next one of that row; with .trans, (2 (t % 4), t / 4) and the next of that column.
"""

from __future__ import annotations

import numpy as np

from narrowgauge.devices.emulator.engine import Machine
from narrowgauge.devices.emulator.memory import Active, Array
from narrowgauge.devices.emulator.ptx_memory import memory_address
from narrowgauge.devices.emulator.ptx_operands import Build, Builder, Effect

_COUNTS = {"x1": 1, "x2": 2, "x4": 4}


def _shape(b: Build) -> tuple[int, bool]:
    """How many matrices, and whether they are transposed."""
    if not (b.flag("sync") and b.flag("aligned") and b.flag("m8n8")):
        raise b.refuse()
    count, trans = _COUNTS.get(b.flag(*_COUNTS), 0), bool(b.flag("trans"))
    space = b.flag("shared", "shared_cta")
    if not count or not space or not b.flag("b16") or len(b.operands) != 2:
        raise b.refuse()
    return count, trans


def _halves(machine: Machine, rows: Array, matrix: int, trans: bool) -> list[Array]:
    """Addresses [lanes] of the two elements of a register."""
    lane = machine.lane % machine.warp
    first = machine.lane - lane + 8 * matrix
    quad, pair = lane // 4, 2 * (lane % 4)
    if trans:
        return [rows[first + pair + i] + (2 * quad).astype(rows.dtype) for i in range(2)]
    return [rows[first + quad] + (2 * (pair + i)).astype(rows.dtype) for i in range(2)]


def _lanes(machine: Machine, active: Active, b: Build) -> Array:
    """Those that take part: whole warps."""
    machine.whole_warps(active, b.base)
    return machine.lane if active is None else np.flatnonzero(active)


def load(b: Build) -> Effect:
    """ldmatrix."""
    count, trans = _shape(b)
    writes = [b.write(p, "b32") for p in (b.operands[0].vector or (b.operands[0],))]
    address = memory_address(b, b.operands[1], "shared")
    if len(writes) != count:
        raise b.refuse()

    def effect(machine: Machine, active: Active) -> None:
        lanes, rows = _lanes(machine, active, b), machine.wide(address(machine))
        found = []
        for matrix in range(count):
            low, high = (machine.shared.load(lanes, at[lanes], 2) for at in _halves(machine, rows, matrix, trans))
            words = np.zeros(machine.lanes, np.uint32)
            words[lanes] = low.astype(np.uint32) | high.astype(np.uint32) << np.uint32(16)
            found.append(words)
        for write, words in zip(writes, found, strict=True):
            write(machine, words, active)

    return effect


def store(b: Build) -> Effect:
    """stmatrix."""
    count, trans = _shape(b)
    reads = [b.read(p, "b32") for p in (b.operands[1].vector or (b.operands[1],))]
    address = memory_address(b, b.operands[0], "shared")
    if len(reads) != count:
        raise b.refuse()

    def effect(machine: Machine, active: Active) -> None:
        lanes, rows = _lanes(machine, active, b), machine.wide(address(machine))
        for matrix, read in enumerate(reads):
            words = machine.wide(read(machine))[lanes]
            for i, at in enumerate(_halves(machine, rows, matrix, trans)):
                machine.shared.store(lanes, at[lanes], (words >> np.uint32(16 * i)).astype(np.uint16))

    return effect


OPCODES: dict[str, Builder] = {"ldmatrix": load, "stmatrix": store}
