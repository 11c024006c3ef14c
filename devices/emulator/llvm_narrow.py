"""AMD's intrinsics that convert to and from narrow formats, answered by models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.devices.emulator.engine import Machine
from narrowgauge.devices.emulator.llvm_build import Build, Builder, Effect, fp16_ovfl
from narrowgauge.devices.emulator.llvm_text import HELD, Value, bits
from narrowgauge.devices.emulator.memory import Active, Array
from narrowgauge.devices.emulator.modelled import taken
from narrowgauge.devices.emulator.models import amd


def _model(b: Build, name: str) -> Any:
    """``run(machine, active, …)``: the answer that the machine's choice picks, or a tuple of them."""
    found = amd.models_of(b.target).get(name)
    if found is None:
        raise NotExecuted(f"opcode {b.opcode}: no model of {name} for {b.target}")
    run: Any = found.run

    def chosen(machine: Machine, active: Active, *operands: Any, **modes: Any) -> Any:
        answer = run(*operands, **modes)
        if isinstance(answer, tuple):
            return tuple(taken(machine, found, each, active) for each in answer)
        return taken(machine, found, answer, active)

    return chosen


def _register(value: Value) -> Callable[[Machine], Array]:
    """Parts as one register of 32 bits, the first lowest."""
    if sum(bits(part.kind) for part in value) > 32:
        raise NotExecuted("an operand of a conversion that is wider than a register")

    def read(machine: Machine) -> Array:
        whole, place = np.zeros(1, np.uint32), 0
        for part in value:
            whole = whole | part.read(machine).astype(np.uint32) << np.uint32(place)
            place += bits(part.kind)
        return whole

    return read


def _set_parts(machine: Machine, names: list[str], kinds: tuple[str, ...], whole: Array, active: Active) -> None:
    """A register of 32 bits into the parts of a result."""
    place = 0
    for name, kind in zip(names, kinds, strict=True):
        machine.write(name, (whole >> np.uint32(place)).astype(HELD[kind]), active)
        place += bits(kind)


def pack(name: str) -> Builder:
    """llvm.amdgcn.cvt.pk.fp8.f32(a, b, old, word) and its like."""

    def build(b: Build) -> Effect:
        run, word = _model(b, name), b.number(3)
        sources, names = [_register(a) for a in b.arguments[:3]], b.registers(b.kinds)

        def effect(machine: Machine, active: Active) -> None:
            found = run(machine, active, *_alike(machine, sources), word, fp16_ovfl(machine))
            _set_parts(machine, names, b.kinds, found, active)

        return effect

    return build


def _alike(machine: Machine, sources: list[Callable[[Machine], Array]]) -> list[Array]:
    values = [read(machine) for read in sources]
    return list(np.broadcast_arrays(*values))


def unpack(name: str, pair: bool) -> Builder:
    """llvm.amdgcn.cvt.f32.fp8(source, byte) and cvt.pk.f32.fp8(source, word)."""

    def build(b: Build) -> Effect:
        run, place = _model(b, name), b.number(1)
        source, names = _register(b.arguments[0]), b.registers(b.kinds)

        def effect(machine: Machine, active: Active) -> None:
            found = run(machine, active, source(machine), place)
            for register, answer in zip(names, found if pair else (found,), strict=True):
                machine.write(register, answer, active)

        return effect

    return build


def scaled_pack(kind: str, to: str) -> Builder:
    """llvm.amdgcn.cvt.scalef32.pk.fp8.f32(old, a, b, scale, high) and of pairs (old, pair, scale, high)."""

    def build(b: Build) -> Effect:
        run, place = _model(b, f"v_cvt_scalef32_pk_{to}_{kind}"), b.number(len(b.arguments) - 1)
        sources, names = [_register(a) for a in b.arguments[:-1]], b.registers(b.kinds)

        def effect(machine: Machine, active: Active) -> None:
            old, *given, scale = _alike(machine, sources)
            mode = {} if to == "fp4" else {"ovfl": fp16_ovfl(machine)}
            found = run(machine, active, *given, scale=scale, old=old, place=place, **mode)
            _set_parts(machine, names, b.kinds, found, active)

        return effect

    return build


