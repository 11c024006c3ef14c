"""Dot products on which models of matrix units are held to the second derivation: drawn ones, and golden vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import Format, format_named
from narrowgauge.golden import units as golden
from narrowgauge.reference.noise import scrambled
from narrowgauge.reference.units.registry import UNITS
from narrowgauge.reference.units.unit import Unit
from narrowgauge.suites.meta import second_units as second

Codes = npt.NDArray[np.unsignedinteger]


@dataclass(frozen=True, eq=False)
class Dots:
    """n dot products of one unit, and what the second derivation gives [n]."""

    unit: str
    a: Coded
    b: Coded
    c: Coded
    scales: tuple[Coded, ...]
    want: Codes

    @property
    def given(self) -> tuple[Coded, ...]:
        """As ``dot`` takes it."""
        return (self.a, self.b, self.c, *self.scales)


def expected(unit: Unit, a: Coded, b: Coded, c: Coded, scales: Sequence[Coded]) -> Codes:
    """Of each row, the second derivation's code."""
    size, found = a.shape[1], []
    for row in range(a.shape[0]):
        both = [scale.data[row].tolist() for scale in scales]
        products = second.scale_products(*both, scales[0].format, unit.block, size) if both else ()
        rows = a.data[row].tolist(), b.data[row].tolist()
        found.append(second.dot(unit.name, *rows, (a.format, b.format), int(c.data[row]), products))
    return np.array(found, format_named(unit.out).storage)


def distinct() -> list[Unit]:
    """One unit of each arithmetic, with all formats that any such unit takes."""
    seen: dict[object, Unit] = {}
    for unit in UNITS.values():
        seen.setdefault((unit.family, unit.formats, unit.through, unit.out, unit.scales, unit.known_nan), unit)
    return list(seen.values())


def drawn(unit: Unit, fmt: str, count: int, seed: int, scale: str = "", other: str = "") -> Dots:
    """Half of the rows are any bits, half near one another, in some of which much is zero or cancels."""
    length = unit.family.length
    size = length if unit.scales else 2 * length if length > 1 else 7
    a = _rows(format_named(fmt), count, size, seed)
    b = _rows(format_named(other or fmt), count, size, seed + 1)
    c = Coded(unit.out, _rows(format_named(unit.out), count, 1, seed + 2).data[:, 0])
    both: tuple[Coded, ...] = ()
    if scale:
        both = tuple(_rows(format_named(scale), count, size // unit.block, seed + 3 + side) for side in range(2))
    return Dots(unit.name, a, b, c, both, expected(unit, a, b, c, both))


def _rows(fmt: Format, count: int, size: int, seed: int) -> Coded:
    bits = scrambled(count * size, seed).reshape(count, size)
    codes = bits >> np.uint64(64 - fmt.bits)
    near = np.arange(count) % 2 == 1
    if fmt.exponent:
        # fields within a few of the middle, and fewer for every other row, so that all terms matter
        spread = np.where(np.arange(count) % 4 == 1, 2, 5)[:, None]
        field = np.uint64(1 << (fmt.exponent - 1)) - np.uint64(2) + (bits >> np.uint64(8)) % spread.astype(np.uint64)
        sign_and_fraction = codes & np.uint64(fmt.code_count - 1 - (((1 << fmt.exponent) - 1) << fmt.mantissa))
        codes = np.where(near[:, None], sign_and_fraction | field << np.uint64(fmt.mantissa), codes)
    zero = (bits & np.uint64(7)) < np.where(np.arange(count) % 3 == 0, 6, 1)[:, None].astype(np.uint64)
    return Coded(fmt.name, np.where(zero & (fmt.family != "exponent"), 0, codes).astype(fmt.storage))


def cases(unit: Unit) -> Iterator[tuple[str, str]]:
    """Formats of operands and scales that a unit takes."""
    for fmt in unit.formats:
        yield from ((fmt, scale) for scale in unit.scales or ("",))


@cache
def golden_dots(rule: str, out: str) -> tuple[Dots, ...]:
    """The golden vectors of a file, for each of its units."""
    given, found = golden.inputs_of(rule, out), []
    for unit in golden.units_of(rule, out):
        scales = tuple(golden.scales_for(unit, given).values())
        want = expected(unit, given["a"], given["b"], given["c"], scales)
        found.append(Dots(unit.name, given["a"], given["b"], given["c"], scales, want))
    return tuple(found)
