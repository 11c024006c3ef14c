"""LLVM instructions on floating-point numbers, as AMD's code generator carries them out: IEEE 754, subnormals kept.

The payload of a NaN is open. One that an operation makes is the positive quiet one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.devices.emulator.engine import Machine
from narrowgauge.devices.emulator.llvm_build import OVERFLOW, Build, Builder, Effect, Function
from narrowgauge.devices.emulator.llvm_fusion import Fused
from narrowgauge.devices.emulator.llvm_integer import operands, signed
from narrowgauge.devices.emulator.llvm_text import FLOATS, HELD, Kinds, Value, bits, unspecified
from narrowgauge.devices.emulator.memory import Active, Array
from narrowgauge.devices.emulator.modelled import taken
from narrowgauge.devices.emulator.models import amd, amd_plain, ptx_arithmetic
from narrowgauge.devices.emulator.models import rounding as r
from narrowgauge.devices.emulator.models.answers import Model
from narrowgauge.devices.emulator.models.rounding_ieee import float32_of_bf16

NUMBERS: dict[str, np.dtype[Any]] = {
    "half": np.dtype(np.float16),
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
}
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
#: rounded once, as an fma: x * 1 + y; x * y + -0, which keeps every sign
_OF_BF16: dict[str, Function] = {
    "fadd": lambda x, y: ptx_arithmetic.fma_bf16(x, np.full_like(x, _ONE), y),
    "fsub": lambda x, y: ptx_arithmetic.fma_bf16(x, np.full_like(x, _ONE), y ^ _SIGN16),
    "fmul": lambda x, y: ptx_arithmetic.fma_bf16(x, y, np.full_like(x, _MINUS_ZERO)),
}


def arithmetic(function: Function) -> Builder:
    """fadd, fsub, fmul, fdiv. float16 too, unless MODE.FP16_OVFL is set, which would clamp it."""

    def build(b: Build) -> Effect:
        promised = flags(b, "nnan", "ninf")
        kinds, values = operands(b, 2)
        kind = kinds[0]
        if kind == "bfloat" and b.opcode in _OF_BF16 and b.target == "gfx1250":
            return b.compute(kinds, _OF_BF16[b.opcode], *values)
        if kind not in NUMBERS or (kind == "half" and OVERFLOW in b.named):
            raise NotExecuted(f"opcode {b.opcode} of {kind}")
        number = NUMBERS[kind]

        def apply(x: Array, y: Array) -> Array:
            x, y = x.view(number), y.view(number)
            return _made(function(x, y), kind, x, y)

        if promised & {"nnan", "ninf"}:
            return _promised(b, kinds, apply, values, promised)
        return b.compute(kinds, apply, *values)

    return build


def _promised(b: Build, kinds: Kinds, apply: Function, values: list[Value], promised: set[str]) -> Effect:
    """A result that is open (the fill of the launch) where NaN (nnan) or infinity (ninf) goes in or comes out."""
    kind, names = kinds[0], b.registers(kinds)

    def broken(x: Array) -> Array:
        number = x.view(NUMBERS[kind])
        nan = np.isnan(number) if "nnan" in promised else np.zeros(x.shape, bool)
        return nan | np.isinf(number) if "ninf" in promised else nan

    def effect(machine: Machine, active: Active) -> None:
        for name, *row in zip(names, *values, strict=True):
            sources = [part.read(machine) for part in row]
            found = apply(*sources)
            lost = broken(found)
            for source in sources:
                lost = lost | broken(source)
            if lost.any():
                found = np.where(lost, unspecified(machine, kind), found)
            machine.write(name, found, active)

    return effect


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


# --- conversions -----------------------------------------------------------------------------------------------------


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


def fp16_ovfl(machine: Machine) -> bool:
    """MODE.FP16_OVFL, which is 0 at the start of a kernel. It is the same for all lanes."""
    found = machine.registers.get(OVERFLOW)
    return found is not None and bool(found.all())


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


def to_integer(is_signed: bool, kinds: Kinds, b: Build, value: Value) -> Effect:
    """Towards zero, saturating, NaN to 0: v_cvt_i32_f32 and v_cvt_u32_f32, and llvm.fpto*.sat."""
    source, to = value[0].kind, kinds[0]
    if source not in FLOATS or to not in ("i8", "i16", "i32"):
        raise b.refuse()
    width = bits(to)
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if is_signed else (0, (1 << width) - 1)

    def apply(x: Array) -> Array:
        number = as_number(x, source).astype(np.float64)
        whole = np.trunc(np.clip(np.where(np.isnan(number), 0, number), low, high))
        found: Array = whole.astype(np.int64).astype(HELD[to])
        return found

    return b.compute(kinds, apply, value)


def truncated(is_signed: bool) -> Builder:
    """fptosi, fptoui. Beyond the range LLVM leaves the result open, and AMD's i32 saturates; so do all here."""

    def build(b: Build) -> Effect:
        value, kinds = _cast(b)
        return to_integer(is_signed, kinds, b, value)

    return build


