"""AMD Quark's MX quantizers: a power of two by three rules, for fp8, fp6, fp4 and int8 elements."""

from __future__ import annotations

from dataclasses import replace

from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.contracts.recipe import Chain, Destination, Recipe, Step, group
from narrowgauge.reference.recipes.common import MX, MXINT8, NAN_UNLESS_FINITE, NAN_WHERE_AMAX_IS
from narrowgauge.reference.recipes.standards import E8M0, SIXTY_FOURTHS

_INTERFACE = "Quark 0.13, hw_emulation_interface.py:1073-1138"
#: fp4 and fp6: what becomes 0 has no sign
_UNSIGNED_ZERO = CastPolicy(nan="max", negative_zero="drop")
_FLOATS = tuple(d if d.format.startswith("float8") else replace(d, cast=_UNSIGNED_ZERO) for d in MX)
_TOP: tuple[str, Chain] = ("top", ("bound", "floor_pow2"))
_ROUND: Step = ("round", "source")


#: 2^128 over the largest power of two of the elements
_INFINITE: tuple[str, Chain] = ("infinite", ("top", ("rdiv", 2.0**127), ("mul", 2.0)))
#: what elements are divided by, which may lie below what is stored for it
_STORED: tuple[str, Chain] = ("scale", ("power", ("at_least_or_nan", 2.0**-126)))


def _mx(name: str, destinations: tuple[Destination, ...], *steps: tuple[str, Chain]) -> Recipe:
    return Recipe(
        name=f"quark.{name}",
        blocks=group(32),
        destinations=destinations,
        amax_nan="keep",
        steps=(*steps, _STORED),
        element=("x", ("div", "power")),
        scale_format=E8M0,
        scale_cast="e8m0_floor",
        source=f"{_INTERFACE}; utils/numerics.py to_e8m0_uint8",
    )


def _mxint8(name: str, *steps: tuple[str, Chain]) -> Recipe:
    """A multiplication by the reciprocal of a 64th of the power, of 2^-126 at least."""
    encode: tuple[str, Chain] = ("encode", ("power", ("mul", 2.0**-6), ("at_least_or_nan", 2.0**-126), "recip"))
    element: Chain = ("x", ("mul", "encode"), ("clamp_keep_nan", 127.0))
    return replace(_mx(f"mxint8_{name}", (MXINT8,), *steps, encode), element=element, reader=SIXTY_FOURTHS)


def _by_logarithm(step: str, *beyond: Step) -> tuple[tuple[str, Chain], ...]:
    """In the format of x. A power of 0 becomes float32's epsilon; of an infinite amax nothing is left."""
    chain: Chain = ("amax", (step, "source"), ("div", "top"), *beyond, _ROUND, ("zero_to", 2.0**-23), ("add", "nan"))
    return NAN_UNLESS_FINITE, _TOP, *((_INFINITE,) if beyond else ()), ("power", chain)


def _int8_by_logarithm(step: str) -> tuple[tuple[str, Chain], ...]:
    """The same; 2^128 is an infinity, of which nothing is left either."""
    return ("found", ("amax", (step, "source"), ("zero_to", 2.0**-23))), (
        "power",
        ("found", ("mul", 0.0), ("add", "found")),
    )


def _by_bits(mantissa: int, *over: Step) -> tuple[str, Chain]:
    """amax rounded to so many mantissa bits, held to 2^-127 and 2^127."""
    chain: Chain = ("amax", ("even_pow2", mantissa), *over)
    return ("power", (*chain, ("at_least", 2.0**-127), ("at_most", 2.0**127), ("add", "nan")))


def _even(name: str, mantissa: int, *formats: str) -> Recipe:
    chosen = tuple(d for d in _FLOATS if d.format in formats)
    return _mx(name, chosen, NAN_WHERE_AMAX_IS, _TOP, _by_bits(mantissa, ("div", "top")))


_FLOOR, _CEIL = "exp2_floor_log2_in", "exp2_ceil_log2_in"

RECIPES = (
    _even("mxfp4_even", 1, "float4_e2m1fn"),
    _even("mx_even_2", 2, "float6_e3m2fn", "float8_e5m2"),
    _even("mx_even_3", 3, "float6_e2m3fn", "float8_e4m3fn"),
    _mx("mx_floor", _FLOATS, *_by_logarithm(_FLOOR)),
    _mx("mx_ceil", _FLOATS, *_by_logarithm(_CEIL, ("not_finite_to", "infinite"))),
    _mxint8("even", NAN_WHERE_AMAX_IS, _by_bits(8)),
    _mxint8("floor", *_int8_by_logarithm(_FLOOR)),
    _mxint8("ceil", *_int8_by_logarithm(_CEIL)),
)
