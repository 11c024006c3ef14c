"""Quantizers of no engine, for conversions that are their own definition: amax over the format's largest, 1 where that
is 0; the number over the scale, one rounding, held to the largest."""

from __future__ import annotations

from narrowgauge.contracts.recipe import TENSOR, TOKEN, Blocks, Destination, Recipe
from narrowgauge.reference import recipes

_DESTINATIONS = (
    Destination("float8_e4m3fn", 448.0, "ocp_saturate"),
    Destination("float8_e4m3fnuz", 240.0, "fnuz_saturate"),
)
_PLAIN = {
    name: Recipe(
        name=name,
        blocks=blocks,
        destinations=_DESTINATIONS,
        steps=(("scale", ("amax", ("div", "bound"), ("zero_to", 1.0))),),
        element=("x", ("div", "scale")),
        source="its own definition",
    )
    for name, blocks in (
        ("plain.fp8_tensor", TENSOR),
        ("plain.fp8_channel", TOKEN),
        ("plain.fp8_block", Blocks(128, 128, ragged=True)),
    )
}


def quantizer_named(name: str) -> Recipe:
    """A plain quantizer, or one of the catalogue. Raises ``BadInput`` with near names."""
    return _PLAIN[name] if name in _PLAIN else recipes.resolve(name)
