"""LLVM instructions on memory: addresses, loads and stores of global and shared memory, AMD's buffers."""

from __future__ import annotations

import numpy as np

from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.devices.emulator.engine import Machine
from narrowgauge.devices.emulator.llvm_build import Build, Builder, Effect, Function, chosen, nothing
from narrowgauge.devices.emulator.llvm_integer import promises, signed
from narrowgauge.devices.emulator.llvm_text import HELD, Part, Tokens, Value, bits
from narrowgauge.devices.emulator.memory import UNSIGNED, Active, Array, in_turn

GLOBAL, SHARED = ("p0", "p1", "p4"), "p3"


def place(b: Build) -> Effect:
    """getelementptr with one index."""
    promises(b)
    unit = b.tokens.type()
    b.tokens.expect(",")
    base = b.tokens.typed()
    b.tokens.expect(",")
    index = b.tokens.typed()
    if len(index) != 1 or len(base) != 1 or b.tokens.left or base[0].kind not in (*GLOBAL, SHARED):
        raise b.refuse()
    held = HELD[base[0].kind]
    size = held.type(sum(width_of(kind) for kind in unit))
    narrow, wide = signed(index[0].kind), np.dtype(f"i{held.itemsize}")

    def apply(address: Array, steps: Array) -> Array:
        found: Array = address + steps.view(narrow).astype(wide).view(held) * size
        return found

    return b.compute((base[0].kind,), apply, base, index)


def width_of(kind: str) -> int:
    """Bytes of a part in memory."""
    if bits(kind) < 8 or kind in ("p8", "records"):
        raise NotExecuted(f"{kind} in memory")
    return HELD[kind].itemsize


def _plain(tokens: Tokens) -> Part:
    """The address of an ordinary access."""
    (address,) = tokens.typed()
    if address.kind not in (*GLOBAL, SHARED):
        raise tokens.refuse()
    while tokens.accept(","):
        if tokens.take() != "align":
            raise tokens.refuse()
        tokens.take()
    if tokens.left:  # volatile, atomic
        raise tokens.refuse()
    return address


def load(b: Build) -> Effect:
    """load: part by part."""
    kinds = b.tokens.type()
    b.tokens.expect(",")
    address = _plain(b.tokens)
    widths, names = [width_of(kind) for kind in kinds], b.registers(kinds)

    def effect(machine: Machine, active: Active) -> None:
        lanes = chosen(machine, active)
        here = machine.wide(address.read(machine))[lanes]
        step = 0
        for name, width, kind in zip(names, widths, kinds, strict=True):
            at = here + here.dtype.type(step)
            words = (
                machine.shared.load(lanes, at, width)
                if address.kind == SHARED
                else machine.memory.load(at, width, lanes)
            )
            _spread(machine, active, name, lanes, words.view(HELD[kind]))
            step += width

    return effect


def _spread(machine: Machine, active: Active, name: str, lanes: Array, words: Array) -> None:
    """Write a register from the words of the active lanes."""
    if active is not None:
        full = np.zeros(machine.lanes, words.dtype)
        full[lanes] = words
        words = full
    machine.write(name, words, active)


def store(b: Build) -> Effect:
    """store: part by part."""
    value = b.tokens.typed()
    b.tokens.expect(",")
    address = _plain(b.tokens)
    widths = [width_of(part.kind) for part in value]

    def effect(machine: Machine, active: Active) -> None:
        lanes = chosen(machine, active)
        here = machine.wide(address.read(machine))[lanes]
        step = 0
        for part, width in zip(value, widths, strict=True):
            words = machine.wide(part.read(machine))[lanes].view(UNSIGNED[width])
            at = here + here.dtype.type(step)
            if address.kind == SHARED:
                machine.shared.store(lanes, at, words)
            else:
                machine.memory.store(at, words, lanes)
            step += width

    return effect


# --- buffers ---------------------------------------------------------------------------------------------------------


def make_buffer(b: Build) -> None:
    """llvm.amdgcn.make.buffer.rsrc with stride 0: an address and a number of bytes."""
    (base,), records = b.arguments[0], b.scalar(2)
    if b.number(1) != 0:
        raise NotExecuted(f"opcode {b.opcode} with a stride")
    if bits(records.kind) == 64:
        read = records.read
    else:

        def read(machine: Machine) -> Array:
            return records.read(machine).astype(np.uint64)

    b.alias((Part("p8", base.read), Part("records", read)))


