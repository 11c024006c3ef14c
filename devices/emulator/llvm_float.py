"""LLVM instructions on floating-point numbers, as AMD's code generator carries them out: IEEE 754, subnormals kept.

The payload of a NaN is open. One that an operation makes is the positive quiet one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.devices.emulator.engine import Machine
from narrowgauge.devices.emulator.llvm_build import OVERFLOW, Build, Builder, Effect, Function, fp16_ovfl
from narrowgauge.devices.emulator.llvm_fusion import Fused
from narrowgauge.devices.emulator.llvm_integer import operands, signed
from narrowgauge.devices.emulator.llvm_text import HELD, Kinds, Value, bits, unspecified
from narrowgauge.devices.emulator.memory import Active, Array
from narrowgauge.devices.emulator.modelled import taken
from narrowgauge.devices.emulator.models import amd, amd_plain, ptx_arithmetic
from narrowgauge.devices.emulator.models import rounding as r
from narrowgauge.devices.emulator.models.answers import Model
from narrowgauge.devices.emulator.models.rounding_ieee import bf16_of, float32_of_bf16

NUMBERS: dict[str, np.dtype[Any]] = {
    "half": np.dtype(np.float16),
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
}
UNITS = (0x3C00, 0xBC00)  #: 1 and -1 of float16: a quotient of them is a reciprocal
LAYOUTS = {"half": r.F16, "bfloat": r.BF16}
QUIET: dict[str, Any] = {"float": np.uint32(0x7FC00000), "half": np.uint16(0x7E00), "double": np.uint64(0x7FF8 << 48)}


def flags(b: Build, *promised: str) -> set[str]:
    """Fast-math flags. Those that allow another result are refused; "contract" is for a product in a sum, ``promised``
    what the caller takes care of."""
    while b.tokens.peek() in ("contract", "fast", "nnan", "ninf", "nsz", "arcp", "afn", "reassoc"):
        b.flags.add(b.tokens.take())
    if b.flags - {"contract", *promised}:
        raise NotExecuted(f"opcode {b.opcode} {' '.join(sorted(b.flags))}")
    return b.flags


def _made(result: Array, kind: str, *sources: Array) -> Array:
    """Patterns of a result; a NaN that no source had is the quiet one."""
    made, nan = result.view(HELD[kind]), np.isnan(result)
    if nan.any():
        for source in sources:
            nan = nan & ~np.isnan(source)
        made = np.where(nan, QUIET[kind], made)
    return made


_ONE, _MINUS_ZERO, _SIGN16 = np.uint16(0x3F80), np.uint16(0x8000), np.uint16(0x8000)
#: gfx1250's, rounded once, as an fma: x * 1 + y; x * y + -0, which keeps every sign
_OF_BF16: dict[str, Function] = {
    "fadd": lambda x, y: ptx_arithmetic.fma_bf16(x, np.full_like(x, _ONE), y),
    "fsub": lambda x, y: ptx_arithmetic.fma_bf16(x, np.full_like(x, _ONE), y ^ _SIGN16),
    "fmul": lambda x, y: ptx_arithmetic.fma_bf16(x, y, np.full_like(x, _MINUS_ZERO)),
}


def arithmetic(function: Function) -> Builder:
    """fadd, fsub, fmul, fdiv. bfloat16 by binary32 where the target has no instruction for it."""

    def build(b: Build) -> Effect:
        promised = flags(b, "nnan", "ninf")
        kinds, values = operands(b, 2)
        kind = kinds[0]
        if kind == "bfloat" and not promised:
            if b.opcode in _OF_BF16 and b.target == "gfx1250":
                return b.compute(kinds, _OF_BF16[b.opcode], *values)
            return b.compute(kinds, lambda x, y: bf16_of(function(float32_of_bf16(x), float32_of_bf16(y))), *values)
        if kind not in NUMBERS or (kind == "half" and OVERFLOW in b.named and b.opcode == "fdiv"):
            raise NotExecuted(f"opcode {b.opcode} of {kind}")
        if kind == "half" and b.opcode == "fdiv" and {part.constant for part in values[0]} & set(UNITS):
            return _reciprocals(b, kinds, values[0], values[1])
        return _computed(b, kinds, function, values, promised)

    return build


def _reciprocals(b: Build, kinds: Kinds, ones: Value, value: Value) -> Effect:
    """1 / x and -1 / x of float16: the code generator takes v_rcp_f16, as LLVM's bound of an fdiv allows it."""
    if b.flags & {"nnan", "ninf"} or any(one.constant not in UNITS for one in ones):
        raise b.refuse()
    names, found = b.registers(kinds), amd_plain.HALF_RECIPROCAL

    def effect(machine: Machine, active: Active) -> None:
        for name, one, part in zip(names, ones, value, strict=True):
            x = part.read(machine) ^ (_SIGN16 if one.constant == UNITS[1] else np.uint16(0))
            answers = cast(Any, found.run)(x.astype(np.uint32))
            machine.write(name, taken(machine, found, answers, active).astype(np.uint16), active)

    return effect


