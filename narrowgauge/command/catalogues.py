"""Catalogues whose entries are told as a heading and a list of facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.text import Text

from narrowgauge.plugin.screen import facts
from narrowgauge.reference.convert import words as conversions
from narrowgauge.reference.convert.catalogue import CONVERSIONS
from narrowgauge.reference.matmul import words as products
from narrowgauge.reference.matmul.accumulators import ACCUMULATORS
from narrowgauge.reference.matmul.products import PRODUCTS
from narrowgauge.reference.units import words as units
from narrowgauge.reference.units.registry import UNITS
from narrowgauge.reference.wide import words as wide
from narrowgauge.reference.wide.catalogue import WIDE


@dataclass(frozen=True)
class Catalogue:
    """Entries by name, what one is called, and what there is to say of it."""

    entries: Mapping[str, Any]
    kind: str
    facts_of: Callable[[Any], list[tuple[str, str]]]


CATALOGUES = (
    Catalogue(CONVERSIONS, "a conversion", conversions.facts_of),
    Catalogue(PRODUCTS, "a product of matrices", products.facts_of),
    Catalogue(WIDE, "a wide operation", wide.facts_of),
    Catalogue(UNITS, "a matrix unit", units.facts_of),
    Catalogue(ACCUMULATORS, "an accumulator", products.facts_of_accumulator),
)
#: all their names
NAMES = [name for catalogue in CATALOGUES for name in catalogue.entries]


def is_catalogued(what: str) -> bool:
    return what in NAMES


def catalogued(what: str, width: int) -> tuple[Any, list[Text]]:
    """JSON-able data, and the same in lines for a screen."""
    found = next(catalogue for catalogue in CATALOGUES if what in catalogue.entries)
    said = [(f"{name}:", words) for name, words in found.facts_of(found.entries[what])]
    return asdict(found.entries[what]), [Text(f"{what}: {found.kind}", "bold"), *facts(said, width)]
