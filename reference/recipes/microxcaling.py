"""Microsoft's microxcaling: the exponent of amax by a logarithm, elements to nearest with ties away, or even."""

from __future__ import annotations

from dataclasses import replace

from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.contracts.recipe import Chain, Destination, Recipe, Step, group
from narrowgauge.reference.recipes.common import MX, MXINT8, NAN_UNLESS_FINITE, TO_MXINT8
from narrowgauge.reference.recipes.standards import E8M0, PLAIN, SIXTY_FOURTHS

_AWAY = {True: CastPolicy("nearest_away"), False: CastPolicy("nearest_away", nan="max")}
#: round="nearest", the default
_NEAREST = tuple(replace(d, cast=_AWAY[d.format.startswith("float8")]) for d in MX)
_TOP: tuple[str, Chain] = ("top", ("bound", "floor_pow2"))


def _mx(name: str, destinations: tuple[Destination, ...], over: tuple[Step, ...], *to_codes: Step) -> Recipe:
    """A block of zeros counts as 2^-126; one with an infinity or a NaN is NaN. A zero loses its sign."""
    scale: Chain = ("amax", ("zero_to", 2.0**-126), "exp2_floor_log2", *over, ("add", "nan"))
    return Recipe(
        name=f"microxcaling.{name}",
        blocks=group(32),
        destinations=destinations,
        amax_nan="keep",
        steps=(NAN_UNLESS_FINITE, *((_TOP,) if over else ()), ("scale", scale)),
        element=("x", ("add", 0.0), ("div", "stored"), *to_codes),
        reader=SIXTY_FOURTHS if to_codes else PLAIN,
        scale_format=E8M0,
        scale_cast="e8m0_floor",
        source="microxcaling 7bc41952, mx/mx_ops.py _quantize_mx, mx/elemwise_ops.py _quantize_elemwise_core",
    )


RECIPES = (
    _mx("mx_nearest", _NEAREST, (("div", "top"),)),
    _mx("mx_even", MX, (("div", "top"),)),
    _mx("mxint8_nearest", (replace(MXINT8, cast="integer_away"),), (), *TO_MXINT8),
    _mx("mxint8_even", (MXINT8,), (), *TO_MXINT8),
)