def scaled_unpack(kind: str, source: str) -> Builder:
    """llvm.amdgcn.cvt.scalef32.pk.f32.fp8(source, scale, high): two values."""

    def build(b: Build) -> Effect:
        run, place = _model(b, f"v_cvt_scalef32_pk_{kind}_{source}"), b.number(2)
        reads, names = [_register(a) for a in b.arguments[:2]], b.registers(b.kinds)

        def effect(machine: Machine, active: Active) -> None:
            found = run(machine, active, *_alike(machine, reads), place)
            for name, to, answer in zip(names, b.kinds, found, strict=True):
                machine.write(name, answer.astype(HELD[to]), active)

        return effect

    return build


def scaled_pack8(kind: str, to: str) -> Builder:
    """llvm.amdgcn.cvt.scalef32.pk8.fp8.f32(eight, scale) and of narrower ones, which binary32 holds exactly."""

    def build(b: Build) -> Effect:
        run, eight, scale = _model(b, f"v_cvt_scalef32_pk8_{to}_f32"), b.arguments[0], b.scalar(1)
        if len(eight) != 8 or b.kinds != (("i32",) if to == "fp4" else ("i32", "i32")):
            raise b.refuse()
        names = b.registers(b.kinds)

        def effect(machine: Machine, active: Active) -> None:
            given = [amd.as_binary32(part.read(machine).astype(np.uint32), kind) for part in eight]
            *values, by = np.broadcast_arrays(*given, scale.read(machine))
            mode = {} if to == "fp4" else {"ovfl": fp16_ovfl(machine)}
            for name, answer in zip(names, run(machine, active, *values, scale=by, **mode), strict=True):
                machine.write(name, answer, active)

        return effect

    return build


def scaled_unpack8(kind: str, source: str) -> Builder:
    """llvm.amdgcn.cvt.scale.pk8.f32.fp8(eight codes, scale, select): which byte of which lane's scale is selected is
    not public, so the scale has to be one constant byte, selected by 0."""

    def build(b: Build) -> Effect:
        run, words, scale = _model(b, f"v_cvt_scale_pk8_{kind}_{source}"), b.arguments[0], b.number(1)
        if b.number(2) or scale > 0xFF or len(b.kinds) != 8:
            raise b.refuse()
        names = b.registers(b.kinds)

        def effect(machine: Machine, active: Active) -> None:
            given = np.broadcast_arrays(*(part.read(machine) for part in words))
            found = run(machine, active, *given, scale=scale)
            for name, to, answer in zip(names, b.kinds, found, strict=True):
                machine.write(name, answer.astype(HELD[to]), active)

        return effect

    return build


def toward_zero(b: Build) -> Effect:
    """llvm.amdgcn.cvt.pkrtz: two float16."""
    run, sources, names = _model(b, "v_cvt_pkrtz_f16_f32"), [_register(a) for a in b.arguments], b.registers(b.kinds)

    def effect(machine: Machine, active: Active) -> None:
        _set_parts(machine, names, b.kinds, run(machine, active, *_alike(machine, sources)), active)

    return effect


_WIDE, _FP8 = ("f32", "f16", "bf16"), ("fp8", "bf8")
CALLS: dict[str, Builder] = {
    **{f"llvm.amdgcn.cvt.pk.{n}.f32": pack(f"v_cvt_pk_{n}_f32") for n in _FP8},
    **{f"llvm.amdgcn.cvt.f32.{n}": unpack(f"v_cvt_f32_{n}", False) for n in _FP8},
    **{f"llvm.amdgcn.cvt.pk.f32.{n}": unpack(f"v_cvt_pk_f32_{n}", True) for n in _FP8},
    **{f"llvm.amdgcn.cvt.scalef32.pk.{n}.{k}": scaled_pack(k, n) for n in (*_FP8, "fp4") for k in _WIDE},
    **{f"llvm.amdgcn.cvt.scalef32.pk.{k}.{n}": scaled_unpack(k, n) for n in (*_FP8, "fp4") for k in _WIDE},
    **{f"llvm.amdgcn.cvt.scalef32.pk8.{n}.{k}": scaled_pack8(k, n) for n in (*_FP8, "fp4") for k in _WIDE},
    **{f"llvm.amdgcn.cvt.scale.pk8.{k}.{n}": scaled_unpack8(k, n) for n in (*_FP8, "fp4") for k in _WIDE},
    "llvm.amdgcn.cvt.pkrtz": toward_zero,
}
