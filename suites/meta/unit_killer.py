"""Whether the second derivation sees something wrong with models of matrix units, as they are imported now."""

from __future__ import annotations

import importlib
import warnings
from functools import cache

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.golden.units import families
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.units.registry import UNITS
from narrowgauge.reference.units.running import dot
from narrowgauge.reference.units.unit import Unit
from narrowgauge.suites.meta.unit_sets import Dots, cases, distinct, drawn, golden_dots, wide_dots

COUNT, SEED = 15, 102


@cache
def sets() -> dict[str, tuple[Dots, ...]]:
    """By unit: drawn dot products of each format, and golden vectors."""
    found: dict[str, tuple[Dots, ...]] = {}
    for unit in distinct():
        of_unit = [drawn(unit, fmt, COUNT, SEED, scale) for fmt, scale in cases(unit)]
        if unit.out == "float64":
            of_unit.append(wide_dots(unit))
        for rule, out in families():
            of_unit += [dots for dots in golden_dots(rule, out) if dots.unit == unit.name]
        found[unit.name] = tuple(of_unit)
    return found


def agrees(got: Coded, dots: Dots, known_nan: bool) -> bool:
    """Equal codes; where a unit's NaN is not known, any NaN."""
    differs = got.data != dots.want
    if differs.any() and not known_nan:
        differs &= ~(np.isnan(decode_values(got)) & np.isnan(decode_values(Coded(got.format, dots.want))))
    return not differs.any()


def right(unit: Unit, name: str = "") -> bool:
    """Whether a unit, or another in its place, gives all that the second derivation gives."""
    known = UNITS[name or unit.name].known_nan
    return all(agrees(dot(unit, *dots.given), dots, known) for dots in sets()[name or unit.name])


def noticed() -> bool:
    """Whether any unit, of modules imported anew, gives something else, or nothing."""
    made = sets()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            registry = importlib.import_module("narrowgauge.reference.units.registry")
            running = importlib.import_module("narrowgauge.reference.units.running")
            for name, each in made.items():
                unit = registry.unit_named(name)
                if not all(agrees(running.dot(unit, *dots.given), dots, unit.known_nan) for dots in each):
                    return True
        except Exception:
            return True
    return False
