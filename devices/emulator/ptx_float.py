"""Opcodes of PTX on floating-point numbers, those that have integers too, and comparisons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from narrowgauge.devices.emulator.memory import Array
from narrowgauge.devices.emulator.modelled import by_model
from narrowgauge.devices.emulator.models import ptx_arithmetic as models
from narrowgauge.devices.emulator.models.nvidia import nvidia_model
from narrowgauge.devices.emulator.models.rounding_ieee import bf16_of, float32_of_bf16
from narrowgauge.devices.emulator.ptx_integer import INTEGERS, multiply, one, quotient, two
from narrowgauge.devices.emulator.ptx_operands import TYPES, Build, Builder, Effect

FLOATS = ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2", "f32x2")
PARTS: dict[str, np.dtype[Any]] = {
    "f16x2": np.dtype(np.float16),
    "bf16x2": np.dtype(np.uint16),
    "f32x2": np.dtype(np.float32),
}
Function = Callable[..., Array]


def on_type(function: Function, kind: str, ftz: bool) -> Function:
    """A function of float32, float64 or float16 made one of a type's patterns: packed, bfloat16, or flushing."""
    scalar = function
    if kind.startswith("bf16"):

        def scalar(*values: Array) -> Array:
            return bf16_of(function(*(float32_of_bf16(v) for v in values)))
    elif ftz:
        if kind not in ("f32", "f32x2"):
            raise ValueError(kind)

        def scalar(*values: Array) -> Array:
            return models.flush(function(*(models.flush(v) for v in values)))

    if kind not in PARTS:
        return scalar
    part, whole = PARTS[kind], TYPES[kind]

    def packed(*values: Array) -> Array:
        parts = (np.ascontiguousarray(v).view(part).reshape(-1, 2) for v in values)
        found = scalar(*parts)
        return np.ascontiguousarray(found).view(whole)[:, 0]

    return packed


def _float(b: Build, function: Function, operands: int, kind: str) -> Effect:
    ftz, saturating = bool(b.flag("ftz")), b.base in ("add", "sub", "mul", "fma") and bool(b.flag("sat"))
    if (ftz and kind not in ("f32", "f32x2")) or (saturating and kind != "f32"):
        raise b.refuse()
    if saturating:
        plain = function

        def function(*values: Array) -> Array:
            return models.saturate(plain(*values))

    return b.compute(on_type(function, kind, ftz), kind, *[kind] * operands)


def arithmetic(integers: Builder, function: Function, operands: int = 2, rounded: bool = True) -> Builder:
    """add, sub, mul, … : of integers or of floats; floats to nearest even (.rn, which is the default)."""

    def build(b: Build) -> Effect:
        if not any(name in FLOATS for name in b.modifiers):
            return integers(b)
        if rounded and not b.flag("rn") and (how := b.flag("rz", "rm", "rp")):
            return _directed(b, how)
        if mixed := _mixed(b):
            if len(b.operands) != 3 or b.base not in ("add", "sub"):
                raise b.refuse()
            return b.compute(lambda x, y: function(_widen(x), y), "f32", mixed, "f32")
        return _float(b, function, operands, b.type(*FLOATS))

    return build


def _directed(b: Build, how: str) -> Effect:
    """add, sub and mul of float32 with a directed rounding."""
    if b.base == "mul":
        return _float(b, models.product_directed(how), 2, b.type("f32"))
    total = models.sum_directed(how)
    return _float(b, total if b.base == "add" else lambda x, y: total(x, -y), 2, b.type("f32"))


def _ieee(function: Callable[[Array, Array], Array]) -> Function:
    return lambda x, y: models.canonical(function(x, y))


def _mixed(b: Build) -> str:
    """The narrow type of a mixed-precision instruction (.f32.f16, .f32.bf16), taken out; "" for others."""
    for narrow in ("f16", "bf16"):
        if b.modifiers == ["f32", narrow]:
            b.modifiers.clear()
            return narrow
    return ""


def _widen(x: Array) -> Array:
    """float16 numbers or bfloat16 patterns as float32."""
    return float32_of_bf16(x) if x.dtype == np.uint16 else x.astype(np.float32)


