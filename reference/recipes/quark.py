"""AMD Quark's MX quantizers: a power of two by three rules, for fp8, fp6, fp4 and int8 elements."""

from __future__ import annotations

from dataclasses import replace

from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.contracts.recipe import Chain, Destination, Recipe, Step, group
from narrowgauge.reference.recipes.common import MX, MXINT8, NAN_UNLESS_FINITE, NAN_WHERE_AMAX_IS, TO_MXINT8
from narrowgauge.reference.recipes.standards import E8M0

_INTERFACE = "Quark 0.13, torch/kernel/hw_emulation/hw_emulation_interface.py:1073-1138"
#: fp4 and fp6: what becomes 0 has no sign
_UNSIGNED_ZERO = CastPolicy(nan="max", negative_zero="drop")
_FLOATS = tuple(d if d.format.startswith("float8") else replace(d, cast=_UNSIGNED_ZERO) for d in MX)
_TOP: tuple[str, Chain] = ("top", ("bound", "floor_pow2"))
_OVER_TOP: Step = ("div", "top")


def _mx(
    name: str, destinations: tuple[Destination, ...], steps: tuple[tuple[str, Chain], ...], *to_codes: Step
) -> Recipe:
    """The elements are divided by the power of two itself, which may lie below the least that is stored, 2^-127."""
    return Recipe(
        name=f"quark.{name}",
        blocks=group(32),
        destinations=destinations,
        amax_nan="keep",
        steps=steps,
        element=("x", ("div", "scale"), *to_codes),
        scale_format=E8M0,
        scale_cast="e8m0_floor",
        source=f"{_INTERFACE}; to_e8m0_uint8",
    )


def _by_logarithm(step: str, *over: Step) -> tuple[tuple[str, Chain], ...]:
    """A block of zeros has float32's epsilon; of an infinite amax nothing is left."""
    return NAN_UNLESS_FINITE, ("scale", ("amax", step, *over, ("zero_to", 2.0**-23), ("add", "nan")))


def _by_bits(mantissa: int, *over: Step) -> tuple[tuple[str, Chain], ...]:
    """amax rounded to so many mantissa bits; a block of zeros counts as 2^-126. Held to 2^-127 and 2^127."""
    chain: Chain = ("amax", ("zero_to", 2.0**-126), ("even_pow2", mantissa), *over)
    ends: tuple[Step, ...] = (("at_least", 2.0**-127), ("at_most", 2.0**127), ("add", "nan"))
    return NAN_WHERE_AMAX_IS, ("scale", (*chain, *ends))


def _even(name: str, mantissa: int, *formats: str) -> Recipe:
    chosen = tuple(d for d in _FLOATS if d.format in formats)
    return _mx(name, chosen, (_TOP, *_by_bits(mantissa, _OVER_TOP)))


RECIPES = (
    _even("mxfp4_even", 1, "float4_e2m1fn"),
    _even("mx_even_2", 2, "float6_e3m2fn", "float8_e5m2"),
    _even("mx_even_3", 3, "float6_e2m3fn", "float8_e4m3fn"),
    _mx("mx_floor", _FLOATS, (_TOP, *_by_logarithm("exp2_floor_log2", _OVER_TOP))),
    _mx("mx_ceil", _FLOATS, (_TOP, *_by_logarithm("exp2_ceil_log2", _OVER_TOP))),
    _mx("mxint8_even", (MXINT8,), _by_bits(8), *TO_MXINT8),
    _mx("mxint8_floor", (MXINT8,), _by_logarithm("exp2_floor_log2"), *TO_MXINT8),
    _mx("mxint8_ceil", (MXINT8,), _by_logarithm("exp2_ceil_log2"), *TO_MXINT8),
)
