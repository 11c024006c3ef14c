"""Opcodes of PTX that reach beyond a thread: memory, and the other lanes of a warp."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from narrowgauge.devices.emulator.engine import Machine
from narrowgauge.devices.emulator.memory import UNSIGNED, Active, Array, Fault, in_turn
from narrowgauge.devices.emulator.models import ptx_arithmetic
from narrowgauge.devices.emulator.ptx_operands import TYPES, Build, Builder, Effect, Operand, Reader

#: hints that change no value
HINTS = (
    "weak", "nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "L1_evict_last", "L1_evict_first", "L1_evict_normal",
    "L1_no_allocate", "L1_evict_unchanged", "L2_64B", "L2_128B", "L2_256B",
)  # fmt: skip
WORDS = (*(f"{kind}{bits}" for kind in "bus" for bits in (8, 16, 32, 64)), "f32", "f64", "f16", "bf16")
ALL_LANES = 0xFFFFFFFF


def _space(b: Build) -> tuple[str, str, int]:
    """State space, type of a word, and how many words."""
    space = b.flag("param", "global", "shared", "shared_cta", "local")
    while b.flag(*HINTS):
        pass
    count = int((b.flag("v2", "v4", "v8") or "v1")[1:])
    kind = b.type(*WORDS)
    if not space:
        raise b.refuse()
    return space.removesuffix("_cta"), kind, count


def _parts(operand: Operand, count: int, b: Build) -> tuple[Operand, ...]:
    parts = operand.vector or (operand,)
    if len(parts) != count:
        raise b.refuse()
    return parts


def _address(b: Build, operand: Operand, space: str) -> Reader:
    if not operand.address:
        raise b.refuse()
    kind = "u64" if space == "global" or operand.type == "b64" else "u32"
    base = b.read(Operand(operand.register, operand.type, operand.value, symbol=operand.symbol), kind)
    offset = np.array([operand.offset & (1 << 8 * TYPES[kind].itemsize) - 1], TYPES[kind])
    return (lambda machine: base(machine) + offset) if operand.offset else base


def shared_address(b: Build, operand: Operand) -> Reader:
    """An address in shared memory."""
    return _address(b, operand, "shared")


def load(b: Build) -> Effect:
    """ld from parameters, global, shared and local memory."""
    space, kind, count = _space(b)
    if len(b.operands) != 2:
        raise b.refuse()
    writes = [b.write(p, kind) for p in _parts(b.operands[0], count, b)]
    dtype, width, source = TYPES[kind], TYPES[kind].itemsize, b.operands[1]
    if space == "param":

        def parameter(machine: Machine, active: Active) -> None:
            held = machine.parameters[source.symbol]
            for i, write in enumerate(writes):
                at = source.offset + i * width
                write(machine, np.frombuffer(held[at : at + width], dtype), active)

        return parameter
    address = _address(b, source, space)

    def effect(machine: Machine, active: Active) -> None:
        at, lanes, here = _lanes(machine, address(machine), active, space)
        for i, write in enumerate(writes):
            step = here + here.dtype.type(i * width)
            memory = machine.memory
            if space == "global":
                words = memory.load(step, width)
            else:
                words = (machine.local if space == "local" else machine.shared).load(lanes, step, width)
            if active is not None:
                full = np.zeros(machine.lanes, words.dtype)
                full[at] = words
                words = full
            write(machine, words.view(dtype), active)

    return effect


def store(b: Build) -> Effect:
    """st to global, shared and local memory."""
    space, kind, count = _space(b)
    if space == "param" or len(b.operands) != 2:
        raise b.refuse()
    unsigned = f"u{8 * TYPES[kind].itemsize}"
    reads = [b.read(p, unsigned) for p in _parts(b.operands[1], count, b)]
    width, address = TYPES[kind].itemsize, _address(b, b.operands[0], space)

    def effect(machine: Machine, active: Active) -> None:
        at, lanes, here = _lanes(machine, machine.wide(address(machine)), active, space)
        for i, read in enumerate(reads):
            words = machine.wide(read(machine))
            words = words if active is None else words[at]
            step = here + here.dtype.type(i * width)
            if space == "global":
                machine.memory.store(step, words)
            else:
                (machine.local if space == "local" else machine.shared).store(lanes, step, words)

    return effect


def _lanes(machine: Machine, address: Array, active: Active, space: str) -> tuple[Array, Array, Array]:
    """The active lanes, and their addresses. One address for all lanes of global memory stays one."""
    if active is None:
        wide = address if space == "global" else machine.wide(address)
        return machine.lane, machine.lane, wide
    at = np.flatnonzero(active)
    return at, at, machine.wide(address)[at]


_ATOMIC: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "exch": lambda old, new: new,
}  # fmt: skip


def atomic(b: Build) -> Effect:
    """atom and red. Lanes go in the order of their numbers: one of many that hardware takes."""
    for hints in (("relaxed", "acquire", "release", "acq_rel"), ("cta", "gpu", "sys")):
        b.flag(*hints)
    space = b.flag("global", "shared")
    count = int((b.flag("v2", "v4") or "v1")[1:])
    name = b.flag(*_ATOMIC, "cas")
    count = max(count, int((b.flag("v2", "v4") or "v1")[1:]))
    if not space or not name:
        raise b.refuse()
    kind = b.type(
        *("b32", "b64") if name in ("exch", "cas", "and", "or", "xor") else ("u32", "s32", "u64", "s64", "f32", "f64")
    )
    first = 1 if b.base == "atom" else 0
    if len(b.operands) != first + (3 if name == "cas" else 2) or (kind[0] == "f" and name != "add"):
        raise b.refuse()
    dtype, address = TYPES[kind], _address(b, b.operands[first], space)
    given = [[b.read(p, kind) for p in _parts(o, count, b)] for o in b.operands[first + 1 :]]
    writes = [b.write(p, kind) for p in _parts(b.operands[0], count, b)] if first else []

    def effect(machine: Machine, active: Active) -> None:
        lanes = machine.lane if active is None else np.flatnonzero(active)
        here = machine.wide(address(machine))[lanes]
        for i in range(count):
            values = [machine.wide(each[i](machine))[lanes] for each in given]
            old = np.zeros(machine.lanes, dtype)
            old[lanes] = _changed(machine, space, lanes, here + here.dtype.type(i * dtype.itemsize), name, values)
            if writes:
                writes[i](machine, old, active)

    return effect


def _changed(machine: Machine, space: str, lanes: Array, here: Array, name: str, values: Sequence[Array]) -> Array:
    """Carry out one atomic; what was there before."""
    dtype, words = values[-1].dtype, values[-1].view(UNSIGNED[values[-1].itemsize])
    found = np.zeros(len(lanes), words.dtype)
    for turn in in_turn(here):

        def change(held: Array, new: Array, turn: Array = turn) -> Array:
            if name == "cas":
                return np.where(held.view(dtype) == values[0][turn], new, held)
            return np.asarray(_ATOMIC[name](held.view(dtype), new.view(dtype)), dtype).view(held.dtype)

        if space == "shared":
            found[turn] = machine.shared.atomic(lanes[turn], here[turn], words[turn], change)
        else:
            found[turn] = machine.memory.atomic(here[turn], words[turn], change)
    return found.view(dtype)


def generic(b: Build) -> Effect:
    """cvta to and from global memory, which is where generic addresses point to here; local ones stay what they are."""
    b.flag("to")
    if not b.flag("global", "local"):
        raise b.refuse()
    b.type("u64")
    return b.compute(lambda x: x, "u64", "u64")


# --- the lanes of a warp ---------------------------------------------------------------------------------------------


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
        bits = (votes * (np.uint64(1) << np.arange(machine.warp, dtype=np.uint64))).sum(axis=1).astype(np.uint32)
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


OPCODES: dict[str, Builder] = {
    "ld": load,
    "st": store,
    "cvta": generic,
    "shfl": shuffle,
    "redux": reduce,
    "atom": atomic,
    "bar": warp_barrier,
    "vote": vote,
    "red": atomic,
}
