"""Conversions between the formats of 16 and 32 bits in which unquantized weights are stored, with what they lose."""

from __future__ import annotations

from narrowgauge.contracts.conversion import FIRST, Conversion, Held

_COUNTS = tuple(Held(name, "row", "int32") for name in ("overflowed", "first_overflowed", "flushed", "first_flushed"))
_SAID = "IEEE 754, 7.4 and 7.5: overflow and underflow, by the default rounding to nearest even"

CONVERSIONS = (
    Conversion(
        name="counted",
        formats=(
            ("bfloat16", "float16"),
            ("float32", "float16"),
            ("float32", "bfloat16"),
            ("float16", "bfloat16"),
        ),
        takes=(Held(FIRST),),
        gives=(Held(FIRST), *_COUNTS),
        steps=(("numbers",), ("as_codes", "ieee"), ("counted",)),
        source=_SAID,
        evidence="specification",
    ),
)
