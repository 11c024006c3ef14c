"""What every recipe of the catalogue gives, by the second derivation: of the two kinds of numbers that part most."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from narrowgauge.suites.meta.second_catalogue import FORMAT_OF, SHAPES, formats_of, names_of, unlike
from narrowgauge.suites.meta.second_matrices import derived, given, matrix, source_of

KINDS = ("special", "random")
Answers = dict[tuple[str, str, str], Any]


def answers() -> Answers:
    """By recipe, destination and kind. Recipes of large blocks are left out: they cost most, and have no step alone."""
    small = [name for name, shape in SHAPES.items() if shape.rows < 2]
    return {(name, format, kind): derived(name, format, kind) for name, format in names_of(small) for kind in KINDS}


def wrong_recipes(wanted: Answers, quantizer: Any, recipes: Any, coded: Any) -> Iterator[str]:
    """The recipes of which the modules give something else than what was derived."""
    for (name, format, kind), want in wanted.items():
        beside = {n: coded.Coded(FORMAT_OF.get(n, "float32"), codes) for n, codes in given(name, kind).items()}
        x = coded.Coded(source_of(name, kind), matrix(name, kind))
        result = quantizer.quantize(x, recipes.RECIPES[name], format, given=beside)
        if unlike({n: (c.format, c.codes) for n, c in result.items()}, want, formats_of(name, format)):
            yield f"recipe {name} to {format} of {kind} numbers"
