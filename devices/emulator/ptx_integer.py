"""Opcodes of PTX on integers and bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from narrowgauge.devices.emulator.memory import Array
from narrowgauge.devices.emulator.ptx_operands import TYPES, Build, Builder, Effect

INTEGERS = tuple(f"{kind}{bits}" for kind in "us" for bits in (16, 32, 64))
BITS = ("b16", "b32", "b64")
WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}


def two(function: Callable[[Array, Array], Array]) -> Builder:
    """An operation on two integers of one type, modulo 2^n."""

    def build(b: Build) -> Effect:
        kind = b.type(*INTEGERS, "u16x2", "s16x2")
        return b.compute(_on_halves(function, kind) if kind.endswith("x2") else function, kind, kind, kind)

    return build


def _on_halves(function: Callable[[Array, Array], Array], kind: str) -> Callable[[Array, Array], Array]:
    """An operation on both halves of a word."""
    part = TYPES[kind.removesuffix("x2")]

    def packed(x: Array, y: Array) -> Array:
        halves = (np.ascontiguousarray(v).view(part).reshape(-1, 2) for v in (x, y))
        return np.ascontiguousarray(function(*halves)).view(np.uint32)[:, 0]

    return packed


def one(function: Callable[[Array], Array]) -> Builder:
    def build(b: Build) -> Effect:
        kind = b.type("s16", "s32", "s64")
        return b.compute(function, kind, kind)

    return build


def logic(function: Callable[..., Array], operands: int = 2) -> Builder:
    """and, or, xor, not: bit patterns and predicates."""

    def build(b: Build) -> Effect:
        kind = b.type(*BITS, "pred")
        return b.compute(function, kind, *[kind] * operands)

    return build


def multiply(b: Build) -> Effect:
    """mul.lo, mul.wide, mul.hi."""
    part, kind = b.flag("lo", "wide", "hi"), b.type(*INTEGERS)
    function, to = _product(b, part, kind)
    return b.compute(function, to, kind, kind)


def multiply_add(b: Build) -> Effect:
    """mad.lo, mad.wide, mad.hi."""
    part, kind = b.flag("lo", "wide", "hi"), b.type(*INTEGERS)
    function, to = _product(b, part, kind)
    return b.compute(lambda x, y, z: function(x, y) + z, to, kind, kind, to)


def _product(b: Build, part: str, kind: str) -> tuple[Callable[[Array, Array], Array], str]:
    if part == "lo":
        return np.multiply, kind
    if part == "hi" and kind in ("u64", "s64"):
        return _high, kind
    if part not in ("wide", "hi") or kind not in WIDER:
        raise b.refuse()
    wide = TYPES[WIDER[kind]]
    if part == "wide":
        return lambda x, y: x.astype(wide) * y.astype(wide), WIDER[kind]
    bits = 8 * TYPES[kind].itemsize
    return lambda x, y: (x.astype(wide) * y.astype(wide) >> wide.type(bits)).astype(TYPES[kind]), kind


def _high(x: Array, y: Array) -> Array:
    """The upper 64 bits of a product of 64-bit words, from products of their halves."""
    a, b, half, low = x.view(np.uint64), y.view(np.uint64), np.uint64(32), np.uint64(0xFFFFFFFF)
    cross = (a >> half) * (b & low) + ((a & low) * (b & low) >> half)
    other = (a & low) * (b >> half) + (cross & low)
    high = (a >> half) * (b >> half) + (cross >> half) + (other >> half)
    if x.dtype.kind == "i":  # a negative word stands for itself less 2^64
        high = high - np.where(x < 0, b, np.uint64(0)) - np.where(y < 0, a, np.uint64(0))
    found: Array = high.view(x.dtype)
    return found


def shift(left: bool) -> Builder:
    """shl, shr: an amount beyond the width gives 0, or the sign."""

    def build(b: Build) -> Effect:
        kind = b.type(*(BITS if left else (*BITS, *INTEGERS)))
        dtype = TYPES[kind]
        width = 8 * dtype.itemsize

        def compute(value: Array, amount: Array) -> Array:
            kept = np.minimum(amount, width - 1).astype(dtype)
            moved: Array = value << kept if left else value >> kept
            if dtype.kind == "i" or int(amount.max()) < width:
                return moved
            cut: Array = np.where(amount >= width, dtype.type(0), moved)
            return cut

        return b.compute(compute, kind, kind, "u32")

    return build


def funnel(left: bool) -> Builder:
    """shf: 32 bits of b:a (b is the upper word) shifted; .wrap takes the amount modulo 32, .clamp up to 32."""

    def build(b: Build) -> Effect:
        mode, _ = b.flag("wrap", "clamp"), b.type("b32")
        side = b.flag("l", "r")
        if not mode or side != ("l" if left else "r"):
            raise b.refuse()

        def compute(low: Array, high: Array, amount: Array) -> Array:
            n = (amount & 31 if mode == "wrap" else np.minimum(amount, 32)).astype(np.uint64)
            both = high.astype(np.uint64) << np.uint64(32) | low
            moved = (both << n) >> np.uint64(32) if left else both >> n
            return moved.astype(np.uint32)

        return b.compute(compute, "b32", "b32", "b32", "u32")

    return build


def shf(b: Build) -> Effect:
    return funnel("l" in b.modifiers)(b)


def quotient(b: Build) -> Effect:
    """div of integers: towards zero; by zero gives all ones, which the ISA leaves open."""
    kind = b.type(*INTEGERS)
    return b.compute(lambda x, y: _divided(x, y)[0], kind, kind, kind)


def remainder(b: Build) -> Effect:
    """rem: of the sign of the dividend."""
    kind = b.type(*INTEGERS)
    return b.compute(lambda x, y: _divided(x, y)[1], kind, kind, kind)


def _divided(x: Array, y: Array) -> tuple[Array, Array]:
    zero = y == 0
    divisor = np.where(zero, y.dtype.type(1), y)
    rest = np.fmod(x, divisor)
    whole = (x - rest) // divisor
    return np.where(zero, y.dtype.type(-1 if y.dtype.kind == "i" else np.iinfo(y.dtype).max), whole), rest


def extract(b: Build) -> Effect:
    """bfe: length c[7:0] of the bits of a from position b[7:0], zero-extended, or from the last one by its sign."""
    kind = b.type("u32", "s32", "u64", "s64")
    dtype = TYPES[kind]
    width = 8 * dtype.itemsize

    def compute(value: Array, position: Array, length: Array) -> Array:
        at = position & 0xFF
        n = np.minimum(length & 0xFF, np.maximum(width - at.astype(np.int64), 0))  # what is there from a position on
        some = length & 0xFF > 0
        unsigned = value.view(TYPES[f"u{width}"])
        u = unsigned.dtype.type
        moved = np.where(at >= width, u(0), unsigned >> np.minimum(at, width - 1).astype(unsigned.dtype))
        mask = np.where(n >= width, u(2**width - 1), (u(1) << np.minimum(n, width - 1).astype(unsigned.dtype)) - u(1))
        field: Array = moved & mask
        if dtype.kind == "u":
            return field
        last = np.minimum(at.astype(np.int64) + (length & 0xFF) - 1, width - 1).clip(0)
        negative = ((unsigned >> last.astype(unsigned.dtype)) & u(1) == 1) & some
        filled: Array = np.where(negative, field | ~mask, field).view(dtype)
        return filled

    return b.compute(compute, kind, kind, "u32", "u32")


def insert(b: Build) -> Effect:
    """bfi: the low length d[7:0] bits of a put into b at position c[7:0]."""
    kind = b.type("b32", "b64")
    width = 8 * TYPES[kind].itemsize
    u = TYPES[kind].type

    def compute(field: Array, into: Array, position: Array, length: Array) -> Array:
        at, n = position & 0xFF, length & 0xFF
        ones = np.where(n >= width, u(2**width - 1), (u(1) << np.minimum(n, width - 1).astype(u)) - u(1))
        shift_by = np.minimum(at, width - 1).astype(u)
        mask = np.where(at >= width, u(0), ones << shift_by)
        merged: Array = into & ~mask | (field << shift_by) & mask
        return merged

    return b.compute(compute, kind, kind, kind, "u32", "u32")


def permute(b: Build) -> Effect:
    """prmt, default mode: byte i of the result is byte (c >> 4i) & 7 of b:a, or its sign where bit 3 is set."""
    b.type("b32")

    def compute(low: Array, high: Array, control: Array) -> Array:
        both = high.astype(np.uint64) << np.uint64(32) | low
        result = np.zeros(1, np.uint32)
        for i in range(4):
            chosen = control >> np.uint32(4 * i)
            byte = (both >> (chosen & 7).astype(np.uint64) * np.uint64(8)).astype(np.uint32) & 0xFF
            signs = np.where(byte & 0x80, np.uint32(0xFF), np.uint32(0))
            result = result | np.where(chosen & 8, signs, byte) << np.uint32(8 * i)
        return result

    return b.compute(compute, "b32", "b32", "b32", "b32")


def table(b: Build) -> Effect:
    """lop3: bit (4a + 2b + c) of the table."""
    b.type("b32")

    def compute(x: Array, y: Array, z: Array, lut: Array) -> Array:
        result = np.zeros(1, np.uint32)
        for i in range(8):
            if int(lut[0]) >> i & 1:
                result = result | (x if i & 4 else ~x) & (y if i & 2 else ~y) & (z if i & 1 else ~z)
        return result

    return b.compute(compute, "b32", "b32", "b32", "b32", "b32")


def leading_zeros(b: Build) -> Effect:
    """clz."""
    kind = b.type("b32", "b64")
    width = 8 * TYPES[kind].itemsize

    return b.compute(lambda x: _leading_zeros(x, width).astype(np.uint32), "u32", kind)


def _leading_zeros(x: Array, width: int) -> Array:
    upper = np.frexp((x >> x.dtype.type(width // 2)).astype(np.float64))[1]
    lower = np.frexp((x & x.dtype.type(2 ** (width // 2) - 1)).astype(np.float64))[1]
    zeros: Array = width - np.where(upper > 0, upper + width // 2, lower).astype(np.int64)
    return zeros


def find(b: Build) -> Effect:
    """bfind: place of the topmost bit that differs from the sign, all ones if none; .shiftamt: from the top."""
    shiftamt = b.flag("shiftamt")
    kind = b.type("u32", "s32", "u64", "s64")
    width = 8 * TYPES[kind].itemsize

    def compute(x: Array) -> Array:
        word = np.where(x < 0, ~x, x).view(TYPES[f"u{width}"])
        zeros = _leading_zeros(word, width)
        none: Array = np.where(zeros == width, 0xFFFFFFFF, zeros if shiftamt else width - 1 - zeros)
        return none.astype(np.uint32)

    return b.compute(compute, "u32", kind)


def ones(b: Build) -> Effect:
    """popc."""
    kind = b.type("b32", "b64")
    return b.compute(lambda x: np.bitwise_count(x).astype(np.uint32), "u32", kind)


def reverse(b: Build) -> Effect:
    """brev: the bits in the other order."""
    kind = b.type("b32", "b64")
    size = TYPES[kind].itemsize

    def compute(x: Array) -> Array:
        # np.unpackbits goes from the top bit down, over bytes that are big-endian here.
        bits = np.unpackbits(x.astype(f">u{size}").view(np.uint8).reshape(-1, size), axis=1)
        turned: Array = np.packbits(bits[:, ::-1], axis=1).view(f">u{size}")[:, 0].astype(TYPES[kind])
        return turned

    return b.compute(compute, kind, kind)


OPCODES: dict[str, Builder] = {
    "shl": shift(left=True),
    "shr": shift(left=False),
    "shf": shf,
    "and": logic(np.bitwise_and),
    "or": logic(np.bitwise_or),
    "xor": logic(np.bitwise_xor),
    "not": logic(np.invert, 1),
    "mad": multiply_add,
    "rem": remainder,
    "bfe": extract,
    "bfi": insert,
    "prmt": permute,
    "lop3": table,
    "clz": leading_zeros,
    "bfind": find,
    "popc": ones,
    "brev": reverse,
}