def fused(b: Build) -> Effect:
    """fma.rn."""
    if how := b.flag("rz", "rm", "rp"):
        return _float(b, models.fma_directed(how), 3, b.type("f32"))
    if not b.flag("rn"):
        raise b.refuse()
    if mixed := _mixed(b):
        return b.compute(lambda x, y, z: models.fma(_widen(x), _widen(y), z), "f32", mixed, mixed, "f32")
    kind = b.type("f32", "f64", "f16", "f16x2", "f32x2", "bf16", "bf16x2")
    if kind == "f64":
        return b.compute(models.fma64, kind, kind, kind, kind)
    if not kind.startswith("bf16"):
        return _float(b, models.fma, 3, kind)
    return b.compute(_on_bf16(models.fma_bf16, kind), kind, kind, kind, kind)


def _on_bf16(function: Function, kind: str) -> Function:
    """A function of bfloat16 patterns, on packed ones too."""
    if kind == "bf16":
        return function

    def packed(*values: Array) -> Array:
        parts = (np.ascontiguousarray(v).view(np.uint16).reshape(-1, 2) for v in values)
        return np.ascontiguousarray(function(*parts)).view(np.uint32)[:, 0]

    return packed


def extreme(smallest: bool) -> Builder:
    """min and max."""

    def build(b: Build) -> Effect:
        if not any(name in FLOATS for name in b.modifiers):
            return two(np.minimum if smallest else np.maximum)(b)
        function: Function = models.minimum if smallest else models.maximum
        nan, xorsign = b.flag("NaN"), b.flag("xorsign")
        if xorsign:
            if not b.flag("abs"):
                raise b.refuse()
            function = models.xorsign_abs(function)
        kind = b.type("f32", "f64", "f16", "bf16", "f16x2", "bf16x2")
        if nan:
            if kind == "f64":
                raise b.refuse()
            function = models.propagating(function)
        if len(b.operands) == 4 and kind == "f32":  # sm_100 and later: of three
            of_two = function
            return _float(b, lambda x, y, z: of_two(of_two(x, y), z), 3, kind)
        return _float(b, function, 2, kind)

    return build


def sign_bit(function: Callable[[Array, Array], Array], integers: Builder) -> Builder:
    """abs and neg of floats: on the sign bit alone, NaN too."""

    def build(b: Build) -> Effect:
        if not any(name in FLOATS for name in b.modifiers):
            return integers(b)
        kind = b.type("f32", "f64", "f16", "bf16", "f16x2", "bf16x2")
        ftz = b.flag("ftz")
        if ftz and kind != "f32":
            raise b.refuse()
        bits = {"f16x2": 0x80008000, "bf16x2": 0x80008000}.get(kind, 1 << 8 * TYPES[kind].itemsize - 1)
        whole = np.dtype(f"u{TYPES[kind].itemsize}")
        mask = whole.type(bits)

        def compute(x: Array) -> Array:
            found = function((models.flush(x) if ftz else x).view(whole), mask)
            return found.view(TYPES[kind])

        return b.compute(compute, kind, kind)

    return build


def copy_sign(b: Build) -> Effect:
    """copysign d, a, b: the sign of a, the magnitude of b."""
    kind = b.type("f32", "f64")
    whole = np.dtype(f"u{TYPES[kind].itemsize}")
    top = whole.type(1 << 8 * whole.itemsize - 1)
    unsigned = f"u{8 * whole.itemsize}"
    return b.compute(lambda x, y: x & top | y & ~top, unsigned, unsigned, unsigned)


def divide(b: Build) -> Effect:
    """div.rn; div.full and div.approx by their models; of integers."""
    if not any(name in FLOATS for name in b.modifiers):
        return quotient(b)
    if model := nvidia_model(b.opcode):
        return by_model(b, model)
    if not b.flag("rn"):
        raise b.refuse()
    return _float(b, models.divide, 2, b.type("f32", "f64"))


def unary(function: Function | None = None) -> Builder:
    """A function of one float32: .approx by its model; .rn, for f64 too, by ``function``."""

    def build(b: Build) -> Effect:
        if model := nvidia_model(b.opcode):
            return by_model(b, model)
        if function is None or not b.flag("rn"):
            raise b.refuse()
        return _float(b, function, 1, b.type("f32", "f64"))

    return build


