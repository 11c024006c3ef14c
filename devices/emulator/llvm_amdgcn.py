"""AMD's intrinsics: numbers of threads, lanes of a wave, conversions to and from fp8, MODE."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.devices.emulator.engine import Machine
from narrowgauge.devices.emulator.llvm_build import OVERFLOW, Build, Builder, Effect, nothing
from narrowgauge.devices.emulator.llvm_integer import ones as _ones
from narrowgauge.devices.emulator.llvm_text import HELD, Part, bits
from narrowgauge.devices.emulator.memory import Active, Array
from narrowgauge.devices.emulator.models import lanes
from narrowgauge.devices.targets import TARGETS

#: the parameter that holds the address of the hidden arguments
HIDDEN = "hidden arguments"
#: s_setreg: register 1 (MODE), from bit 23 on, one bit
_FP16_OVFL = 1 | 23 << 6 | 0 << 11


def special(name: str) -> Builder:
    """A number of the thread or block."""
    return lambda b: _once(b, lambda machine: machine.special(name))


def wave_number(b: Build) -> Effect:
    """llvm.amdgcn.wave.id: within the block."""
    return _once(b, lambda machine: (machine.lane % machine.threads // machine.warp).astype(np.uint32))


def _once(b: Build, function: Callable[[Machine], Array]) -> Effect:
    (name,) = b.registers(b.kinds)
    return lambda machine, active: machine.write(name, function(machine), active)


def set_mode(b: Build) -> Effect:
    """llvm.amdgcn.s.setreg on MODE.FP16_OVFL; other fields change what is not modelled."""
    if b.number(0) != _FP16_OVFL:
        raise NotExecuted(f"opcode {b.opcode} {b.number(0)}")
    value = b.number(1)
    b.named[OVERFLOW] = ()
    return lambda machine, active: machine.write(OVERFLOW, np.array([value & 1], np.uint32), active)


# --- the lanes of a wave ---------------------------------------------------------------------------------------------


def _waves(machine: Machine, part: Part) -> Array:
    """A register as uint32 (waves, lanes)."""
    return machine.wide(part.read(machine)).astype(np.uint32).reshape(-1, machine.warp)


def _active(machine: Machine, active: Active) -> Array:
    here = np.ones(machine.lanes, bool) if active is None else active
    return here.reshape(-1, machine.warp)


def _narrow(b: Build) -> str:
    """The kind of the result, which fits into a register of a lane."""
    if len(b.kinds) != 1 or bits(b.kinds[0]) > 32 or b.kinds[0] == "i1":
        raise NotExecuted(f"opcode {b.opcode} of {b.kinds}")
    return b.kinds[0]


def across(function: Callable[[Machine, Array, list[Part]], Array]) -> Callable[[Build], Effect]:
    """An exchange within waves: ``function(machine, active, arguments)`` gives (waves, lanes) or (waves, 1)."""

    def build(b: Build) -> Effect:
        kind = _narrow(b)
        (name,) = b.registers(b.kinds)
        arguments = [b.scalar(i) for i in range(len(b.arguments))]

        def effect(machine: Machine, active: Active) -> None:
            found = function(machine, _active(machine, active), arguments)
            wide = np.broadcast_to(found, (found.shape[0], machine.warp)).reshape(-1)
            machine.write(name, wide.astype(HELD[kind]), active)

        return effect

    return build


def _first_lane(machine: Machine, active: Array, arguments: list[Part]) -> Array:
    return lanes.readfirstlane(_waves(machine, arguments[0]), active)[:, None]


def _lane(machine: Machine, active: Array, arguments: list[Part]) -> Array:
    number = lanes.readfirstlane(_waves(machine, arguments[1]), active).astype(np.int64)
    return lanes.readlane(_waves(machine, arguments[0]), number)[:, None]


def _pull(machine: Machine, active: Array, arguments: list[Part]) -> Array:
    return lanes.ds_bpermute(_waves(machine, arguments[0]), _waves(machine, arguments[1]), active)


def _push(machine: Machine, active: Array, arguments: list[Part]) -> Array:
    return lanes.ds_permute(_waves(machine, arguments[0]), _waves(machine, arguments[1]), active)


def _put(machine: Machine, active: Array, arguments: list[Part]) -> Array:
    value, lane = (lanes.readfirstlane(_waves(machine, part), active) for part in arguments[:2])
    return lanes.writelane(_waves(machine, arguments[2]), value, lane.astype(np.int64))


def _wave(b: Build) -> int:
    return TARGETS[b.target].warp


def dpp(b: Build) -> Effect:
    """llvm.amdgcn.update.dpp(old, source, control, row mask, bank mask, bound_ctrl)."""
    control, rows, banks, bound = (b.number(i) for i in range(2, 6))
    try:
        route = lanes.dpp(control, _wave(b), _wave(b) == 32)
    except BadInput as error:
        raise NotExecuted(f"opcode {b.opcode}: {error}") from error
    return across(
        lambda machine, active, arguments: lanes.update_dpp(
            _waves(machine, arguments[0]), _waves(machine, arguments[1]), route, active, rows, banks, bool(bound)
        )
    )(b)


def swizzle(b: Build) -> Effect:
    """llvm.amdgcn.ds.swizzle; 0 from a lane that is not active."""
    route = lanes.ds_swizzle(b.number(1), _wave(b))
    return across(
        lambda machine, active, arguments: np.where(active, _waves(machine, arguments[0]), np.uint32(0))[
            :, route.source
        ]
    )(b)


def permute16(other_row: bool) -> Builder:
    """llvm.amdgcn.permlane(x)16(old, source, selects below, above, fetch inactive, bound_ctrl)."""

    def build(b: Build) -> Effect:
        low, high, fetch, bound = (b.number(i) for i in range(2, 6))
        route = lanes.permlane16(low, high, _wave(b), other_row)

        def apply(machine: Machine, active: Array, arguments: list[Part]) -> Array:
            old, source = _waves(machine, arguments[0]), _waves(machine, arguments[1])
            absent = np.zeros_like(old) if bound else old
            readable = np.ones_like(active) if fetch else active
            return np.where(readable[:, route.source], source[:, route.source], absent)

        return across(apply)(b)

    return build


def permute64(b: Build) -> Effect:
    """llvm.amdgcn.permlane64."""
    route = lanes.permlane64(_wave(b))
    return across(lambda machine, active, arguments: _waves(machine, arguments[0])[:, route.source])(b)


def swap(size: Any) -> Builder:
    """llvm.amdgcn.permlane16.swap and 32.swap(a, b, fetch inactive, bound_ctrl): both registers."""

    def build(b: Build) -> Effect:
        if b.kinds != ("i32", "i32"):
            raise b.refuse()
        names, first, second = b.registers(b.kinds), b.scalar(0), b.scalar(1)

        def effect(machine: Machine, active: Active) -> None:
            machine.whole_warps(active, b.opcode)
            found = lanes.permlane_swap(_waves(machine, first), _waves(machine, second), size)
            for name, value in zip(names, found, strict=True):
                machine.write(name, value.reshape(-1), active)

        return effect

    return build


# --- others ----------------------------------------------------------------------------------------------------------


def permute_bytes(b: Build) -> Effect:
    """llvm.amdgcn.perm (V_PERM_B32): each byte of the selector names a byte of the second source (0 to 3), of the first
    (4 to 7), the sign of a half (8 to 11), 0x00 (12) or 0xff (above)."""

    def apply(first: Array, second: Array, selector: Array) -> Array:
        both = first.astype(np.uint64) << np.uint64(32) | second.astype(np.uint64)
        whole = np.zeros(1, np.uint32)
        for place in range(4):
            select = (selector >> np.uint32(8 * place) & np.uint32(0xFF)).astype(np.uint64)
            byte = both >> (np.minimum(select, np.uint64(7)) * np.uint64(8)) & np.uint64(0xFF)
            sign = both >> (np.clip(select.astype(np.int64) - 8, 0, 3) * 16 + 15).astype(np.uint64) & np.uint64(1)
            byte = np.select(
                [select < 8, select < 12, select == 12], [byte, sign * np.uint64(0xFF), np.uint64(0)], np.uint64(0xFF)
            )
            whole = whole | byte.astype(np.uint32) << np.uint32(8 * place)
        return whole

    return b.compute(b.kinds, apply, *b.arguments)


def ballot(b: Build) -> Effect:
    """llvm.amdgcn.ballot: a bit for each active lane of the wave that says so."""
    if b.kinds not in (("i64",), ("i32",)):
        raise b.refuse()
    (name,), said, held = b.registers(b.kinds), b.scalar(0), HELD[b.kinds[0]]

    def effect(machine: Machine, active: Active) -> None:
        votes = machine.wide(said.read(machine)).reshape(-1, machine.warp) & _active(machine, active)
        weights = np.uint64(1) << np.arange(machine.warp, dtype=np.uint64)
        whole = (votes * weights).sum(axis=1, dtype=np.uint64)
        machine.write(name, np.repeat(whole, machine.warp).astype(held), active)

    return effect


def count_below(high: bool) -> Builder:
    """llvm.amdgcn.mbcnt.lo and .hi(mask, count): bits of the mask below this lane, of 32 lanes."""

    def build(b: Build) -> Effect:
        (name,), mask, count = b.registers(b.kinds), b.scalar(0), b.scalar(1)

        def effect(machine: Machine, active: Active) -> None:
            lane = (machine.lane % machine.threads % machine.warp).astype(np.int64) - (32 if high else 0)
            below = ((np.uint64(1) << np.clip(lane, 0, 32).astype(np.uint64)) - np.uint64(1)).astype(np.uint32)
            found = _ones(mask.read(machine) & below)
            machine.write(name, (count.read(machine) + found).astype(np.uint32), active)

        return effect

    return build


def hidden_arguments(b: Build) -> Effect:
    """llvm.amdgcn.implicitarg.ptr: the address of what a launch passes unseen."""
    (name,) = b.registers(b.kinds)
    return lambda machine, active: machine.write(name, np.frombuffer(machine.parameters[HIDDEN], np.uint64), active)


def wave_barrier(b: Build) -> Effect:
    """llvm.amdgcn.wave.barrier: accesses of a wave to shared memory are in order from here on."""

    def effect(machine: Machine, active: Active) -> None:
        machine.shared.warp_barrier(machine.lane if active is None else np.flatnonzero(active))

    return effect


def _hint(b: Build) -> Effect:
    return nothing


CALLS: dict[str, Builder] = {
    **{f"llvm.amdgcn.workitem.id.{axis}": special(f"tid.{axis}") for axis in "xyz"},
    **{f"llvm.amdgcn.workgroup.id.{axis}": special(f"ctaid.{axis}") for axis in "xyz"},
    "llvm.amdgcn.wave.id": wave_number,
    "llvm.amdgcn.s.setreg": set_mode,
    "llvm.amdgcn.ballot": ballot,
    "llvm.amdgcn.wave.barrier": wave_barrier,
    "llvm.amdgcn.mbcnt.lo": count_below(False),
    "llvm.amdgcn.mbcnt.hi": count_below(True),
    "llvm.amdgcn.implicitarg.ptr": hidden_arguments,
    "llvm.amdgcn.readfirstlane": across(_first_lane),
    "llvm.amdgcn.readlane": across(_lane),
    "llvm.amdgcn.writelane": across(_put),
    "llvm.amdgcn.ds.bpermute": across(_pull),
    "llvm.amdgcn.ds.permute": across(_push),
    "llvm.amdgcn.update.dpp": dpp,
    "llvm.amdgcn.ds.swizzle": swizzle,
    "llvm.amdgcn.permlane16": permute16(False),
    "llvm.amdgcn.permlanex16": permute16(True),
    "llvm.amdgcn.permlane64": permute64,
    "llvm.amdgcn.permlane16.swap": swap(16),
    "llvm.amdgcn.permlane32.swap": swap(32),
    "llvm.amdgcn.perm": permute_bytes,
    **dict.fromkeys(
        (
            "llvm.amdgcn.s.barrier.signal",  # the wait that follows is the barrier
            "llvm.amdgcn.sched.barrier", "llvm.amdgcn.sched.group.barrier", "llvm.amdgcn.s.setprio",
            "llvm.amdgcn.s.waitcnt", "llvm.amdgcn.iglp.opt", "llvm.assume",
        ),
        _hint,
    ),
}  # fmt: skip
