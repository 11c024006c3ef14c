"""cvt and mov of PTX."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from narrowgauge.devices.emulator.engine import Machine
from narrowgauge.devices.emulator.memory import UNSIGNED, Active, Array
from narrowgauge.devices.emulator.modelled import by_model
from narrowgauge.devices.emulator.models import ptx_arithmetic
from narrowgauge.devices.emulator.models.nvidia import nvidia_model
from narrowgauge.devices.emulator.models.rounding_ieee import (
    bf16_of,
    bf16_towards_zero,
    float16_towards_zero,
    float32_of_bf16,
    float32_to_odd,
)
from narrowgauge.devices.emulator.ptx_operands import TYPES, Build, Builder, Effect, Operand

INTEGERS = tuple(f"{kind}{bits}" for kind in "us" for bits in (8, 16, 32, 64))
SCALARS = ("f16", "bf16", "f32", "f64")
WHOLE: dict[str, Callable[[Array], Array]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
Function = Callable[..., Array]


def _pair(upper: Array, lower: Array) -> Array:
    return upper.view(np.uint16).astype(np.uint32) << np.uint32(16) | lower.view(np.uint16)


def _packed(function: Function) -> Function:
    return lambda a, b: _pair(function(a), function(b))


def _f16(x: Array) -> Array:
    return ptx_arithmetic.canonical(x.astype(np.float16))


#: conversions for which a few operations of NumPy give what the models give (suites/meta/test_emulator_models.py)
QUICK: dict[str, Function] = {
    "cvt.rn.f16x2.f32": _packed(_f16),
    "cvt.rz.f16x2.f32": _packed(lambda x: ptx_arithmetic.canonical(float16_towards_zero(x))),
    "cvt.rn.bf16x2.f32": _packed(bf16_of),
    "cvt.rz.bf16x2.f32": _packed(bf16_towards_zero),
    "cvt.rn.f16.f32": _f16,
    "cvt.rz.f16.f32": lambda x: ptx_arithmetic.canonical(float16_towards_zero(x)),
    "cvt.rn.bf16.f32": bf16_of,
    "cvt.rz.bf16.f32": bf16_towards_zero,
    "cvt.f32.bf16": lambda x: ptx_arithmetic.canonical(float32_of_bf16(x)),
    "cvt.f32.f16": lambda x: ptx_arithmetic.canonical(x.astype(np.float32)),
}


def convert(b: Build) -> Effect:
    """cvt."""
    if model := nvidia_model(b.opcode):
        return by_model(b, model, QUICK.get(b.opcode))
    to, source = b.type(), b.type()
    if to not in (*INTEGERS, *SCALARS) or source not in (*INTEGERS, *SCALARS):
        raise b.refuse()
    if to in INTEGERS:
        return _to_integer(b, to, source)
    return _to_float(b, to, source)


def _to_integer(b: Build, to: str, source: str) -> Effect:
    """From an integer: cut off or extended, .sat clamps. From a float: clamped to the range; NaN is 0, or the topmost
    bit alone where one of the two has 64 bits."""
    dtype = TYPES[to]
    limits = np.iinfo(dtype)
    nan = 0
    if source == "f64" or dtype.itemsize == 8:
        nan = limits.min or 1 << 8 * dtype.itemsize - 1
    if source in INTEGERS:
        if b.flag("sat"):
            low, high = max(limits.min, np.iinfo(TYPES[source]).min), min(limits.max, np.iinfo(TYPES[source]).max)
            return b.compute(lambda x: np.clip(x, low, high).astype(dtype), to, source)
        return b.compute(lambda x: x.astype(dtype), to, source)
    whole = WHOLE.get(b.flag(*WHOLE))
    ftz = b.flag("ftz")
    if whole is None or (ftz and source != "f32"):
        raise b.refuse()
    b.flag("sat")

    def compute(x: Array) -> Array:
        value = float32_of_bf16(x) if source == "bf16" else x
        exact = whole((ptx_arithmetic.flush(value) if ftz else value).astype(np.float64))
        # Limits of 64-bit types are not float64 numbers: compare first, convert what is inside.
        high, low = exact >= float(limits.max) + (limits.max < 2**53), exact <= float(limits.min)
        inside = np.where(high | low | np.isnan(exact), 0.0, exact).astype(dtype)
        found = np.where(high, dtype.type(limits.max), np.where(low, dtype.type(limits.min), inside))
        return np.where(np.isnan(exact), dtype.type(nan), found)

    return b.compute(compute, to, source)


def _to_float(b: Build, to: str, source: str) -> Effect:
    rounding, ftz, saturating = b.flag("rn", "rz", *WHOLE), b.flag("ftz"), b.flag("sat")
    if ftz and "f32" not in (to, source):
        raise b.refuse()
    function = _float_from(to, source, rounding)
    if function is None:
        raise b.refuse()
    if saturating and to == "bf16":
        raise b.refuse()
    if not ftz and not saturating:
        return b.compute(function, to, source)
    known: Function = function

    def compute(x: Array) -> Array:
        found = known(ptx_arithmetic.flush(x) if ftz and source == "f32" else x)
        found = ptx_arithmetic.flush(found) if ftz and to == "f32" else found
        return ptx_arithmetic.saturate(found) if saturating else found

    return b.compute(compute, to, source)


def _float_from(to: str, source: str, rounding: str) -> Function | None:
    """The function of a conversion to a float, None where there is none."""
    dtype = TYPES[to]
    if source in INTEGERS:
        if rounding != "rn":
            return None
        if to in ("f32", "f64"):
            return lambda x: x.astype(dtype)
        if to == "f16":  # float64 holds every integer that float16 does not take for infinity
            return lambda x: x.astype(np.float64).astype(np.float16)
        return (lambda x: bf16_of(float32_to_odd(x.astype(np.float64)))) if "64" not in source else None
    if to == source and rounding in WHOLE and to in ("f32", "f64", "f16"):
        whole = WHOLE[rounding]
        return lambda x: ptx_arithmetic.canonical(whole(x))
    match to, source, rounding:
        case ("f64", "bf16", ""):
            return lambda x: float32_of_bf16(x).astype(dtype)
        case ("f64", "f16", "") | ("f64", "f32", "") | ("f32", "f32", ""):
            return lambda x: x.astype(dtype)
        case ("f16", "f64", "rn") | ("f32", "f64", "rn"):
            return lambda x: ptx_arithmetic.canonical(x.astype(dtype))
        case ("bf16", "f16", "rn"):
            return lambda x: bf16_of(x.astype(np.float32))
        case ("bf16", "f64", "rn"):
            return lambda x: bf16_of(float32_to_odd(x))
    return None


def move(b: Build) -> Effect:
    """mov: a register, an immediate, an address, or a vector packed or taken apart."""
    kind = b.type("pred", "b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64", "f16", "bf16")
    to, source = b.operands
    if source.vector:
        return _pack(b, to, source.vector, kind)
    if to.vector:
        return _unpack(b, to.vector, source, kind)
    unsigned = kind if kind == "pred" else f"u{8 * TYPES[kind].itemsize}"
    return b.compute(lambda x: x, unsigned, unsigned)


def _pack(b: Build, to: Operand, parts: tuple[Operand, ...], kind: str) -> Effect:
    """The first of the vector is the lowest."""
    part = f"u{8 * TYPES[kind].itemsize // len(parts)}"
    if part not in INTEGERS:
        raise b.refuse()
    reads, write, whole = [b.read(p, part) for p in parts], b.write(to, f"b{kind[1:]}"), UNSIGNED[TYPES[kind].itemsize]
    step = 8 * TYPES[part].itemsize

    def effect(machine: Machine, active: Active) -> None:
        found = reads[0](machine).astype(whole)
        for i, read in enumerate(reads[1:], 1):
            found = found | read(machine).astype(whole) << whole.type(i * step)
        write(machine, found, active)

    return effect


def _unpack(b: Build, parts: tuple[Operand, ...], source: Operand, kind: str) -> Effect:
    part = f"u{8 * TYPES[kind].itemsize // len(parts)}"
    if part not in INTEGERS:
        raise b.refuse()
    read, writes, dtype = b.read(source, f"u{kind[1:]}"), [b.write(p, part) for p in parts], TYPES[part]
    whole, step = UNSIGNED[TYPES[kind].itemsize], 8 * dtype.itemsize

    def effect(machine: Machine, active: Active) -> None:
        value = read(machine)
        for i, write in enumerate(writes):
            write(machine, (value >> whole.type(i * step)).astype(dtype), active)

    return effect


OPCODES: dict[str, Builder] = {"cvt": convert, "mov": move}
