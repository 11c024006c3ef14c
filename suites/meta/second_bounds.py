"""Sums of products by definition, in whole numbers of Python: what units and engines may make of a dot product.

Written from the words of facts and papers, not from ``reference``: it shares no code with it. Every number is a whole
multiple of 2^-``SCALE``, so nothing is rounded but where a unit rounds.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

#: products of two bfloat16 reach down to 2^-266
SCALE = 320
ONE = 1 << SCALE

#: exponent bits, mantissa bits, bias
FORMATS = {
    "float8_e4m3fn": (4, 3, 7), "float8_e5m2": (5, 2, 15), "float8_e4m3fnuz": (4, 3, 8), "float8_e5m2fnuz": (5, 2, 16),
    "float16": (5, 10, 15), "bfloat16": (8, 7, 127), "tfloat32": (8, 10, 127), "float32": (8, 23, 127),
    "float4_e2m1fn": (2, 1, 1), "float6_e2m3fn": (2, 3, 1), "float6_e3m2fn": (3, 2, 3),
}  # fmt: skip


@dataclass(frozen=True)
class Term:
    """A product: its value, and the exponent by which a unit aligns it; 0 has none."""

    value: int
    exponent: int
    subnormal: bool = False  #: one of its operands is, in the 16 bits in which CDNA2 would be given it


def number(code: int, name: str) -> tuple[int, int, bool]:
    """A finite code's value, its exponent (that of the smallest normal for subnormals), and whether 16 bits have it as
    a subnormal number: in float16 but for what has float32's exponents."""
    exponent, mantissa, bias = FORMATS[name]
    field, fraction = (code >> mantissa) & ((1 << exponent) - 1), code & ((1 << mantissa) - 1)
    whole = fraction + (1 << mantissa if field else 0)
    power = max(field, 1) - bias
    value = whole << (SCALE + power - mantissa)
    low = 0 < value < 1 << (SCALE + (-126 if exponent == 8 else -14))
    return (-value if code >> (exponent + mantissa) else value), power, low


def terms(a: list[int], b: list[int], a_name: str, b_name: str) -> list[Term]:
    """The exact products of two rows of codes."""
    found = []
    for x, y in zip(a, b, strict=True):
        (u, e, low), (v, f, small) = number(x, a_name), number(y, b_name)
        found.append(Term((u * v) >> SCALE, e + f, low or small))
    return found


def cut(value: int, unit: int) -> int:
    """Toward zero to a multiple of 2^unit."""
    shift = SCALE + unit
    return (abs(value) >> shift << shift) * (1 if value >= 0 else -1)


def floor(value: int, unit: int) -> int:
    shift = SCALE + unit
    return value >> shift << shift


def exponent_of(value: int) -> int:
    """floor(log2 |value|); of 0 very small."""
    return abs(value).bit_length() - 1 - SCALE if value else -(10**6)


