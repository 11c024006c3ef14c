"""Every conversion by name. Adding one is one entry in the file of its kind."""

from __future__ import annotations

from narrowgauge.contracts.conversion import Conversion
from narrowgauge.contracts.errors import unknown
from narrowgauge.reference.convert import fused, integers, requantized, scales, to_fnuz, wide

CONVERSIONS: dict[str, Conversion] = {
    conversion.name: conversion
    for kind in (wide, to_fnuz, fused, requantized, integers, scales)
    for conversion in kind.CONVERSIONS
}


def resolve(conversion: str | Conversion) -> Conversion:
    """A conversion by name, or one that came as data. Raises ``BadInput`` with near names."""
    if isinstance(conversion, Conversion):
        return conversion
    if conversion not in CONVERSIONS:
        raise unknown("conversion", conversion, CONVERSIONS)
    return CONVERSIONS[conversion]