def _computed(b: Build, kinds: Kinds, function: Function, values: Sequence[Value], promised: set[str]) -> Effect:
    """The effect of a function of numbers; one of float16 is clamped where MODE.FP16_OVFL says so."""
    kind = kinds[0]
    number = NUMBERS[kind]

    def apply(*sources: Array) -> Array:
        numbers = [source.view(number) for source in sources]
        return _made(function(*numbers), kind, *numbers)

    if promised & {"nnan", "ninf"}:
        return _promised(b, kinds, apply, values, promised)
    if kind != "half" or OVERFLOW not in b.named:
        return b.compute(kinds, apply, *values)
    names = b.registers(kinds)

    def clamped(machine: Machine, active: Active) -> None:
        for name, *row in zip(names, *values, strict=True):
            sources = [part.read(machine) for part in row]
            found = apply(*sources)
            if fp16_ovfl(machine):
                over = np.isinf(found.view(number))
                for source in sources:
                    over = over & np.isfinite(source.view(number))
                found = np.where(over, found - np.uint16(1), found)  # the pattern before infinity is the largest value
            machine.write(name, found, active)

    return clamped


def _promised(b: Build, kinds: Kinds, apply: Function, values: Sequence[Value], promised: set[str]) -> Effect:
    """A result that is open (the fill of the launch) where NaN (nnan) or infinity (ninf) goes in or comes out."""
    kind, names = kinds[0], b.registers(kinds)

    def effect(machine: Machine, active: Active) -> None:
        for name, *row in zip(names, *values, strict=True):
            sources = [part.read(machine) for part in row]
            found = apply(*sources)
            lost = _broken(promised, kind, found, *sources)
            machine.write(name, np.where(lost, unspecified(machine, kind), found), active)

    return effect


def _broken(promised: set[str], kind: str, *patterns: Array) -> Array:
    """Lanes that have what a flag promises to be absent."""
    lost: Array = np.zeros(1, bool)
    for pattern in patterns:
        number = pattern.view(NUMBERS[kind])
        for flag, found in (("nnan", np.isnan(number)), ("ninf", np.isinf(number))):
            lost = lost | found if flag in promised else lost
    return lost


def _sign(kind: str) -> Any:
    return HELD[kind].type(1 << bits(kind) - 1)


def negate(b: Build) -> Effect:
    """fneg: the sign bit only."""
    flags(b)
    kinds, (value,) = operands(b, 1)
    return b.compute(kinds, lambda x: x ^ _sign(kinds[0]), value)


def absolute(b: Build) -> Effect:
    """llvm.fabs: the sign bit only."""
    return b.compute(b.kinds, lambda x: x & ~_sign(b.kinds[0]), b.arguments[0])


def copy_sign(b: Build) -> Effect:
    """llvm.copysign: the magnitude of the first, the sign of the second."""
    top = _sign(b.kinds[0])
    return b.compute(b.kinds, lambda x, y: x & ~top | y & top, *b.arguments)


_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "gt": np.greater, "ge": np.greater_equal, "lt": np.less, "le": np.less_equal,
    "ne": lambda x, y: (x < y) | (x > y),
}  # fmt: skip


def as_number(x: Array, kind: str) -> Array:
    """Patterns as numbers, bfloat16 as float32."""
    return float32_of_bf16(x) if kind == "bfloat" else x.view(NUMBERS[kind])


def compare(b: Build) -> Effect:
    """fcmp: o… is false and u… is true where one is NaN."""
    flags(b)
    how = b.tokens.take()
    kinds, values = operands(b, 2)
    kind = kinds[0]

    def apply(x: Array, y: Array) -> Array:
        first, second = as_number(x, kind), as_number(y, kind)
        nan = np.isnan(first) | np.isnan(second)
        if how in ("ord", "uno"):
            return nan if how == "uno" else ~nan
        found = _COMPARE[how[1:]](first, second)
        return found | nan if how[0] == "u" else found & ~nan

    if how not in ("ord", "uno") and (how[0] not in "ou" or how[1:] not in _COMPARE):
        raise b.refuse()
    return b.compute(("i1",) * len(kinds), apply, *values)


# --- intrinsics ------------------------------------------------------------------------------------------------------