def _buffer(b: Build, first: int) -> tuple[Part, Part, Part, Part]:
    """Base, size, and the two offsets of a raw access. The last argument is a hint for caches."""
    if len(b.arguments[first]) != 2 or len(b.arguments) != first + 4:
        raise b.refuse()
    b.number(first + 3)
    base, size = b.arguments[first]
    return base, size, b.scalar(first + 1), b.scalar(first + 2)


def _inside(machine: Machine, parts: tuple[Part, Part, Part, Part], step: int, width: int) -> tuple[Array, Array]:
    """Which lanes are within the buffer, and their addresses. Out of range is what does not fit whole."""
    base, size, offset, scalar = (machine.wide(part.read(machine)) for part in parts)
    at = offset.astype(np.uint64) + np.uint64(step)
    return at + np.uint64(width) <= size, base + at + scalar.astype(np.uint64)


def buffer_load(b: Build) -> Effect:
    """llvm.amdgcn.raw.ptr.buffer.load: 0 out of range, checked for each part."""
    parts, names = _buffer(b, 0), b.registers(b.kinds)
    kinds, widths = b.kinds, [width_of(kind) for kind in b.kinds]

    def effect(machine: Machine, active: Active) -> None:
        step = 0
        for name, width, kind in zip(names, widths, kinds, strict=True):
            inside, address = _inside(machine, parts, step, width)
            lanes = np.flatnonzero(inside if active is None else inside & active)
            if len(lanes) == machine.lanes:
                words = machine.memory.load(address, width, lanes)
            else:
                words = np.zeros(machine.lanes, UNSIGNED[width])
                words[lanes] = machine.memory.load(address[lanes], width, lanes)
            machine.write(name, words.view(HELD[kind]), active)
            step += width

    return effect


def buffer_store(b: Build) -> Effect:
    """llvm.amdgcn.raw.ptr.buffer.store: nothing out of range, checked for each part."""
    value: Value = b.arguments[0]
    parts, widths = _buffer(b, 1), [width_of(part.kind) for part in b.arguments[0]]

    def effect(machine: Machine, active: Active) -> None:
        step = 0
        for part, width in zip(value, widths, strict=True):
            inside, address = _inside(machine, parts, step, width)
            lanes = np.flatnonzero(inside if active is None else inside & active)
            words = machine.wide(part.read(machine))[lanes].view(UNSIGNED[width])
            machine.memory.store(address[lanes], words, lanes)
            step += width

    return effect


def _fence(b: Build) -> Effect:
    """fence: the engine has one order of all accesses."""
    b.tokens.left.clear()
    return nothing


# --- atomics ---------------------------------------------------------------------------------------------------------


def _float(function: Function) -> Function:
    """Of numbers that are held as patterns."""
    dtypes = {2: np.float16, 4: np.float32, 8: np.float64}

    def change(old: Array, new: Array) -> Array:
        number = dtypes[old.itemsize]
        return np.asarray(function(old.view(number), new.view(number)), number).view(old.dtype)

    return change


def _on_signed(function: Function) -> Function:
    def change(old: Array, new: Array) -> Array:
        whole = np.dtype(f"i{old.itemsize}")
        return np.asarray(function(old.view(whole), new.view(whole)), whole).view(old.dtype)

    return change


def _exchange(old: Array, new: Array) -> Array:
    return new


ATOMIC: dict[str, Function] = {
    "xchg": _exchange, "swap": _exchange, "add": np.add, "sub": np.subtract, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "max": _on_signed(np.maximum), "min": _on_signed(np.minimum),
    "smax": _on_signed(np.maximum), "smin": _on_signed(np.minimum), "umax": np.maximum, "umin": np.minimum,
    "fadd": _float(np.add), "fsub": _float(np.subtract), "fmax": _float(np.fmax), "fmin": _float(np.fmin),
}  # fmt: skip


def _atomic_place(b: Build) -> Part:
    (address,) = b.tokens.typed()
    b.tokens.expect(",")
    if address.kind not in (*GLOBAL, SHARED):
        raise b.refuse()
    return address


def _atomic(b: Build, address: Part, new: Part, change: Function) -> Effect:
    """Lanes go in the order of their numbers: one of many that hardware takes."""
    (name,) = b.registers((new.kind,))
    width = width_of(new.kind)

    def effect(machine: Machine, active: Active) -> None:
        lanes = chosen(machine, active)
        here = machine.wide(address.read(machine))[lanes]
        words = machine.wide(new.read(machine))[lanes].view(UNSIGNED[width])
        if address.kind == SHARED:
            old = machine.shared.atomic(lanes, here, words, change)
        else:
            old = machine.memory.atomic(here, words, change, lanes)
        _spread(machine, active, name, lanes, old.view(HELD[new.kind]))

    return effect


