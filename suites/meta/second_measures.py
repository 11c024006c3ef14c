"""The second derivation of the measures: element by element, in exact fractions, from the words of docs/measures.md.

How a reader goes from codes back to numbers stands here by hand, for each family of recipes; nothing is derived from
a recipe's steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from narrowgauge.suites.meta.second_derivation import LAYOUTS, Number, decode, is_zero

#: value of the code, of the scale, of the global scale, of the zero point -> what an element comes back as
Reader = Callable[[Fraction, Fraction, Fraction, Fraction], Fraction]

#: by the beginning of a recipe's name; the longest that fits holds
READERS: Mapping[str, Reader] = {
    "": lambda code, scale, of_tensor, zero: code * scale,
    "ocp.mxint8": lambda code, scale, of_tensor, zero: code / 64 * scale,  # OCP MX 1.0: codes of MXINT8 count 64ths
    "nvidia.nvfp4_divisor": lambda code, scale, of_tensor, zero: code * scale / of_tensor,
    "nvidia.nvfp4_multiplier": lambda code, scale, of_tensor, zero: code * scale * of_tensor,
    "vllm.nvfp4": lambda code, scale, of_tensor, zero: code * scale / of_tensor,
    "vllm.int8_static_azp": lambda code, scale, of_tensor, zero: (code - zero) * scale,
    "vllm.int8_per_token_dynamic_azp": lambda code, scale, of_tensor, zero: (code - zero) * scale,
}


def reader_of(recipe: str) -> Reader:
    return READERS[max((name for name in READERS if recipe.startswith(name)), key=len)]


@dataclass
class Sums:
    """Of some elements: how many of each kind, energies, the largest error in ulps."""

    counts: dict[str, int] = field(default_factory=dict)
    signal: Fraction = Fraction(0)
    noise: dict[str, Fraction] = field(default_factory=dict)
    max_ulp: Fraction = Fraction(0)


@dataclass(frozen=True)
class Element:
    """One element: its value, its code, and what its block's scale, global scale and zero point are."""

    x: Number
    code: int
    scale: Number
    of_tensor: Number
    zero: Fraction


def real(number: Number) -> Fraction:
    return -number.magnitude if number.negative else number.magnitude


def step(format: str, magnitude: Fraction) -> Fraction:
    """The distance between neighbours of a format where a magnitude lies."""
    layout = LAYOUTS[format]
    if layout.is_integer:
        return Fraction(1)
    exponent = 1 - layout.bias
    while magnitude >= Fraction(2) ** (exponent + 1):
        exponent += 1
    return Fraction(2) ** (exponent - layout.mantissa_bits)


def measured(elements: Sequence[Element], recipe: str, format: str, bound: Fraction, unsigned: bool = False) -> Sums:
    """All of some elements. ``bound`` is the last value above; the last one below is its negative, or 0."""
    sums, read = Sums(), reader_of(recipe)
    for e in elements:
        code = decode(e.code, format)
        if e.x.kind != "finite":
            kind = "not_finite"
        elif code.kind != "finite" or e.scale.kind != "finite" or e.of_tensor.kind != "finite" or is_zero(e.of_tensor):
            kind = "lost"
        else:
            kind = _take(sums, e, real(code), read, format, bound, unsigned)
        sums.counts[kind] = sums.counts.get(kind, 0) + 1
    return sums


def _take(sums: Sums, e: Element, code: Fraction, read: Reader, format: str, bound: Fraction, unsigned: bool) -> str:
    x, back = real(e.x), read(code, real(e.scale), real(e.of_tensor), e.zero)
    unit = read(Fraction(1), real(e.scale), real(e.of_tensor), Fraction(0))
    error = x - back
    sums.signal += x * x
    half = step(format, bound) / 2 * unit
    lowest = Fraction(0) if unsigned else -bound
    if error == 0:
        kind = "exact"
    elif (code >= bound and error > half) or (code <= lowest and -error > half):
        kind = "clipped"
    else:
        kind = "flushed" if back == 0 else "rounded"
    sums.noise[kind] = sums.noise.get(kind, Fraction(0)) + error * error
    if unit:
        sums.max_ulp = max(sums.max_ulp, abs(error) / (step(format, min(abs(x) / unit, bound)) * unit))
    return kind
