"""atom and red of PTX: lanes go in the order of their numbers, one of many orders that hardware takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from narrowgauge.devices.emulator.engine import Machine
from narrowgauge.devices.emulator.memory import UNSIGNED, Active, Array, in_turn
from narrowgauge.devices.emulator.models import ptx_arithmetic
from narrowgauge.devices.emulator.models.rounding_ieee import bf16_of, float32_of_bf16
from narrowgauge.devices.emulator.ptx_memory import POLICY, memory_address, parts
from narrowgauge.devices.emulator.ptx_operands import TYPES, Build, Builder, Effect

_OPERATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "exch": lambda old, new: new,
}  # fmt: skip
#: types of a word for each operation
_TYPES = {
    "add": ("u32", "s32", "u64", "s64", "f32", "f64", "f16", "bf16", "f16x2", "bf16x2"),
    **dict.fromkeys(("min", "max"), ("u32", "s32", "u64", "s64", "f16", "bf16", "f16x2", "bf16x2")),
    **dict.fromkeys(("and", "or", "xor"), ("b32", "b64")),
    "exch": ("b32", "b64"),
    "cas": ("b16", "b32", "b64"),
}
#: of a vector, every element is an atomic of its own
_VECTORS = ("v2", "v4", "v8")


def atomic(b: Build) -> Effect:
    """atom and red. Memory order and scope change nothing: the engine has one order of all accesses."""
    for hints in (("relaxed", "acquire", "release", "acq_rel"), ("cta", "cluster", "gpu", "sys")):
        b.flag(*hints)
    space = b.flag("global", "shared", "shared_cta").removesuffix("_cta")
    count = int((b.flag(*_VECTORS) or "v1")[1:])
    name = b.flag(*_TYPES)
    operands = list(b.operands)
    if b.flag(POLICY):
        operands.pop()
    if not space or not name:
        raise b.refuse()
    kind = b.type(*_TYPES[name])
    narrow = "f16" in kind
    first = 1 if b.base == "atom" else 0
    if len(operands) != first + (3 if name == "cas" else 2) or (narrow and bool(b.flag("noftz")) != (name == "add")):
        raise b.refuse()
    width, address = TYPES[kind].itemsize, memory_address(b, operands[first], space)
    unsigned = f"u{8 * width}"
    given = [[b.read(p, unsigned) for p in parts(o, count, b)] for o in operands[first + 1 :]]
    writes = [b.write(p, unsigned) for p in parts(operands[0], count, b)] if first else []
    change = _compared if name == "cas" else _changing(name, kind)

    def effect(machine: Machine, active: Active) -> None:
        lanes = machine.lane if active is None else np.flatnonzero(active)
        here = machine.wide(address(machine))[lanes]
        for i in range(count):
            values = [machine.wide(each[i](machine))[lanes] for each in given]
            old = np.zeros(machine.lanes, UNSIGNED[width])
            old[lanes] = _carry_out(machine, space, lanes, here + here.dtype.type(i * width), change, values)
            if writes:
                writes[i](machine, old, active)

    return effect


def _compared(held: Array, compare: Array, new: Array) -> Array:
    """cas: the new word where the old one is what was expected."""
    return np.where(held == compare, new, held)


def _changing(name: str, kind: str) -> Callable[..., Array]:
    """The operation on words of a type."""
    if name in ("min", "max") and "f16" in kind:
        function: Callable[[Array, Array], Array] = ptx_arithmetic.minimum if name == "min" else ptx_arithmetic.maximum
    else:
        function = _OPERATIONS[name]
    part = TYPES[kind.removesuffix("x2")]

    def change(held: Array, new: Array) -> Array:
        x, y = held.view(part), new.view(part)
        if kind.startswith("bf16"):
            return bf16_of(function(float32_of_bf16(x), float32_of_bf16(y))).view(held.dtype)
        return np.asarray(ptx_arithmetic.canonical(function(x, y)), part).view(held.dtype)

    return change


def _carry_out(
    machine: Machine, space: str, lanes: Array, here: Array, change: Callable[..., Array], values: Sequence[Array]
) -> Array:
    """Carry out one atomic; what was there before [lanes]."""
    found = np.zeros(len(lanes), values[0].dtype)
    *compare, words = values
    for turn in in_turn(here):

        def now(held: Array, new: Array, turn: Array = turn) -> Array:
            return change(held, *(each[turn] for each in compare), new)

        if space == "shared":
            found[turn] = machine.shared.atomic(lanes[turn], here[turn], words[turn], now)
        else:
            found[turn] = machine.memory.atomic(here[turn], words[turn], now, lanes[turn])
    return found


OPCODES: dict[str, Builder] = {"atom": atomic, "red": atomic}