def read_modify_write(b: Build) -> Effect:
    """atomicrmw; its scope and ordering are those of the engine, which has one order of all accesses."""
    b.tokens.accept("volatile")
    change = ATOMIC.get(b.tokens.take())
    if change is None:
        raise b.refuse()
    address = _atomic_place(b)
    (new,) = b.tokens.typed()
    b.tokens.left.clear()
    return _atomic(b, address, new, change)


def compare_exchange(b: Build) -> Effect:
    """cmpxchg: what was there, and whether it was what was expected."""
    b.tokens.accept("weak")
    b.tokens.accept("volatile")
    address = _atomic_place(b)
    (old,) = b.tokens.typed()
    b.tokens.expect(",")
    (new,) = b.tokens.typed()
    b.tokens.left.clear()
    names, width = b.registers((new.kind, "i1")), width_of(new.kind)

    def effect(machine: Machine, active: Active) -> None:
        lanes = chosen(machine, active)
        here = machine.wide(address.read(machine))[lanes]
        expected, words = (machine.wide(p.read(machine))[lanes].view(UNSIGNED[width]) for p in (old, new))
        found = _compared(machine, lanes, here, expected, words, address.kind == SHARED)
        _spread(machine, active, names[0], lanes, found.view(HELD[new.kind]))
        _spread(machine, active, names[1], lanes, found == expected)

    return effect


def _compared(machine: Machine, lanes: Array, at: Array, expected: Array, words: Array, shared: bool) -> Array:
    """Put words where memory holds what is expected, one lane after the other; what was there before."""
    found = np.zeros(len(lanes), words.dtype)
    for turn in in_turn(at):

        def swapped(held: Array, given: Array, turn: Array = turn) -> Array:
            return np.where(held == expected[turn], given, held)

        if shared:
            found[turn] = machine.shared.atomic(lanes[turn], at[turn], words[turn], swapped)
        else:
            found[turn] = machine.memory.atomic(at[turn], words[turn], swapped, lanes[turn])
    return found


def buffer_atomic(change: Function) -> Builder:
    """llvm.amdgcn.raw.ptr.buffer.atomic.OP(value, buffer, offsets): nothing out of range, which returns 0."""

    def build(b: Build) -> Effect:
        (new,), (name,) = b.arguments[0], b.registers(b.kinds)
        parts, width = _buffer(b, 1), width_of(new.kind)

        def effect(machine: Machine, active: Active) -> None:
            inside, address = _inside(machine, parts, 0, width)
            lanes = np.flatnonzero(inside if active is None else inside & active)
            words = machine.wide(new.read(machine))[lanes].view(UNSIGNED[width])
            old = np.zeros(machine.lanes, UNSIGNED[width])
            old[lanes] = machine.memory.atomic(address[lanes], words, change, lanes)
            machine.write(name, old.view(HELD[new.kind]), active)

        return effect

    return build


def buffer_compare_exchange(b: Build) -> Effect:
    """llvm.amdgcn.raw.ptr.buffer.atomic.cmpswap(new, expected, buffer, offsets): what was there; out of range 0."""
    (new,), (old,), (name,) = b.arguments[0], b.arguments[1], b.registers(b.kinds)
    parts, width = _buffer(b, 2), width_of(new.kind)

    def effect(machine: Machine, active: Active) -> None:
        inside, address = _inside(machine, parts, 0, width)
        lanes = np.flatnonzero(inside if active is None else inside & active)
        expected, words = (machine.wide(p.read(machine))[lanes].view(UNSIGNED[width]) for p in (old, new))
        found = np.zeros(machine.lanes, UNSIGNED[width])
        found[lanes] = _compared(machine, lanes, address[lanes], expected, words, False)
        machine.write(name, found.view(HELD[new.kind]), active)

    return effect


OPCODES: dict[str, Builder] = {
    "atomicrmw": read_modify_write, "cmpxchg": compare_exchange,
    "getelementptr": place, "load": load, "store": store, "fence": _fence,
}  # fmt: skip
CALLS: dict[str, Builder] = {
    "llvm.amdgcn.make.buffer.rsrc": make_buffer,
    "llvm.amdgcn.raw.ptr.buffer.load": buffer_load,
    "llvm.amdgcn.raw.ptr.buffer.store": buffer_store,
    **{f"llvm.amdgcn.raw.ptr.buffer.atomic.{name}": buffer_atomic(change) for name, change in ATOMIC.items()},
    "llvm.amdgcn.raw.ptr.buffer.atomic.cmpswap": buffer_compare_exchange,
}
