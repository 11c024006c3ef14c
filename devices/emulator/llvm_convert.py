"""LLVM conversions between floating-point numbers, and of them from and to integers."""

from __future__ import annotations

import numpy as np

from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.devices.emulator.engine import Machine
from narrowgauge.devices.emulator.llvm_build import OVERFLOW, Build, Builder, Effect, fp16_ovfl
from narrowgauge.devices.emulator.llvm_float import LAYOUTS, NUMBERS, as_number, flags
from narrowgauge.devices.emulator.llvm_integer import INTEGERS, signed
from narrowgauge.devices.emulator.llvm_text import FLOATS, HELD, Kinds, Value, bits, unspecified
from narrowgauge.devices.emulator.memory import Active, Array
from narrowgauge.devices.emulator.models import rounding as r


def _cast(b: Build) -> tuple[Value, Kinds]:
    flags(b)
    while b.tokens.accept("nneg"):
        pass
    value = b.tokens.typed()
    b.tokens.expect("to")
    return value, b.tokens.type()


def extend(b: Build) -> Effect:
    """fpext: exact."""
    value, kinds = _cast(b)
    source, to = value[0].kind, kinds[0]
    if to not in ("float", "double"):
        raise b.refuse()
    return b.compute(kinds, lambda x: as_number(x, source).astype(NUMBERS[to]).view(HELD[to]), value)


def truncate(b: Build) -> Effect:
    """fptrunc: to nearest even. With MODE.FP16_OVFL a finite overflow to float16 becomes the largest value."""
    value, kinds = _cast(b)
    to = kinds[0]
    if value[0].kind == "double" and to in ("float", "half") and not (to == "half" and OVERFLOW in b.named):
        return b.compute(kinds, lambda x: x.view(np.float64).astype(NUMBERS[to]).view(HELD[to]), value)
    if value[0].kind != "float" or to not in LAYOUTS:
        raise NotExecuted(f"opcode fptrunc {value[0].kind} to {to}")
    layout = LAYOUTS[to]
    names = b.registers(kinds)

    def effect(machine: Machine, active: Active) -> None:
        over = layout.top if to == "half" and OVERFLOW in machine.registers and fp16_ovfl(machine) else layout.special
        for name, part in zip(names, value, strict=True):
            codes = r.narrowed(part.read(machine), layout, "rn", over, layout.special)
            machine.write(name, codes.astype(np.uint16), active)

    return effect


def from_integer(is_signed: bool) -> Builder:
    """sitofp, uitofp: to nearest even."""

    def build(b: Build) -> Effect:
        value, kinds = _cast(b)
        source, to = value[0].kind, kinds[0]
        if to not in NUMBERS or (to == "half" and source in ("i64",)):
            raise b.refuse()

        def apply(x: Array) -> Array:
            if source == "i1":
                x = x.astype(np.int8) * np.int8(-1 if is_signed else 1)
            elif is_signed:
                x = x.view(signed(source))
            if to == "half":
                x = x.astype(np.float64)  # exact, so that the next rounding is the only one
            return x.astype(NUMBERS[to]).view(HELD[to])

        return b.compute(kinds, apply, value)

    return build


def to_integer(is_signed: bool, saturating: bool, kinds: Kinds, b: Build, value: Value) -> Effect:
    """Towards zero. Beyond the range: the nearest end, NaN 0, where that is said; else open."""
    source, to = value[0].kind, kinds[0]
    if source not in FLOATS or to not in INTEGERS[1:]:
        raise b.refuse()
    width, held = bits(to), HELD[to]
    low, beyond = (-(1 << width - 1), 1 << width - 1) if is_signed else (0, 1 << width)
    whole, names = signed(to) if is_signed else held, b.registers(kinds)

    def effect(machine: Machine, active: Active) -> None:
        for name, part in zip(names, value, strict=True):
            number = np.trunc(as_number(part.read(machine), source).astype(np.float64))
            under, over = number < low, number >= beyond
            outside = under | over | np.isnan(number)
            found = np.where(outside, 0, number).astype(whole).view(held)
            if outside.any() and saturating:
                ends = np.where(under, whole.type(low), np.where(over, whole.type(beyond - 1), whole.type(0)))
                found = np.where(outside, ends.view(held), found)
            elif outside.any():
                found = np.where(outside, unspecified(machine, to), found)
            machine.write(name, found, active)

    return effect


def truncated(is_signed: bool) -> Builder:
    """fptosi, fptoui. Beyond the range LLVM leaves the result open; to 32 bits it is one instruction, which saturates
    (v_cvt_i32_f32, v_cvt_u32_f32 and those of float64)."""

    def build(b: Build) -> Effect:
        value, kinds = _cast(b)
        return to_integer(is_signed, kinds[0] == "i32", kinds, b, value)

    return build


def saturated(is_signed: bool) -> Builder:
    """llvm.fptosi.sat, llvm.fptoui.sat."""
    return lambda b: to_integer(is_signed, True, b.kinds, b, b.arguments[0])


OPCODES: dict[str, Builder] = {
    "fpext": extend, "fptrunc": truncate, "sitofp": from_integer(True), "uitofp": from_integer(False),
    "fptosi": truncated(True), "fptoui": truncated(False),
}  # fmt: skip
CALLS: dict[str, Builder] = {"llvm.fptosi.sat": saturated(True), "llvm.fptoui.sat": saturated(False)}
