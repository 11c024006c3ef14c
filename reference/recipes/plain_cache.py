"""Quantizers of no engine: x over a given scale in float32, then the cast of the format, which holds to its largest."""

from __future__ import annotations

from narrowgauge.contracts.recipe import TENSOR, Blocks, Destination, Recipe

_EIGHT_BITS = (
    Destination("float8_e4m3fn", 448.0, "ocp_saturate"),
    Destination("float8_e4m3fnuz", 240.0, "fnuz_saturate"),
    Destination("float8_e5m2", 57344.0, "ocp_saturate"),
    Destination("float8_e5m2fnuz", 57344.0, "fnuz_saturate"),
)
RECIPES = tuple(
    Recipe(
        name=f"plain.kv_fp8_{per}",
        blocks=blocks,
        destinations=_EIGHT_BITS,
        inputs=("scale",),
        steps=(),
        element=("x", ("div", "scale")),
        source="OCP OFP8 1.0 section 5 for both OCP formats; the definition of the FNUZ ones",
        evidence="document",
    )
    for per, blocks in (("tensor", TENSOR), ("head", Blocks(0, 128)))
)
