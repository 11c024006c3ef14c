"""Mutate models of matrix units, their code and their parameters, and see whether the second derivation notices.

``python -m narrowgauge.suites.meta.unit_mutants`` tries every small change of their code, and prints those that are
neither noticed nor listed here.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from types import FrameType
from typing import Any

from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.units.families import Truncating, TwoHalves
from narrowgauge.reference.units.families_plain import Chain, Whole
from narrowgauge.reference.units.operands import least_exponent
from narrowgauge.reference.units.unit import Unit
from narrowgauge.suites.meta.mutation import Mutant, in_its_place, mutants
from narrowgauge.suites.meta.unit_killer import noticed, sets

MODULES = tuple(
    f"reference.units.{name}" for name in ("rounding", "operands", "families", "families_amd", "families_plain")
)
#: seconds after which a change that does not end is taken for noticed
LIMIT = 2.0
#: a number of which only the sign, or that it is none, is looked at afterwards; or that is overwritten
UNUSED = {
    "families: 0.0 becomes 1.0 in np.where(np.isfinite(c), 0.0, c)",
    "families: 0.0 becomes 1.0 in np.where(np.isfinite(infinite), 0.0, infinite)",
    "families: 0.0 becomes 1.0 in np.where(np.isfinite(c), c, 0.0)",
    "families: 0.0 becomes 1.0 in np.where(whole, found, 0.0)",
    "families: 0.0 becomes 1.0 in np.where(whole, c, 0.0)",
    "families: 0 becomes 1 in np.where(some, a.exponent[0] + b.exponent[0], 0)",
    "families_amd: 0.0 becomes 1.0 in np.where(np.isfinite(c), c, 0.0)",
    "families_amd: 0 becomes 1 in np.where(side.exponent == NOTHING, 0, side.exponent)",
    "families_plain: 0.0 becomes 1.0 in np.where(whole, product, 0.0)",
    "families_plain: 0.0 becomes 1.0 in np.where(whole, c, 0.0)",
    "families_plain: 0.0 becomes 1.0 in 0.0 if math.isfinite(a) and math.isfinite(b) else a * b",
    "operands: 0.0 becomes 1.0 in np.where(self.special, 0.0, self.value)",
    "operands: 0 becomes 1 in np.where(exponent == NOTHING, 0, exponent)",
    "operands: 0 becomes 1 in np.where((side.exponent == NOTHING) | np.isnan(factor), 0, exponent_of(factor))",
    "operands: (side.exponent == NOTHING) | np.isnan(factor) becomes (side.exponent == NOTHING) & np.isnan(factor)",
}
#: far below every exponent of a product, whatever it is
FAR = {
    "operands: 8192 becomes 8193 in -8192",
    "families: 2 becomes 3 in 2 * NOTHING",
    "families_amd: 600 becomes 601 in -600",
    "families_amd: 200 becomes 201 in FLOAT32[0] - 200",
}
#: the same by another way
SAME = {
    # only faster: what follows leaves finite sums as they are
    "families: if not (overflow or a.special.any() or b.special.any() or (not np.isfinite(c).all())) is never so",
    "families_amd: False becomes True in wide: bool = False",
    # all positions of a group have the exponent of its scales
    "families: 0 becomes 1 in a.exponent[0]",
    "families: 0 becomes 1 in b.exponent[0]",
    # a sum of two float16 has at most 22 bits: float32 holds it, and the code is rounded once
    "families: 10 becomes 11 in self.inner.stored == 10",
    "operands: missing > 0 becomes missing >= 0",
    # a chain may take several positions at once
    "families_plain: 1 becomes 2 in length: int = 1",
    # what is compared is not zero
    "families_plain: exact > 0 becomes exact >= 0",
    "rounding: rest > 0 becomes rest >= 0",
    "rounding: top > 0 becomes top >= 0",
    # past the largest float64 there is no number between 0 and 1
    "families_plain: 0 becomes 1 in exact > 0",
    "rounding: 0 becomes 1 in parts[0]",
    # what is rounded afterwards has 27 bits less: a neighbour of a tie is as good as the next but one, and a tie's bits
    # are all zeros
    "rounding: 1 becomes 2 in np.where((rest > 0) == (top > 0), 1, -1)",
    "rounding: 1 becomes 2 in -1",
    "rounding: 1 becomes 2 in bits & 1",
}
#: lengths that are the same anyway
STRICT = "True becomes False in strict=True"
EQUIVALENT = UNUSED | FAR | SAME


def name_of(mutant: Mutant) -> str:
    """The change without its line, as it is listed."""
    return f"{mutant.module.rpartition('.')[2]}: {mutant.what}"


def changes() -> Iterator[Mutant]:
    """Every change that should be noticed, and none of those that cannot be."""
    for module in MODULES:
        yield from (m for m in mutants(module) if m.what != STRICT and name_of(m) not in EQUIVALENT)


def survives(mutant: Mutant) -> bool:
    """Whether nothing is noticed."""

    def late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    sets()  # which takes longer than any change may
    before = signal.signal(signal.SIGALRM, late)
    try:
        with in_its_place(mutant):
            signal.setitimer(signal.ITIMER_REAL, LIMIT)
            try:
                return not noticed()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)


# --- parameters ------------------------------------------------------------------------------------------------------


def other_units(unit: Unit) -> Iterator[tuple[str, Unit]]:
    """A unit with one parameter changed, and which."""
    for what, family in _other_families(unit.family):
        yield what, replace(unit, family=family)
    if unit.through and set(unit.formats) == {"float8_e4m3fn", "float8_e5m2"}:
        yield "through", replace(unit, through="")
    if unit.out != "int32":
        yield "known_nan", replace(unit, known_nan=not unit.known_nan)


def _other_families(family: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(family, TwoHalves):
        yield from ((f"inner {what}", TwoHalves(inner)) for what, inner in _other_families(family.inner))
        return
    for field in fields(family):
        value = getattr(family, field.name)
        if isinstance(value, bool):
            yield field.name, replace(family, **{field.name: not value})
        elif field.name in ("length", "group"):
            yield from ((f"{field.name} {n}", replace(family, **{field.name: n})) for n in (value // 2, value * 2) if n)
        elif field.name == "stored":
            yield from ((f"stored {n}", replace(family, stored=n)) for n in (10, 12, 13, 14, 22, 23) if n != value)
        else:
            steps = (-1, 1)
            yield from ((f"{field.name} {n:+}", replace(family, **{field.name: value + n})) for n in steps)


def without_effect(unit: Unit, what: str) -> str:
    """Why a parameter of a unit can be another; "" if it cannot."""
    family = unit.family.inner if isinstance(unit.family, TwoHalves) else unit.family
    word = what.removeprefix("inner ").split(" ")[0]
    formats = [format_named(name) for name in unit.formats]
    lowest = min(2 * (least_exponent(f) - f.mantissa) for f in formats)
    cut = isinstance(family, Truncating) and not unit.scales and lowest > family.zero - family.fraction
    if cut and word == "zero":
        return "no product has a bit below what zeros leave"
    if isinstance(family, Chain) and word == "length":
        return "a chain is one, however it is cut"
    if isinstance(family, Whole) and word == "length" and not family.clamps:
        return "sums that wrap are exact in any order"
    if word == "through":
        return "fp8 has no bit so low that another exponent of its subnormals would cut it"
    if word == "wide" and format_named(unit.formats[0]).bits == 8:
        return "no product of fp8 is so large"
    return "its NaN is not known" if word == "known_nan" and not unit.known_nan else ""


def main() -> None:
    """Print the changes that nobody noticed or explained; exit with 1 where there are any."""
    made = list(changes())
    left = [mutant for mutant in made if survives(mutant)]
    print(f"{len(made)} changes, {len(left)} not noticed", *left, sep="\n    ")
    sys.exit(len(left) > 0)


if __name__ == "__main__":
    main()