def _number(larger: bool) -> Function:
    """v_max_f64, v_min_f64 of quieted operands: a number beats every NaN, -0 is less than +0."""

    def choose(a: Array, b: Array) -> Array:
        x, y = a.view(np.float64), b.view(np.float64)
        first = np.where(x == y, np.signbit(y if larger else x), x > y if larger else x < y)
        found = np.where(np.isnan(y) | first, a, b)
        return np.where(np.isnan(x) & np.isnan(y), found | QUIET["double"], found)

    return choose


_OF_DOUBLE: dict[str, Function] = {"v_max_num_f32": _number(larger=True), "v_min_num_f32": _number(larger=False)}


def model(name: str) -> Builder:
    """An instruction of models/amd_plain.py, on float; on half and bfloat where it chooses one of its operands, and on
    double where that is a number."""
    selects = name.startswith(("v_m",))

    def build(b: Build) -> Effect:
        kind, found = b.kinds[0], amd.models_of(b.target)[name]
        if kind == "float":
            return _by_model(b, found, *b.arguments)
        if kind == "double" and name in _OF_DOUBLE:
            return b.compute(b.kinds, _OF_DOUBLE[name], *b.arguments)
        if not selects or kind not in LAYOUTS:
            raise NotExecuted(f"opcode {b.opcode} of {kind}")
        return _chosen(b, found)

    return build


def _chosen(b: Build, found: Model, *modes: object) -> Effect:
    """A model that gives one of its operands, of 16 bits, by way of binary32."""
    layout, run = LAYOUTS[b.kinds[0]], cast(Any, found.run)

    def apply(*sources: Array) -> Array:
        wide = (r.widened(x.astype(np.uint32), layout) for x in sources)
        return r.narrowed(run(*wide, *modes).first, layout, "rn", layout.special, layout.special).astype(np.uint16)

    return b.compute(b.kinds, apply, *b.arguments)


def _by_model(b: Build, model: Model, *values: Value, modes: tuple[object, ...] = ()) -> Effect:
    """The answers of a model, part by part, as the machine's choice picks them; the fill where a promise breaks."""
    names, run, promised = b.registers(b.kinds), cast(Any, model.run), b.flags & {"nnan", "ninf"}

    def effect(machine: Machine, active: Active) -> None:
        for name, *row in zip(names, *values, strict=True):
            sources = [part.read(machine) for part in row]
            found = taken(machine, model, run(*sources, *modes), active)
            if promised:
                lost = _broken(promised, "float", found, *sources)
                found = np.where(lost, unspecified(machine, "float"), found)
            machine.write(name, found, active)

    return effect


def written_out(name: str) -> Builder:
    """A function that the code generator writes out, of float."""

    def build(b: Build) -> Effect:
        if b.kinds[0] != "float":
            raise NotExecuted(f"opcode {b.opcode} of {b.kinds[0]}")
        return _by_model(b, amd_plain.WRITTEN_OUT[name], b.arguments[0])

    return build


def median(b: Build) -> Effect:
    """llvm.amdgcn.fmed3; MODE.IEEE is set by Triton where there is one."""
    kind, found, ieee = b.kinds[0], amd.models_of(b.target)["v_med3_f32"], not b.target.startswith("gfx12")
    if kind == "half":
        return _chosen(b, found, ieee)
    if kind != "float":
        raise NotExecuted(f"opcode {b.opcode} of {kind}")
    return _by_model(b, found, *b.arguments, modes=(ieee,))


def fused(b: Build) -> Effect:
    """llvm.fma: one rounding. Of bfloat16 in binary32, where the target has no instruction for it."""
    kind, promised = b.kinds[0], b.flags & {"nnan", "ninf"}
    if kind == "bfloat" and not promised:
        if b.target == "gfx1250":
            return b.compute(b.kinds, ptx_arithmetic.fma_bf16, *b.arguments)
        return b.compute(b.kinds, lambda *x: bf16_of(_fma(*(float32_of_bf16(each) for each in x))), *b.arguments)
    if kind not in NUMBERS:
        raise NotExecuted(f"opcode {b.opcode} of {kind}")
    return _computed(b, b.kinds, _fma, list(b.arguments), promised)


def fused_sum(b: Build, kinds: Kinds, fused: Fused) -> Effect:
    """A product and a sum with one rounding."""
    kind, one, other = kinds[0], fused.negate_product, fused.negate_other
    values = [fused.product.first, fused.product.second, fused.other]
    if kind == "bfloat":

        def of_bf16(x: Array, y: Array, z: Array) -> Array:
            return ptx_arithmetic.fma_bf16(x ^ _SIGN16 if one else x, y, z ^ _SIGN16 if other else z)

        return b.compute(kinds, of_bf16, *values)

    def apply(x: Array, y: Array, z: Array) -> Array:
        return _fma(-x if one else x, y, -z if other else z)

    return _computed(b, kinds, apply, values, fused.promised)


