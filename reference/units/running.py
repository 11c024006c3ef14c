"""Dot products by a unit: codes in, codes out."""

from __future__ import annotations

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.units.families import TruncatingGroups
from narrowgauge.reference.units.operands import Side, scaled, scaled_apart, side_of
from narrowgauge.reference.units.rounding import F64
from narrowgauge.reference.units.unit import Unit


def dot(
    unit: Unit, a: Coded, b: Coded, c: Coded | None = None, a_scale: Coded | None = None, b_scale: Coded | None = None
) -> Coded:
    """n dot products: codes a, b [n, K] and addends c [n] of the unit's result format (none: zeros) -> codes [n].

    ``a_scale``, ``b_scale`` [n, K / block] for a unit that takes scales. Raises ``BadInput`` for what the unit does not
    take.
    """
    check(unit, a, b, c, a.shape[:1])
    if a.shape != b.shape:
        raise BadInput(f"{unit.name}: dot products of {list(a.shape)} and {list(b.shape)}; expected one shape, [n, K]")
    one, other = operand(unit, a, a_scale), operand(unit, b, b_scale)
    return coded(unit, accumulate(unit, one, other, addends(c, a.shape[:1])))


def accumulate(unit: Unit, a: Side, b: Side, c: F64) -> F64:
    """c plus all products of the sides, k ascending, in steps of the unit's length; the last is filled with zeros."""
    length = unit.family.length
    for start in range(0, len(a.value), length):
        c = unit.family.step(a.cut(start, start + length), b.cut(start, start + length), c)
    return c


def operand(unit: Unit, x: Coded, scale: Coded | None) -> Side:
    """Codes [n, K] as a side [K, n], with the scales that the unit takes."""
    side = side_of(x, unit.through)
    if not unit.scales:
        if scale is not None:
            raise BadInput(f"{unit.name} takes no scales; a schedule applies them after it (Schedule.scaled)")
        return side
    blocks = -(-x.shape[1] // unit.block)
    if scale is None or scale.format not in unit.scales or scale.shape != (x.shape[0], blocks):
        given = "none" if scale is None else f"{scale.format} {list(scale.shape)}"
        raise BadInput(
            f"{unit.name} takes scales of {' or '.join(unit.scales)} [{x.shape[0]}, {blocks}], one for each "
            f"{unit.block} elements of k; given {given}"
        )
    apply = scaled_apart if isinstance(unit.family, TruncatingGroups) else scaled
    return apply(side, scale, unit.block)


def addends(c: Coded | None, shape: tuple[int, ...]) -> F64:
    """Addends as values; zeros where none are given."""
    return np.zeros(shape) if c is None else decode_values(c)


def check(unit: Unit, a: Coded, b: Coded, c: Coded | None, results: tuple[int, ...]) -> None:
    """Raise ``BadInput`` for operands [M, K], [N, K] or addends that the unit does not take."""
    if a.data.ndim != 2 or b.data.ndim != 2 or a.shape[1] != b.shape[1]:
        raise BadInput(f"{unit.name}: operands {list(a.shape)} and {list(b.shape)}; expected [M, K] and [N, K]")
    if not unit.takes(a.format, b.format):
        raise BadInput(f"{unit.name} multiplies {', '.join(unit.formats)}; given {a.format} and {b.format}")
    if c is not None and (c.format != unit.out or c.shape != results):
        raise BadInput(f"{unit.name}: addends of {c.format} {list(c.shape)}; expected {unit.out} {list(results)}")


_KINDS = {"float16": np.float16, "float32": np.float32, "float64": np.float64, "int32": np.int32}


def coded(unit: Unit, values: F64) -> Coded:
    """Results, which the unit's format holds exactly, as codes; every NaN is the unit's."""
    fmt = format_named(unit.out)
    codes = values.astype(_KINDS[fmt.name]).view(fmt.storage)
    if fmt.family == "integer":
        return Coded(fmt.name, codes)
    return Coded(fmt.name, np.where(np.isnan(values), fmt.storage.type(unit.nan), codes))
