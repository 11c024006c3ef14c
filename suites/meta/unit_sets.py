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
        products: Sequence[second.Term] = ()
        if scales:
            one, other = (scale.data[row].tolist() for scale in scales)
            products = second.scale_products(one, other, scales[0].format, unit.block, size)
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
    """Rows of five kinds in turn: see ``_rows``. Where units take no scales, the last step is not full."""
    length = unit.family.length
    size = 2 * length if unit.scales else 2 * length - 1 if length > 1 else 7
    a = _rows(format_named(fmt), count, size, seed)
    b = _rows(format_named(other or fmt), count, size, seed + 1)
    c = Coded(unit.out, _rows(format_named(unit.out), count, 1, seed + 2).data[:, 0])
    both: tuple[Coded, ...] = ()
    if scale:
        both = tuple(_rows(format_named(scale), count, size // unit.block, seed + 3 + side) for side in range(2))
    return Dots(unit.name, a, b, c, both, expected(unit, a, b, c, both))


def _rows(fmt: Format, count: int, size: int, seed: int) -> Coded:
    """Any bits; numbers near one another; special ones; the smallest ones; less near ones, most of them zeros."""
    bits = scrambled(count * size, seed).reshape(count, size)
    any_bits = (bits >> np.uint64(64 - fmt.bits)).astype(np.int64)
    if not fmt.exponent:
        return Coded(fmt.name, any_bits.astype(fmt.storage))
    middle = 1 << (fmt.exponent - 1)
    rest = any_bits & ~(((1 << fmt.exponent) - 1) << fmt.mantissa)
    few, more = (bits >> np.uint64(8) & np.uint64(1)).astype(np.int64), (bits >> np.uint64(8)).astype(np.int64) % 5
    fields = (middle - 2 + few, few, np.clip(middle - 3 + more, 0, (1 << fmt.exponent) - 1))
    near, small, apart = (rest | field << fmt.mantissa for field in fields)
    chosen = np.array(_special(fmt), np.uint64).astype(np.int64)
    special = chosen[(bits >> np.uint64(16)).astype(np.int64) % len(chosen)]
    rare = (bits & np.uint64(7)) < 6
    sparse = apart if fmt.family == "exponent" else np.where(rare, 0, apart)
    kinds = np.stack([any_bits, near, special, small, sparse])
    return Coded(fmt.name, kinds[np.arange(count) % len(kinds), np.arange(count)].astype(fmt.storage))


def _special(fmt: Format) -> list[int]:
    """Zeros, one, the least and largest subnormals and normals, infinity and NaN where there are any; of both signs."""
    one, least = fmt.bias << fmt.mantissa, 1 << fmt.mantissa
    plus = [
        0,
        1,
        one,
        one,
        least - 1,
        least,
        (fmt.sign_bit or fmt.code_count) - 1,
        (fmt.sign_bit or fmt.code_count) - 2,
    ]
    plus.append(((1 << fmt.exponent) - 1) << fmt.mantissa)
    return [*plus, *(code | fmt.sign_bit for code in plus)]


def cases(unit: Unit) -> Iterator[tuple[str, str]]:
    """Formats of operands and scales that a unit takes."""
    for fmt in unit.formats:
        yield from ((fmt, scale) for scale in unit.scales or ("",))


#: of float64, which golden files have not: terms (k, x, y) and addends, for the sign of zeros, overflow, one rounding
WIDE: tuple[tuple[dict[int, tuple[float, float]], float], ...] = (
    ({0: (1 + 2.0**-30, 1 - 2.0**-30)}, -1.0),
    (dict.fromkeys(range(8), (-0.0, 1.0)), -0.0),
    ({0: (1.0, 1.0)}, -1.0),
    ({7: (-(2.0**1023), 2.0)}, 0.0),
)


def wide_dots(unit: Unit) -> Dots:
    """Dot products of float64."""
    a, b = np.zeros((len(WIDE), 8)), np.zeros((len(WIDE), 8))
    for row, (terms, _) in enumerate(WIDE):
        for k, (x, y) in terms.items():
            a[row, k], b[row, k] = x, y
    c = np.array([addend for _, addend in WIDE])
    one, other, addends = (Coded("float64", each.view(np.uint64)) for each in (a, b, c))
    return Dots(unit.name, one, other, addends, (), expected(unit, one, other, addends, ()))


@cache
def golden_dots(rule: str, out: str) -> tuple[Dots, ...]:
    """The golden vectors of a file, for each of its units."""
    given, found = golden.inputs_of(rule, out), []
    known: dict[object, Codes] = {}  # units of one arithmetic have one answer
    for unit in golden.units_of(rule, out):
        scales = tuple(golden.scales_for(unit, given).values())
        key = second.UNITS.get(unit.name, unit.name)
        if key not in known:
            known[key] = expected(unit, given["a"], given["b"], given["c"], scales)
        found.append(Dots(unit.name, given["a"], given["b"], given["c"], scales, known[key]))
    return tuple(found)
