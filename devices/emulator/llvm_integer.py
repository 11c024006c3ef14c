"""LLVM instructions on integers, and those that move parts of values about.

What LLVM leaves open (poison) becomes the fill of the launch: what hangs on it differs between two calls of a kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from narrowgauge.devices.emulator.engine import Machine
from narrowgauge.devices.emulator.llvm_build import Build, Builder, Effect, Function
from narrowgauge.devices.emulator.llvm_text import HELD, Kinds, Part, Value, bits, poison, unspecified
from narrowgauge.devices.emulator.memory import Active, Array

_PROMISES = ("nuw", "nsw", "exact", "disjoint", "nneg", "samesign", "inbounds", "nusw")
INTEGERS = ("i1", "i8", "i16", "i32", "i64")
#: and those of other widths, whose upper bits are kept zero
ODD = (*INTEGERS, "odd")


def promises(b: Build) -> None:
    """Skip what the compiler promises: a program that breaks it has left the language already."""
    while b.tokens.accept(*_PROMISES):
        pass


def signed(kind: str) -> np.dtype[Any]:
    """How NumPy holds a signed integer of that kind."""
    return np.dtype(f"i{HELD[kind].itemsize}")


def operands(b: Build, count: int) -> tuple[Kinds, list[Value]]:
    """A type and values of it."""
    kinds = b.tokens.type()
    values = [b.tokens.value(kinds)]
    for _ in range(count - 1):
        b.tokens.expect(",")
        values.append(b.tokens.value(kinds))
    return kinds, values


def _only(b: Build, kinds: Kinds, *allowed: str) -> None:
    if any(kind not in allowed and not ("odd" in allowed and kind[0] == "i") for kind in kinds):
        raise b.refuse()


def two(function: Function, *allowed: str) -> Builder:
    """Of two integers of one type."""

    def build(b: Build) -> Effect:
        promises(b)
        kinds, values = operands(b, 2)
        _only(b, kinds, *(allowed or INTEGERS))
        return b.compute(kinds, function, *values)

    return build


WIDE = INTEGERS[1:]


def shift(function: Function, arithmetic: bool = False) -> Builder:
    """shl, lshr, ashr: open where the amount is the width or more."""

    def build(b: Build) -> Effect:
        promises(b)
        kinds, (value, amount) = operands(b, 2)
        _only(b, kinds, *WIDE)
        kind, held = kinds[0], HELD[kinds[0]]
        width = held.type(bits(kind))
        names = b.registers(kinds)

        def effect(machine: Machine, active: Active) -> None:
            for name, x, by in zip(names, value, amount, strict=True):
                places = by.read(machine)
                source = x.read(machine)
                beyond = places >= width
                if beyond.any():
                    places = np.where(beyond, held.type(0), places)
                found = function(source.view(signed(kind)), places.view(signed(kind))).view(held) if arithmetic else (
                    function(source, places)
                )  # fmt: skip
                machine.write(
                    name, np.where(beyond, unspecified(machine, kind), found) if beyond.any() else found, active
                )

        return effect

    return build


def quotient(is_signed: bool, rest: bool) -> Builder:
    """sdiv, udiv, srem, urem: towards zero; open where the divisor is zero or the quotient has no room."""

    def build(b: Build) -> Effect:
        promises(b)
        kinds, (first, second) = operands(b, 2)
        _only(b, kinds, *WIDE)
        kind, held = kinds[0], HELD[kinds[0]]
        names = b.registers(kinds)

        def effect(machine: Machine, active: Active) -> None:
            for name, x, y in zip(names, first, second, strict=True):
                a, divisor = x.read(machine), y.read(machine)
                lost = divisor == 0
                if is_signed:
                    lost = lost | (divisor == held.type((1 << bits(kind)) - 1)) & (a == held.type(1 << bits(kind) - 1))
                divisor = np.where(lost, held.type(1), divisor)
                if is_signed:
                    a, divisor = a.view(signed(kind)), divisor.view(signed(kind))
                    down, left = a // divisor, a % divisor
                    adjust = (left != 0) & ((a < 0) != (divisor < 0))  # NumPy rounds down
                    found = np.where(adjust, left - divisor, left) if rest else down + adjust.astype(down.dtype)
                else:
                    found = a % divisor if rest else a // divisor
                machine.write(name, np.where(lost, unspecified(machine, kind), found.view(held)), active)

        return effect

    return build


_ORDER: dict[str, Callable[[Array, Array], Array]] = {
    "gt": np.greater, "ge": np.greater_equal, "lt": np.less, "le": np.less_equal,
}  # fmt: skip


def compare(b: Build) -> Effect:
    """icmp."""
    promises(b)
    how = b.tokens.take()
    kinds, values = operands(b, 2)
    to = ("i1",) * len(kinds)
    if how in ("eq", "ne"):
        return b.compute(to, np.equal if how == "eq" else np.not_equal, *values)
    function = _ORDER.get(how[1:])
    if function is None or how[0] not in "su" or (how[0] == "s" and kinds[0] not in WIDE):
        raise b.refuse()
    if how[0] == "u":
        return b.compute(to, function, *values)
    whole = signed(kinds[0])
    return b.compute(to, lambda x, y: function(x.view(whole), y.view(whole)), *values)


def select(b: Build) -> Effect:
    """select: by one condition, or by one for each part."""
    while b.tokens.accept("contract"):
        pass
    condition = b.tokens.typed()
    b.tokens.expect(",")
    first = b.tokens.typed()
    b.tokens.expect(",")
    second = b.tokens.typed()
    if len(condition) != len(first):
        if len(condition) != 1:
            raise b.refuse()
        condition = condition * len(first)
    return b.compute(tuple(part.kind for part in first), np.where, condition, first, second)


def _cast(b: Build) -> tuple[Value, Kinds]:
    promises(b)
    value = b.tokens.typed()
    b.tokens.expect("to")
    return value, b.tokens.type()


def resize(is_signed: bool) -> Builder:
    """zext, sext, trunc."""

    def build(b: Build) -> Effect:
        value, kinds = _cast(b)
        _only(b, (*kinds, *(part.kind for part in value)), *(INTEGERS if is_signed else ODD))
        source, held = value[0].kind, HELD[kinds[0]]
        if kinds[0] == "i1":
            return b.compute(kinds, lambda x: (x & x.dtype.type(1)).astype(bool), value)
        if source == "i1":
            high = held.type((1 << bits(kinds[0])) - 1 if is_signed else 1)
            return b.compute(kinds, lambda x: np.where(x, high, held.type(0)), value)
        if not is_signed:
            mask = held.type((1 << bits(kinds[0])) - 1)
            return b.compute(kinds, lambda x: x.astype(held) & mask, value)
        narrow, wide = signed(source), signed(kinds[0])
        return b.compute(kinds, lambda x: x.view(narrow).astype(wide).view(held), value)

    return build


def rename(b: Build) -> None:
    """ptrtoint, inttoptr, addrspacecast, freeze of the same width: the same pattern under another type."""
    value, kinds = _cast(b)
    _same(b, value, kinds)


def _same(b: Build, value: Value, kinds: Kinds) -> None:
    if [bits(p.kind) for p in value] != [bits(k) for k in kinds] or "records" in kinds:
        raise b.refuse()
    b.alias(tuple(Part(k, p.read, p.constant) for p, k in zip(value, kinds, strict=True)))


def freeze(b: Build) -> None:
    """freeze: what is open stays the fill of the launch, which is one value."""
    b.alias(b.tokens.typed())


def bitcast(b: Build) -> Effect | None:
    """bitcast: the same bits in other parts, the first part lowest."""
    value, kinds = _cast(b)
    if not value or not kinds or sum(bits(p.kind) for p in value) != sum(bits(k) for k in kinds):
        raise b.refuse()
    source, target = bits(value[0].kind), bits(kinds[0])
    if source == target:
        _same(b, value, kinds)
        return None
    if min(source, target) < 8 or any(k in ("p8", "records") for k in kinds):
        raise b.refuse()
    held, names = HELD[kinds[0]], b.registers(kinds)
    if source > target:
        ways = source // target

        def split(machine: Machine, active: Active) -> None:
            for i, name in enumerate(names):
                whole = value[i // ways].read(machine)
                machine.write(name, (whole >> whole.dtype.type(i % ways * target)).astype(held), active)

        return split
    ways = target // source

    def join(machine: Machine, active: Active) -> None:
        for i, name in enumerate(names):
            parts = [value[i * ways + j].read(machine).astype(held) << held.type(j * source) for j in range(ways)]
            whole = parts[0]
            for part in parts[1:]:
                whole = whole | part
            machine.write(name, whole, active)

    return join


# --- parts -----------------------------------------------------------------------------------------------------------


def extract(b: Build) -> None:
    """extractelement, extractvalue, with a constant index."""
    spans = b.tokens.spans()
    value = b.tokens.typed()
    b.tokens.expect(",")
    begin, end = spans[_index(b, len(spans))]
    b.alias(value[begin:end])


def insert(b: Build) -> None:
    """insertelement, insertvalue, with a constant index."""
    spans = b.tokens.spans()
    value = b.tokens.typed()
    b.tokens.expect(",")
    new = b.tokens.typed()
    b.tokens.expect(",")
    begin, end = spans[_index(b, len(spans))]
    b.alias((*value[:begin], *new, *value[end:]))


def _index(b: Build, count: int) -> int:
    if b.opcode.endswith("value"):
        at: int | None = int(b.tokens.take())
    else:
        (part,) = b.tokens.typed()
        at = part.constant
    if at is None or at >= count or b.tokens.left:
        raise b.refuse()
    return at


def shuffle(b: Build) -> None:
    """shufflevector."""
    first = b.tokens.typed()
    b.tokens.expect(",")
    both = first + b.tokens.typed()
    b.tokens.expect(",")
    mask = b.tokens.typed()
    kind = first[0].kind
    b.alias(tuple(poison(kind) if m.constant is None else both[m.constant] for m in mask))


def _on_signed(function: Function) -> Builder:
    def build(b: Build) -> Effect:
        _only(b, b.kinds, *WIDE)
        whole, held = signed(b.kinds[0]), HELD[b.kinds[0]]
        return b.compute(b.kinds, lambda x, y: function(x.view(whole), y.view(whole)).view(held), *b.arguments)

    return build


def _on_unsigned(function: Function) -> Builder:
    return lambda b: b.compute(b.kinds, function, *b.arguments)


def _saturating(function: Callable[[Array, Array], Array], is_signed: bool) -> Builder:
    """llvm.uadd.sat, usub.sat, sadd.sat, ssub.sat: exact in 64 bits, then brought into the range."""

    def build(b: Build) -> Effect:
        _only(b, b.kinds, *INTEGERS[1:4])
        held, width = HELD[b.kinds[0]], bits(b.kinds[0])
        low, high = (-(1 << width - 1), (1 << width - 1) - 1) if is_signed else (0, (1 << width) - 1)
        source = signed(b.kinds[0]) if is_signed else held

        def apply(x: Array, y: Array) -> Array:
            wide = function(x.view(source).astype(np.int64), y.view(source).astype(np.int64))
            return np.clip(wide, low, high).astype(source).view(held)

        return b.compute(b.kinds, apply, *b.arguments)

    return build


def _funnel(left: bool) -> Builder:
    """llvm.fshl, llvm.fshr of 32 bits: one word out of two, shifted by the amount modulo the width."""

    def build(b: Build) -> Effect:
        _only(b, b.kinds, "i32")

        def apply(high: Array, low: Array, amount: Array) -> Array:
            both = high.astype(np.uint64) << np.uint64(32) | low.astype(np.uint64)
            places = (amount & np.uint32(31)).astype(np.uint64)
            return (both >> (np.uint64(32) - places if left else places)).astype(np.uint32)

        return b.compute(b.kinds, apply, *b.arguments)

    return build


def ones(x: Array) -> Array:
    """How many bits are set."""
    raw = np.ascontiguousarray(x)[:, None].view(np.uint8)
    found: Array = np.unpackbits(raw, axis=1).sum(axis=1).astype(x.dtype)
    return found


def _trailing(b: Build) -> Effect:
    """llvm.cttz: zeros below the lowest one bit; the width of zero."""
    _only(b, b.kinds, "i32", "i64")
    held = HELD[b.kinds[0]]
    return b.compute(b.kinds, lambda x: ones(~x & (x - held.type(1))), b.arguments[0])


def reverse(b: Build) -> Effect:
    """llvm.bitreverse, of any width: what is reversed in a wider word ends up in its upper bits."""
    width = bits(b.kinds[0])

    def apply(x: Array) -> Array:
        raw = np.ascontiguousarray(x)[:, None].view(np.uint8)[:, ::-1]
        whole = np.packbits(np.unpackbits(raw, axis=1, bitorder="big"), axis=1, bitorder="little").view(x.dtype)[:, 0]
        found: Array = whole >> x.dtype.type(8 * x.itemsize - width)
        return found

    return b.compute(b.kinds, apply, b.arguments[0])


def absolute(b: Build) -> Effect:
    """llvm.abs; the flag says whether the smallest integer is open, and it stays itself here."""
    whole, held = signed(b.kinds[0]), HELD[b.kinds[0]]
    return b.compute(b.kinds, lambda x: np.abs(x.view(whole)).view(held), b.arguments[0])


def count_zeros(b: Build) -> Effect:
    """llvm.ctlz of i32: zeros before the first one bit; 32 of zero."""
    if b.kinds != ("i32",):
        raise b.refuse()
    return b.compute(
        b.kinds, lambda x: (32 - np.frexp(x.astype(np.float64))[1] * (x != 0)).astype(np.uint32), b.arguments[0]
    )


OPCODES: dict[str, Builder] = {
    "add": two(np.add, *WIDE), "sub": two(np.subtract, *WIDE), "mul": two(np.multiply, *WIDE),
    "and": two(np.bitwise_and, *ODD),
    "or": two(np.bitwise_or, *ODD), "xor": two(np.bitwise_xor, *ODD),
    "shl": shift(np.left_shift), "lshr": shift(np.right_shift),
    "ashr": shift(np.right_shift, arithmetic=True), "sdiv": quotient(True, False), "udiv": quotient(False, False),
    "srem": quotient(True, True), "urem": quotient(False, True), "icmp": compare, "select": select,
    "zext": resize(False), "sext": resize(True), "trunc": resize(False), "ptrtoint": rename, "inttoptr": rename,
    "freeze": freeze, "bitcast": bitcast, "extractelement": extract, "insertelement": insert,
    "extractvalue": extract, "insertvalue": insert, "shufflevector": shuffle,
}  # fmt: skip
CALLS: dict[str, Builder] = {
    "llvm.smax": _on_signed(np.maximum), "llvm.smin": _on_signed(np.minimum), "llvm.umax": _on_unsigned(np.maximum),
    "llvm.uadd.sat": _saturating(np.add, False), "llvm.usub.sat": _saturating(np.subtract, False),
    "llvm.sadd.sat": _saturating(np.add, True), "llvm.ssub.sat": _saturating(np.subtract, True),
    "llvm.fshl": _funnel(True), "llvm.fshr": _funnel(False), "llvm.cttz": _trailing,
    "llvm.ctpop": _on_unsigned(ones), "llvm.bitreverse": reverse,
    "llvm.umin": _on_unsigned(np.minimum), "llvm.abs": absolute, "llvm.ctlz": count_zeros,
}  # fmt: skip