def nearest(value: int, bits: int, least: int) -> int:
    """To so many fraction bits, ties to even; subnormal below 2^least."""
    unit = max(exponent_of(value), least) - bits
    low = floor(value, unit)
    step = 1 << (SCALE + unit)
    rest = 2 * (value - low)
    up = rest > step or (rest == step and (low // step) % 2 == 1)
    return low + step if up else low


def flushed(value: int) -> int:
    return 0 if exponent_of(value) < -126 else value


Sum = Callable[[list[Term], random.Random], int]


def float32(value: int) -> int:
    return nearest(value, 23, -126)


def fused_step(group: list[Term], c: int, fraction: int, bits: int, to_nearest: int | None = None) -> int:
    """One step of a truncating unit; ``to_nearest`` is the least normal exponent of a result rounded to nearest."""
    least = -126 if to_nearest is None else to_nearest
    top = max([t.exponent for t in group if t.value] + ([max(exponent_of(c), least)] if c else []), default=-132)
    total = sum(cut(t.value, top - fraction) for t in group) + cut(c, top - fraction)
    if to_nearest is not None:
        return nearest(total, bits, least)
    return cut(total, max(exponent_of(total), least) - bits)


def fused(length: int, fraction: int, bits: int, to_nearest: int | None = None) -> Sum:
    """Chunks of ``length`` in ascending k, each with the result of the one before."""

    def run(products: list[Term], _: random.Random, c: int = 0) -> int:
        for k in range(0, len(products), length):
            c = fused_step(products[k : k + length], c, fraction, bits, to_nearest)
        return c

    return run


def two_halves(products: list[Term], rng: random.Random) -> int:
    """fp8 of mma.sync on Hopper: k % 4 in {0, 1}, then {2, 3}, of 32 at a time without addend; then a float32 sum."""
    c = 0
    for k in range(0, len(products), 32):
        group = products[k : k + 32]
        x = fused_step([t for i, t in enumerate(group) if i % 4 < 2], 0, 25, 23)
        x = fused_step([t for i, t in enumerate(group) if i % 4 > 1], x, 25, 23)
        c = float32(c + x)
    return c


def cdna3(length: int, parities: bool) -> Sum:
    def dot(group: list[Term]) -> tuple[int, int]:
        top = max((t.exponent for t in group if t.value), default=-(10**6))
        return (sum(cut(t.value, top - 24) for t in group), top) if top > -(10**6) else (0, top)

    def run(products: list[Term], _: random.Random) -> int:
        c = 0
        for k in range(0, len(products), length):
            group = products[k : k + length]
            total, top = dot(group)
            if parities:
                (even, one), (odd, other) = dot(group[::2]), dot(group[1::2])
                top = max(one, other)
                total = floor(even, top - 24) + floor(odd, top - 24) if top > -(10**6) else 0
            of_c = max(exponent_of(c), -126)
            if parities and of_c < top - 25:
                c = 0
            top = max(top, of_c)
            total = floor(total, top - 31) + floor(c, top - 24)
            c = float32(floor(total, exponent_of(total) - 31)) if total else 0
        return c

    return run


def cdna2(products: list[Term], _: random.Random) -> int:
    """float32 sums in pairs of four products, subnormal operands and results are 0."""
    c = 0
    for k in range(0, len(products), 4):
        p = [0 if t.subnormal else flushed(float32(t.value)) for t in products[k : k + 4]] + [0] * 3
        pairs = flushed(float32(p[0] + p[1])), flushed(float32(p[2] + p[3]))
        c = flushed(float32(c + flushed(float32(sum(pairs)))))
    return c


def cdna1(products: list[Term], _: random.Random) -> int:
    c = 0
    for k in range(0, len(products), 4):
        c = float32(c + sum(t.value for t in products[k : k + 4]))
    return c


def chain(bits: int = 23, least: int = -126) -> Sum:
    """Fused multiply-add, ascending k."""

    def run(products: list[Term], _: random.Random) -> int:
        c = 0
        for t in products:
            c = nearest(c + t.value, bits, least)
        return c

    return run


def tree(bits: int = 23, least: int = -126, flush: bool = False) -> Sum:
    """Rounded products, then any two numbers at a time."""

    def run(products: list[Term], rng: random.Random) -> int:
        def rounded(value: int) -> int:
            found = nearest(value, bits, least)
            return flushed(found) if flush else found

        left = [rounded(t.value) for t in products]
        while len(left) > 1:
            x, y = left.pop(rng.randrange(len(left))), left.pop(rng.randrange(len(left)))
            left.append(rounded(x + y))
        return left[0] if left else 0

    return run


def shuffled(one: Sum) -> Sum:
    """The same in another order of k."""

    def run(products: list[Term], rng: random.Random) -> int:
        return one(rng.sample(products, len(products)), rng)

    return run


def split(one: Sum, every: int, at_random: bool = False) -> Sum:
    """Parts of ``every`` products, added up in float32: promotion, or a loop over tiles; at random, split-k."""

    def run(products: list[Term], rng: random.Random) -> int:
        parts = [one(products[k : k + every], rng) for k in range(0, len(products), every)]
        if at_random:
            rng.shuffle(parts)
        c = 0
        for part in parts:
            c = float32(c + part)
        return c

    return run


_VOLTA, _AMPERE, _HOPPER = fused(4, 23, 23), fused(8, 24, 23), fused(16, 25, 23)
_ADA8, _HOPPER8, _BLACKWELL8 = fused(16, 13, 13), fused(32, 13, 13), fused(32, 25, 23)
#: by accumulator: every way to add that it stands for
WAYS: dict[str, dict[str, Sum]] = {
    "float32_nearest": {"chain": chain(), "tree": tree(), "flushing tree": tree(flush=True)},
    "tensor_core_23": {"volta": _VOLTA, "volta, shuffled": shuffled(_VOLTA), "volta, tiles": split(_VOLTA, 16)},
    "tensor_core_24": {"ampere": _AMPERE, "ampere, tf32": fused(4, 24, 23), "ampere, tiles": split(_AMPERE, 32, True)},
    "tensor_core_25": {"hopper": _HOPPER, "hopper, tf32": fused(8, 25, 23), "blackwell fp8": _BLACKWELL8,
                       "mma.sync fp8": two_halves, "hopper, tiles": split(_HOPPER, 16, True)},
    "cdna3": {"16 bits": cdna3(8, False), "xf32": cdna3(4, False), "fp8": cdna3(16, True),
              "tiles": split(cdna3(8, False), 16)},
    "tensor_core_13": {"ada": _ADA8, "hopper": _HOPPER8, "hopper, shuffled": shuffled(_HOPPER8),
                       "ada, tiles": split(_ADA8, 32), "hopper, split": split(_HOPPER8, 64, True)},
    "promoted_128": {"hopper": split(_HOPPER8, 128), "ada": split(_ADA8, 128, True)},
    "promoted_32": {"hopper": split(_HOPPER8, 32), "ada": split(_ADA8, 32, True)},
    "float16": {"chain": chain(10, -14), "tree": tree(10, -14), "volta": fused(4, 23, 10, -14),
                "hopper": fused(16, 25, 10, -14), "ada fp8": fused(16, 13, 10, -14),
                "hopper fp8": fused(32, 13, 10, -14)},
    "bfloat16": {"chain": chain(7), "tree": tree(7)},
}  # fmt: skip
WAYS["float32"] = {
    **WAYS["float32_nearest"], **WAYS["tensor_core_23"], **WAYS["tensor_core_24"], **WAYS["tensor_core_25"],
    **{f"cdna3, {name}": way for name, way in WAYS["cdna3"].items()}, "cdna1": cdna1,
}  # fmt: skip
WAYS["float32_flushed"] = {"chain": WAYS["float32"]["chain"], "cdna2": cdna2}
