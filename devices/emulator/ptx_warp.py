"""Opcodes of PTX that reach the other lanes of a warp."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from narrowgauge.devices.emulator.engine import Machine
from narrowgauge.devices.emulator.memory import Active, Array, Fault
from narrowgauge.devices.emulator.models import ptx_arithmetic
from narrowgauge.devices.emulator.ptx_operands import Build, Builder, Effect

ALL_LANES = 0xFFFFFFFF


def _mask(b: Build, index: int) -> Callable[[Machine, Active], None]:
    """Check that all lanes of every warp take part, which is what Triton asks for."""
    mask = b.reader(index, "b32")

    def check(machine: Machine, active: Active) -> None:
        part: Array = mask(machine) != ALL_LANES
        if (part if active is None else part & active).any():  # what is held by lanes elsewhere says nothing
            raise Fault("members of a warp that are not all its lanes: not modelled")
        machine.whole_warps(active, b.base)

    return check


def shuffle(b: Build) -> Effect:
    """shfl.sync: the value of another lane of the warp; its own where that lies outside of the segment."""
    if not b.flag("sync"):
        raise b.refuse()
    mode = b.flag("up", "down", "bfly", "idx")
    b.type("b32")
    with_predicate = len(b.operands) == 6
    first = 2 if with_predicate else 1
    if not mode or len(b.operands) != first + 4:
        raise b.refuse()
    check = _mask(b, first + 3)
    value, by, clamp = (b.reader(first + i, "u32") for i in range(3))
    write, tell = b.writer(0, "b32"), b.writer(1, "pred") if with_predicate else None

    def effect(machine: Machine, active: Active) -> None:
        check(machine, active)
        lane = machine.lane % machine.warp
        amount, c = by(machine).astype(np.int64) & 31, clamp(machine).astype(np.int64)
        segment, limit = c >> 8 & 31, c & 31
        low = lane & segment
        high = low | limit & ~segment
        match mode:
            case "up":
                source = lane - amount
                inside = source >= high
            case "down":
                source = lane + amount
                inside = source <= high
            case "bfly":
                source = lane ^ amount
                inside = source <= high
            case _:
                source = low | amount & ~segment
                inside = source <= high
        chosen = np.where(inside, source, lane) + (machine.lane - lane)
        write(machine, machine.wide(value(machine))[chosen], active)
        if tell is not None:
            tell(machine, np.broadcast_to(inside, (machine.lanes,)), active)

    return effect


def warp_barrier(b: Build) -> Effect:
    """bar.warp.sync: accesses of a warp to shared memory are in order from here on."""
    if b.modifiers != ["warp", "sync"] or len(b.operands) != 1:
        raise b.refuse()
    b.modifiers.clear()
    check = _mask(b, 0)

    def effect(machine: Machine, active: Active) -> None:
        check(machine, active)
        machine.shared.warp_barrier(machine.lane if active is None else np.flatnonzero(active))

    return effect


def vote(b: Build) -> Effect:
    """vote.sync: all, any, uni of a predicate over a warp, or a bit for each lane."""
    if not b.flag("sync"):
        raise b.refuse()
    how = b.flag("all", "any", "uni", "ballot")
    b.type("b32" if how == "ballot" else "pred")
    if not how or len(b.operands) != 3:
        raise b.refuse()
    check, said = _mask(b, 2), b.reader(1, "pred")
    write = b.writer(0, "b32" if how == "ballot" else "pred")

    def effect(machine: Machine, active: Active) -> None:
        check(machine, active)
        votes = machine.wide(said(machine)).reshape(-1, machine.warp)
        every, some = votes.all(axis=1), votes.any(axis=1)
        bits = _bits(votes)
        found = {"all": every, "any": some, "uni": every | ~some, "ballot": bits}[how]
        write(machine, np.repeat(found, machine.warp), active)

    return effect


_REDUCE: dict[str, np.ufunc] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}  # fmt: skip


def reduce(b: Build) -> Effect:
    """redux.sync: one value of all lanes of the warp; of floats min and max, with .abs and .NaN."""
    if not b.flag("sync"):
        raise b.refuse()
    name, absolute, nan = b.flag(*_REDUCE), b.flag("abs"), b.flag("NaN")
    kind = b.type("u32", "s32", "b32", "f32")
    if (
        not name
        or (kind == "f32") != (name in ("min", "max") and kind == "f32")
        or ((absolute or nan) and kind != "f32")
    ):
        raise b.refuse()
    check, value, write = _mask(b, 2), b.reader(1, kind), b.writer(0, kind)

    def effect(machine: Machine, active: Active) -> None:
        check(machine, active)
        rows = machine.wide(value(machine)).reshape(-1, machine.warp)
        if kind == "f32":
            found = _reduce_floats(np.abs(rows) if absolute else rows, name, bool(nan))
        else:
            found = _REDUCE[name].reduce(rows, axis=1, dtype=rows.dtype)
        write(machine, np.repeat(found, machine.warp), active)

    return effect


def _reduce_floats(rows: Array, name: str, nan: bool) -> Array:
    function: Callable[[Array, Array], Array] = ptx_arithmetic.minimum if name == "min" else ptx_arithmetic.maximum
    function = ptx_arithmetic.propagating(function) if nan else function
    while rows.shape[1] > 1:
        half = rows.shape[1] // 2
        rows = function(rows[:, :half], rows[:, half:])
    return rows[:, 0]


def match_lanes(b: Build) -> Effect:
    """match.any: a bit for each lane of the warp that has the same value; match.all: all bits, or none of them."""
    how = b.flag("any", "all")
    if not b.flag("sync") or not how:
        raise b.refuse()
    kind = b.type("b32", "b64")
    first = len(b.operands) - 2
    if first not in ((1,) if how == "any" else (1, 2)):
        raise b.refuse()
    check, value = _mask(b, first + 1), b.reader(first, kind)
    write, tell = b.writer(0, "b32"), b.writer(1, "pred") if first == 2 else None

    def effect(machine: Machine, active: Active) -> None:
        check(machine, active)
        rows = machine.wide(value(machine)).reshape(-1, machine.warp)
        same = rows[:, :, None] == rows[:, None, :]
        if how == "all":
            same &= same.all(axis=(1, 2))[:, None, None]
        write(machine, _bits(same).reshape(-1), active)
        if tell is not None:
            tell(machine, same.all(axis=2).reshape(-1), active)

    return effect


def elect(b: Build) -> Effect:
    """elect.sync: the leader of the warp, here its first lane; the ISA leaves open which lane it is."""
    if not b.flag("sync") or len(b.operands) != 3:
        raise b.refuse()
    check, write, tell = _mask(b, 2), b.writer(0, "b32"), b.writer(1, "pred")

    def effect(machine: Machine, active: Active) -> None:
        check(machine, active)
        write(machine, np.zeros(1, np.uint32), active)
        tell(machine, machine.lane % machine.warp == 0, active)

    return effect


def active_mask(b: Build) -> Effect:
    """activemask: the lanes of the warp that carry this out together."""
    b.type("b32")
    write = b.writer(0, "b32")

    def effect(machine: Machine, active: Active) -> None:
        here = np.ones(machine.lanes, bool) if active is None else active
        write(machine, np.repeat(_bits(here.reshape(-1, machine.warp)), machine.warp), active)

    return effect


def _bits(lanes: Array) -> Array:
    """Bit i for lane i, from booleans [..., warp]."""
    found: Array = (lanes * (np.uint64(1) << np.arange(lanes.shape[-1], dtype=np.uint64))).sum(axis=-1)
    return found.astype(np.uint32)


OPCODES: dict[str, Builder] = {
    "shfl": shuffle,
    "redux": reduce,
    "bar": warp_barrier,
    "vote": vote,
    "match": match_lanes,
    "elect": elect,
    "activemask": active_mask,
}
