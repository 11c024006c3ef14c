"""Opcodes of PTX that load and store."""

from __future__ import annotations

import numpy as np

from narrowgauge.devices.emulator.engine import Machine
from narrowgauge.devices.emulator.memory import Active, Array
from narrowgauge.devices.emulator.ptx_operands import TYPES, Build, Builder, Effect, Operand, Reader

#: hints that change no value
HINTS = (
    "weak", "volatile", "relaxed", "acquire", "release", "cta", "cluster", "gpu", "sys",
    "nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "L1_evict_last", "L1_evict_first", "L1_evict_normal",
    "L1_no_allocate", "L1_evict_unchanged", "L2_64B", "L2_128B", "L2_256B",
    "L2_evict_last", "L2_evict_first", "L2_evict_normal",
)  # fmt: skip
#: with these, an access is how threads of several blocks get in step
IN_ORDER = frozenset(("volatile", "relaxed", "acquire", "release"))
WORDS = (*(f"{kind}{bits}" for kind in "bus" for bits in (8, 16, 32, 64)), "f32", "f64", "f16", "bf16")
POLICY = "L2_cache_hint"  #: the last operand is a policy, which changes no value


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


def parts(operand: Operand, count: int, b: Build) -> tuple[Operand, ...]:
    """The elements of a vector, or the operand itself."""
    found = operand.vector or (operand,)
    if len(found) != count:
        raise b.refuse()
    return found


def memory_address(b: Build, operand: Operand, space: str) -> Reader:
    """An address in a state space."""
    if not operand.address:
        raise b.refuse()
    kind = "u64" if space == "global" or operand.type == "b64" else "u32"
    base = b.read(Operand(operand.register, operand.type, operand.value, symbol=operand.symbol), kind)
    offset = np.array([operand.offset & (1 << 8 * TYPES[kind].itemsize) - 1], TYPES[kind])
    return (lambda machine: base(machine) + offset) if operand.offset else base


def load(b: Build) -> Effect:
    """ld from parameters, global, shared and local memory."""
    in_order = bool(IN_ORDER.intersection(b.modifiers))
    space, kind, count = _space(b)
    if len(b.operands) != (3 if b.flag(POLICY) else 2):
        raise b.refuse()
    writes = [b.write(p, kind) for p in parts(b.operands[0], count, b)]
    dtype, width, source = TYPES[kind], TYPES[kind].itemsize, b.operands[1]
    if space == "param":

        def parameter(machine: Machine, active: Active) -> None:
            held = machine.parameters[source.symbol]
            for i, write in enumerate(writes):
                at = source.offset + i * width
                write(machine, np.frombuffer(held[at : at + width], dtype), active)

        return parameter
    address = memory_address(b, source, space)

    def effect(machine: Machine, active: Active) -> None:
        at, lanes, here = _lanes(machine, address(machine), active, space)
        who = _accessing(machine, lanes, in_order)
        for i, write in enumerate(writes):
            step = here + here.dtype.type(i * width)
            memory = machine.memory
            if space == "global":
                words = memory.load(step, width, who)
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
    in_order = bool(IN_ORDER.intersection(b.modifiers))
    space, kind, count = _space(b)
    if space == "param" or len(b.operands) != (3 if b.flag(POLICY) else 2):
        raise b.refuse()
    unsigned = f"u{8 * TYPES[kind].itemsize}"
    reads = [b.read(p, unsigned) for p in parts(b.operands[1], count, b)]
    width, address = TYPES[kind].itemsize, memory_address(b, b.operands[0], space)

    def effect(machine: Machine, active: Active) -> None:
        at, lanes, here = _lanes(machine, machine.wide(address(machine)), active, space)
        who = _accessing(machine, lanes, in_order)
        for i, read in enumerate(reads):
            words = machine.wide(read(machine))
            words = words if active is None else words[at]
            step = here + here.dtype.type(i * width)
            if space == "global":
                machine.memory.store(step, words, who)
            else:
                (machine.local if space == "local" else machine.shared).store(lanes, step, words)

    return effect


def _accessing(machine: Machine, lanes: Array, in_order: bool) -> Array | None:
    """Whose access may race: nobody's, where it is how blocks get in step with others."""
    if not in_order:
        return lanes
    machine.memory.accesses.in_step(lanes)
    return None


def _lanes(machine: Machine, address: Array, active: Active, space: str) -> tuple[Array, Array, Array]:
    """The active lanes, and their addresses. One address for all lanes of global memory stays one."""
    if active is None:
        wide = address if space == "global" else machine.wide(address)
        return machine.lane, machine.lane, wide
    at = np.flatnonzero(active)
    return at, at, machine.wide(address)[at]


def policy(b: Build) -> Effect:
    """createpolicy: 64 bits for other instructions, here zero."""
    while b.flag("fractional", *HINTS):
        pass
    b.type("b64")
    write, zero = b.writer(0, "b64"), np.zeros(1, np.uint64)
    return lambda machine, active: write(machine, zero, active)


def hint(b: Build) -> Effect:
    """prefetch, fence, membar, nanosleep: nothing is computed, and the engine has one order of all accesses."""
    b.modifiers.clear()
    return lambda machine, active: None


def generic(b: Build) -> Effect:
    """cvta to and from global memory, which is where generic addresses point to here; local ones stay what they are."""
    b.flag("to")
    if not b.flag("global", "local"):
        raise b.refuse()
    b.type("u64")
    return b.compute(lambda x: x, "u64", "u64")


OPCODES: dict[str, Builder] = {
    "ld": load,
    "st": store,
    "cvta": generic,
    "createpolicy": policy,
    "prefetch": hint,
    "fence": hint,
    "membar": hint,
    "nanosleep": hint,
}
