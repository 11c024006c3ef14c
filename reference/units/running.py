"""Dot products and products of matrices by a unit, codes in and codes out, under a schedule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.units.families import TruncatingGroups
from narrowgauge.reference.units.operands import Side, scaled, scaled_apart, side_of
from narrowgauge.reference.units.rounding import F64
from narrowgauge.reference.units.unit import Unit

#: results of one tile, which stays in the nearest caches
_TILE = 128


def accumulate(unit: Unit, a: Side, b: Side, c: F64) -> F64:
    """c plus all products of the sides, k ascending, in steps of the unit's length; the last is filled with zeros."""
    length = unit.family.length
    for start in range(0, len(a.value), length):
        c = unit.family.step(a.cut(start, start + length), b.cut(start, start + length), c)
    return c


def dot(
    unit: Unit, a: Coded, b: Coded, c: Coded | None = None, a_scale: Coded | None = None, b_scale: Coded | None = None
) -> Coded:
    """n dot products: codes a, b [n, K] and addends c [n] of the unit's result format (none: zeros) -> codes [n].

    ``a_scale``, ``b_scale`` [n, K / block] for a unit that takes scales. Raises ``BadInput`` for what the unit does not
    take.
    """
    _check(unit, a, b, c, a.shape[:1])
    one, other = operand(unit, a, a_scale), operand(unit, b, b_scale)
    return coded(unit, accumulate(unit, one, other, addends(unit, c, a.shape[:1])))


def operand(unit: Unit, x: Coded, scale: Coded | None) -> Side:
    """Codes [n, K] as a side [K, n], with its scales."""
    if (scale is None) == bool(unit.scales):
        raise BadInput(f"{unit.name} takes {'scales of ' + ' or '.join(unit.scales) if unit.scales else 'no scales'}")
    side = side_of(x, unit.through)
    if scale is None:
        return side
    blocks = -(-x.shape[1] // unit.block)
    if scale.format not in unit.scales or scale.shape != (x.shape[0], blocks):
        raise BadInput(
            f"{unit.name}: scales of {scale.format} {list(scale.shape)}; expected {' or '.join(unit.scales)}, "
            f"[{x.shape[0]}, {blocks}]: one for each {unit.block} elements of k"
        )
    apply = scaled_apart if isinstance(unit.family, TruncatingGroups) else scaled
    return apply(side, scale, unit.block)


def addends(unit: Unit, c: Coded | None, shape: tuple[int, ...]) -> F64:
    """Addends as values; zeros where none are given."""
    return np.zeros(shape) if c is None else decode_values(c)


def _check(unit: Unit, a: Coded, b: Coded, c: Coded | None, results: tuple[int, ...]) -> None:
    if a.data.ndim != 2 or b.data.ndim != 2 or a.shape[1] != b.shape[1]:
        raise BadInput(f"{unit.name}: operands {list(a.shape)} and {list(b.shape)}; expected [M, K] and [N, K]")
    if not unit.takes(a.format, b.format):
        both = "any two of" if unit.mixed else "two of one of"
        raise BadInput(f"{unit.name} multiplies {both} {', '.join(unit.formats)}; given {a.format} and {b.format}")
    if c is not None and (c.format != unit.out or c.shape != results):
        raise BadInput(f"{unit.name}: addends of {c.format} {list(c.shape)}; expected {unit.out} {list(results)}")


def coded(unit: Unit, values: F64) -> Coded:
    """Results as codes; every NaN is the unit's."""
    fmt = format_named(unit.out)
    kind = {"float16": np.float16, "float32": np.float32, "float64": np.float64}[fmt.name]
    codes = values.astype(kind).view(fmt.storage)
    return Coded(fmt.name, np.where(np.isnan(values), fmt.storage.type(unit.nan), codes))


@dataclass(frozen=True)
class Schedule:
    """How a kernel uses a unit over K."""

    unit: Unit


def gemm(
    schedule: Schedule, a: Coded, b: Coded, c: Coded | None = None,
    a_scale: Coded | None = None, b_scale: Coded | None = None,
) -> Coded:  # fmt: skip
    """Codes a [M, K], b [N, K], addends c [M, N] -> codes [M, N]: y[m, n] = sum over k of a[m, k] · b[n, k]."""
    unit, shape = schedule.unit, (a.shape[0], b.shape[0])
    _check(unit, a, b, c, shape)
    one, other, addend = operand(unit, a, a_scale), operand(unit, b, b_scale), addends(unit, c, shape)
    found = np.empty(shape)
    for rows, columns in _tiles(*shape):
        left = Side(one.value[:, rows, None], one.exponent[:, rows, None])
        right = Side(other.value[:, None, columns], other.exponent[:, None, columns])
        found[rows, columns] = accumulate(unit, left, right, addend[rows, columns])
    return coded(unit, found)


def _tiles(rows: int, columns: int) -> Iterator[tuple[slice, slice]]:
    for i in range(0, rows, _TILE):
        for j in range(0, columns, _TILE):
            yield slice(i, i + _TILE), slice(j, j + _TILE)