# --- intrinsics ------------------------------------------------------------------------------------------------------


def model(name: str) -> Builder:
    """An instruction of models/amd_plain.py, on float; on half and bfloat where it chooses one of its operands."""
    selects = name.startswith(("v_m",))

    def build(b: Build) -> Effect:
        kind, found = b.kinds[0], amd.models_of(b.target)[name]
        run: Any = found.run
        if kind == "float":
            return _by_model(b, found, *b.arguments)
        if not selects or kind not in LAYOUTS:
            raise NotExecuted(f"opcode {b.opcode} of {kind}")
        layout = LAYOUTS[kind]

        def apply(*sources: Array) -> Array:
            wide = (r.widened(x.astype(np.uint32), layout) for x in sources)
            return r.narrowed(run(*wide).first, layout, "rn", layout.special, layout.special).astype(np.uint16)

        return b.compute(b.kinds, apply, *b.arguments)

    return build


def _by_model(b: Build, model: Model, *values: Value, modes: tuple[object, ...] = ()) -> Effect:
    """The answers of a model, part by part, as the machine's choice picks them."""
    names, run = b.registers(b.kinds), cast(Any, model.run)

    def effect(machine: Machine, active: Active) -> None:
        for name, *row in zip(names, *values, strict=True):
            answer = run(*(part.read(machine) for part in row), *modes)
            machine.write(name, taken(machine, model, answer, active), active)

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
    if b.kinds != ("float",):
        raise NotExecuted(f"opcode {b.opcode} of {b.kinds[0]}")
    model_of = amd.models_of(b.target)["v_med3_f32"]
    return _by_model(b, model_of, *b.arguments, modes=(not b.target.startswith("gfx12"),))


def fused(b: Build) -> Effect:
    """llvm.fma: one rounding."""
    kind = b.kinds[0]
    if kind not in NUMBERS or (kind == "half" and OVERFLOW in b.named):
        raise NotExecuted(f"opcode {b.opcode} of {kind}")
    number = NUMBERS[kind]

    def apply(*sources: Array) -> Array:
        x, y, z = (source.view(number) for source in sources)
        return _made(_fma(x, y, z), kind, x, y, z)

    promised = b.flags & {"nnan", "ninf"}
    if promised:
        return _promised(b, b.kinds, apply, list(b.arguments), promised)
    return b.compute(b.kinds, apply, *b.arguments)


def fused_sum(b: Build, kinds: Kinds, fused: Fused) -> Effect:
    """A product and a sum with one rounding."""
    kind, one, other = kinds[0], fused.negate_product, fused.negate_other
    if kind == "bfloat":

        def of_bf16(x: Array, y: Array, z: Array) -> Array:
            return ptx_arithmetic.fma_bf16(x ^ _SIGN16 if one else x, y, z ^ _SIGN16 if other else z)

        return b.compute(kinds, of_bf16, fused.product.first, fused.product.second, fused.other)
    number = NUMBERS[kind]

    def apply(*sources: Array) -> Array:
        x, y, z = (source.view(number) for source in sources)
        return _made(_fma(-x if one else x, y, -z if other else z), kind, x, y, z)

    return b.compute(kinds, apply, fused.product.first, fused.product.second, fused.other)


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
    kind, whole_kind = b.kinds
    fraction, exponent = b.registers(b.kinds)
    value = b.scalar(0)

    def effect(machine: Machine, active: Active) -> None:
        number = value.read(machine).view(NUMBERS[kind])
        parts, powers = np.frexp(number)
        powers = np.where(np.isfinite(number), powers, 0)
        machine.write(fraction, _made(parts, kind, number), active)
        machine.write(exponent, powers.astype(signed(whole_kind)).view(HELD[whole_kind]), active)

    return effect


def scale_by(b: Build) -> Effect:
    """llvm.ldexp: times a power of two, rounded once."""
    kind, value, power = b.kinds[0], b.scalar(0), b.scalar(1)
    (name,) = b.registers(b.kinds)

    def effect(machine: Machine, active: Active) -> None:
        number = value.read(machine).view(NUMBERS[kind])
        powers = np.clip(power.read(machine).view(signed(power.kind)).astype(np.int64), -5000, 5000).astype(np.int32)
        machine.write(name, _made(np.ldexp(number, powers), kind, number), active)

    return effect


def saturated(is_signed: bool) -> Builder:
    """llvm.fptosi.sat, llvm.fptoui.sat."""
    return lambda b: to_integer(is_signed, b.kinds, b, b.arguments[0])


OPCODES: dict[str, Builder] = {
    "fadd": arithmetic(np.add), "fsub": arithmetic(np.subtract), "fmul": arithmetic(np.multiply),
    "fdiv": arithmetic(np.divide), "fneg": negate, "fcmp": compare, "fpext": extend, "fptrunc": truncate,
    "sitofp": from_integer(True), "uitofp": from_integer(False), "fptosi": truncated(True), "fptoui": truncated(False),
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
    "llvm.fptosi.sat": saturated(True), "llvm.fptoui.sat": saturated(False),
}  # fmt: skip