# --- comparisons -----------------------------------------------------------------------------------------------------

_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip
_UNORDERED = {"equ": "eq", "neu": "ne", "ltu": "lt", "leu": "le", "gtu": "gt", "geu": "ge"}
_COMBINE = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


def _comparison(name: str, floats: bool) -> Function | None:
    """The comparison of a name: for floats, ordered ones are false with a NaN, unordered ones (…u) are true."""
    if not floats:
        return _COMPARE.get(name)
    if name == "num":
        return lambda x, y: ~(np.isnan(x) | np.isnan(y))
    if name == "nan":
        return lambda x, y: np.isnan(x) | np.isnan(y)
    if name in _UNORDERED:
        inner = _COMPARE[_UNORDERED[name]]
        return lambda x, y: inner(x, y) | np.isnan(x) | np.isnan(y)
    if name == "ne":
        return lambda x, y: np.not_equal(x, y) & ~np.isnan(x) & ~np.isnan(y)
    return _COMPARE.get(name) if name not in ("lo", "ls", "hi", "hs") else None


def _take_comparison(b: Build, kind: str) -> Function:
    name = b.modifiers.pop(0)
    compare = _comparison(name, kind in FLOATS)
    if compare is None:
        raise b.refuse()
    if kind.startswith("bf16"):
        return lambda x, y: compare(float32_of_bf16(x), float32_of_bf16(y))
    if b.flag("ftz"):
        return lambda x, y: compare(models.flush(x), models.flush(y))
    return compare


def set_predicate(b: Build) -> Effect:
    """setp, with or without another predicate."""
    kind = b.type(*INTEGERS, "b16", "b32", "b64", "f32", "f64", "f16", "bf16")
    compare = _take_comparison(b, kind)
    combine = b.flag(*_COMBINE)
    if not combine:
        return b.compute(compare, "pred", kind, kind)
    with_other = _COMBINE[combine]
    return b.compute(lambda x, y, p: with_other(compare(x, y), p), "pred", kind, kind, "pred")


def set_value(b: Build) -> Effect:
    """set: all ones for integers, 1.0 for floats."""
    to = b.type("u32", "s32", "f32", "f16", "f16x2")
    kind = b.type("f16x2") if to == "f16x2" else b.type(*INTEGERS, "f32", "f16")
    if to == "f16x2":
        compare = _take_comparison(b, "f16")
        return b.compute(on_type(lambda x, y: compare(x, y).astype(np.float16), to, ftz=False), to, kind, kind)
    compare = _take_comparison(b, kind)
    true = TYPES[to].type(1.0) if to[0] == "f" else TYPES[to].type(-1 if to == "s32" else 0xFFFFFFFF)
    return b.compute(lambda x, y: np.where(compare(x, y), true, TYPES[to].type(0)), to, kind, kind)


def select(b: Build) -> Effect:
    """selp: the first where the predicate is true."""
    kind = b.type("b16", "b32", "b64", *INTEGERS, "f32", "f64")
    unsigned = f"u{8 * TYPES[kind].itemsize}"

    def choose(x: Array, y: Array, p: Array) -> Array:
        return np.where(p, x, y)

    return b.compute(choose, unsigned, unsigned, unsigned, "pred")


OPCODES: dict[str, Builder] = {
    "add": arithmetic(two(np.add), _ieee(np.add)),
    "sub": arithmetic(two(np.subtract), _ieee(np.subtract)),
    "mul": arithmetic(multiply, _ieee(np.multiply)),
    "fma": fused,
    "min": extreme(smallest=True),
    "max": extreme(smallest=False),
    "abs": sign_bit(lambda x, mask: x & ~mask, one(np.abs)),
    "neg": sign_bit(lambda x, mask: x ^ mask, one(np.negative)),
    "copysign": copy_sign,
    "div": divide,
    "rcp": unary(models.reciprocal),
    "sqrt": unary(models.root),
    **{name: unary() for name in ("rsqrt", "ex2", "lg2", "sin", "cos", "tanh")},
    "setp": set_predicate,
    "set": set_value,
    "selp": select,
}