def _fma(x: Array, y: Array, z: Array) -> Array:
    """x * y + z with one rounding, of float16, float32 or float64."""
    return ptx_arithmetic.fma64(x, y, z) if x.dtype == np.float64 else ptx_arithmetic.fma(x, y, z)


def whole(function: Callable[[Array], Array]) -> Builder:
    """floor, ceil, trunc, rint, and the IEEE square root: exact, or rounded once by NumPy."""

    def build(b: Build) -> Effect:
        kind = b.kinds[0]
        if kind not in ("float", "double"):
            raise NotExecuted(f"opcode {b.opcode} of {kind}")

        def apply(x: Array) -> Array:
            number = x.view(NUMBERS[kind])
            return _made(function(number), kind, number)

        return b.compute(b.kinds, apply, b.arguments[0])

    return build


def _half_away(x: Array) -> Array:
    """llvm.round: halves away from zero. The fraction is exact."""
    whole_part = np.trunc(x)
    found: Array = np.copysign(whole_part + np.copysign(np.abs(x - whole_part) >= 0.5, x).astype(x.dtype), x)
    return found


def split(b: Build) -> Effect:
    """llvm.frexp: a fraction in [0.5, 1) and an exponent; of zero both 0; of infinity and NaN the second."""
    value, names = b.arguments[0], b.registers(b.kinds)
    count, kind, whole_kind = len(value), b.kinds[0], b.kinds[-1]

    def effect(machine: Machine, active: Active) -> None:
        for part, fraction, exponent in zip(value, names[:count], names[count:], strict=True):
            number = part.read(machine).view(NUMBERS[kind])
            parts, powers = np.frexp(number)
            powers = np.where(np.isfinite(number), powers, 0)
            machine.write(fraction, _made(parts, kind, number), active)
            machine.write(exponent, powers.astype(signed(whole_kind)).view(HELD[whole_kind]), active)

    return effect


def scale_by(b: Build) -> Effect:
    """llvm.ldexp: times a power of two, rounded once."""
    kind, whole_kind = b.kinds[0], b.arguments[1][0].kind

    def apply(x: Array, power: Array) -> Array:
        number = x.view(NUMBERS[kind])
        powers = np.clip(power.view(signed(whole_kind)).astype(np.int64), -5000, 5000).astype(np.int32)
        return _made(np.ldexp(number, powers), kind, number)

    return b.compute(b.kinds, apply, *b.arguments)


def remainder(b: Build) -> Effect:
    """frem: exact, with the sign of the first; NaN of an infinity, or by zero."""
    flags(b)
    kinds, values = operands(b, 2)
    if kinds[0] not in ("float", "double"):
        raise NotExecuted(f"opcode {b.opcode} of {kinds[0]}")
    return _computed(b, kinds, np.fmod, values, set())


OPCODES: dict[str, Builder] = {
    "fadd": arithmetic(np.add), "fsub": arithmetic(np.subtract), "fmul": arithmetic(np.multiply),
    "fdiv": arithmetic(np.divide), "fneg": negate, "fcmp": compare, "frem": remainder,
}  # fmt: skip
CALLS: dict[str, Builder] = {
    "llvm.fabs": absolute, "llvm.copysign": copy_sign, "llvm.fma": fused,
    "llvm.fmuladd": fused,  # as the target, for which one operation is the faster, has it
    # AMD's code generator quiets both first, whatever MODE.IEEE says: a number beats every NaN
    "llvm.maxnum": model("v_max_num_f32"), "llvm.minnum": model("v_min_num_f32"),
    "llvm.maximumnum": model("v_max_num_f32"), "llvm.minimumnum": model("v_min_num_f32"),
    "llvm.maximum": model("v_maximum_f32"), "llvm.minimum": model("v_minimum_f32"), "llvm.amdgcn.fmed3": median,
    "llvm.floor": whole(np.floor), "llvm.ceil": whole(np.ceil), "llvm.trunc": whole(np.trunc),
    "llvm.rint": whole(np.rint), "llvm.roundeven": whole(np.rint), "llvm.sqrt": whole(np.sqrt),
    **{f"llvm.{name}": written_out(name) for name in amd_plain.WRITTEN_OUT},
    "llvm.round": whole(_half_away), "llvm.frexp": split, "llvm.ldexp": scale_by,
    "llvm.amdgcn.exp2": model("v_exp_f32"), "llvm.amdgcn.log": model("v_log_f32"),
    "llvm.amdgcn.rcp": model("v_rcp_f32"),
    "llvm.amdgcn.rsq": model("v_rsq_f32"), "llvm.amdgcn.sqrt": model("v_sqrt_f32"),
}  # fmt: skip
