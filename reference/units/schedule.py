"""Products of matrices by a unit, as kernels schedule them: order of k, splits, promotion, scales."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.reference.fast_codec import cast, decode_values
from narrowgauge.reference.units.families_plain import fma32, wrapped
from narrowgauge.reference.units.operands import Side
from narrowgauge.reference.units.rounding import F64, FLOAT32, nearest
from narrowgauge.reference.units.running import accumulate, addends, check, coded, operand
from narrowgauge.reference.units.unit import Unit

#: rows and columns of one tile, whose arrays stay in the nearest caches
_TILE = 128
#: a result in a narrower format: to nearest even, past the range infinity
_CAST = CastPolicy(overflow="special", infinity="special")

#: where a kernel applies its own scales: to the sum over K, or to the sum of each stretch before it is added up
Scaled = Literal["", "sum", "stretches"]
#: (sum · a) · b, (sum · b) · a, sum · (a · b)
Order = Literal["a first", "b first", "product"]


@dataclass(frozen=True)
class Schedule:
    """How a kernel uses a unit over K. What it does itself it does in float32, to nearest even.

    K is taken in ``k_order``, cut into ``split_k`` equal parts, each part into stretches of ``promote_every``. A
    stretch starts from zero and is then added to the sum of its part; with 0, the unit itself adds to its own results.
    The parts' sums are added in ``reduce``.
    """

    unit: Unit
    k_order: tuple[int, ...] = ()  #: positions within each so many of K, in the order in which they enter; () ascending
    split_k: int = 1
    reduce: Literal["ascending", "pairs"] = "ascending"
    reduce_format: str = "float32"  #: in which the parts' sums are stored and added
    promote_every: int = 0
    scaled: Scaled = ""
    order: Order = "a first"
    fused: bool = False  #: a stretch is scaled and added by one fma
    out: str = ""  #: format of the result; "" for the unit's own

    def __post_init__(self) -> None:
        length = self.unit.family.length
        if sorted(self.k_order) != list(range(len(self.k_order))):
            raise BadInput(f"k_order {self.k_order}; expected every position of one period once")
        if self.promote_every < 0 or self.promote_every % length:
            raise BadInput(f"promote_every={self.promote_every}; {self.unit.name} takes {length} at once: a multiple")
        if self.scaled == "stretches" and not self.promote_every:
            raise BadInput("scaled='stretches' needs promote_every: how many elements of k have one scale")
        if self.promote_every and not self.scaled and self.unit.out not in ("float32", "float16"):
            raise BadInput(f"{self.unit.name} gives {self.unit.out}; only float32 and float16 are promoted to float32")
        if self.unit.out == "float64" and (self.scaled or self.split_k > 1):
            raise BadInput(f"{self.unit.name} gives float64; what a schedule does after it is float32")
        if self.scaled and self.unit.scales:
            raise BadInput(f"{self.unit.name} applies scales itself; scaled={self.scaled!r} would do so again")
        if self.split_k < 1:
            raise BadInput(f"split_k={self.split_k}; expected at least 1")


def gemm(
    schedule: Schedule, a: Coded, b: Coded, c: Coded | None = None,
    a_scale: Coded | None = None, b_scale: Coded | None = None,
) -> Coded:  # fmt: skip
    """Codes a [M, K], b [N, K], addends c [M, N] -> codes [M, N]: y[m, n] = sum over k of a[m, k] · b[n, k].

    Scales are the unit's own where it takes any; else the schedule's: [M, G] and [N, G], one for all of K or for each
    stretch. Addends, of the unit's result format, enter the first part. Raises ``BadInput`` for what does not fit.
    """
    unit, shape = schedule.unit, (a.shape[0], b.shape[0])
    check(unit, a, b, c, shape)
    own = bool(unit.scales)
    one, other = (operand(unit, x, s if own else None) for x, s in ((a, a_scale), (b, b_scale)))
    scales = (None, None) if own else (_factors(schedule, a, a_scale), _factors(schedule, b, b_scale))
    taken = _order(schedule, a.shape[1])
    if taken is not None:
        one, other = one.take(taken), other.take(taken)
    start, found = addends(c, shape), np.empty(shape)
    for rows, columns in _tiles(*shape):
        found[rows, columns] = _tile(
            schedule,
            Side(one.value[:, rows, None], one.exponent[:, rows, None]),
            Side(other.value[:, None, columns], other.exponent[:, None, columns]),
            start[rows, columns],
            None if scales[0] is None else scales[0][:, rows, None],
            None if scales[1] is None else scales[1][:, None, columns],
        )
    return _result(schedule, found)


def _tiles(rows: int, columns: int) -> Iterator[tuple[slice, slice]]:
    for i in range(0, rows, _TILE):
        for j in range(0, columns, _TILE):
            yield slice(i, i + _TILE), slice(j, j + _TILE)


def _order(schedule: Schedule, size: int) -> list[int] | None:
    """Positions of k in the order in which they enter; None where it ascends. A last, shorter period does."""
    period = len(schedule.k_order)
    if not period:
        return None
    whole = [start + place for start in range(0, size - size % period, period) for place in schedule.k_order]
    return [*whole, *range(len(whole), size)]


def _factors(schedule: Schedule, x: Coded, scale: Coded | None) -> F64 | None:
    """Scales [n, G] as [G, n]."""
    if not schedule.scaled:
        if scale is not None:
            raise BadInput(f"{schedule.unit.name} takes no scales, and the schedule says not where they are applied")
        return None
    count = -(-x.shape[1] // schedule.promote_every) if schedule.scaled == "stretches" else 1
    if scale is None or scale.shape != (x.shape[0], count):
        given = "none" if scale is None else list(scale.shape)
        raise BadInput(f"scaled={schedule.scaled!r}: scales {given}; expected [{x.shape[0]}, {count}]")
    return decode_values(scale).T


def _tile(schedule: Schedule, a: Side, b: Side, c: F64, a_scale: F64 | None, b_scale: F64 | None) -> F64:
    """A tile's values, before the last rounding."""
    size = len(a.value)
    each = -(-size // schedule.split_k)
    if schedule.promote_every:
        each = -(-each // schedule.promote_every) * schedule.promote_every
    parts = []
    for start in range(0, max(size, 1), max(each, 1)):
        stop = min(start + each, size)
        parts.append(_part(schedule, a, b, (start, stop), c if start == 0 else np.zeros_like(c), a_scale, b_scale))
    total = _reduced(schedule, parts)
    if schedule.scaled == "sum":
        assert a_scale is not None
        assert b_scale is not None
        total = _scaled(schedule.order, nearest(total, 23, FLOAT32), a_scale[0], b_scale[0])
    return total


def _part(
    schedule: Schedule, a: Side, b: Side, span: tuple[int, int], c: F64, a_scale: F64 | None, b_scale: F64 | None
) -> F64:
    """The sum over one part of K."""
    start, stop = span
    every = schedule.promote_every
    if not every:
        return accumulate(schedule.unit, a.cut(start, stop), b.cut(start, stop), c)
    for first in range(start, stop, every):
        last = min(first + every, stop)
        found = accumulate(schedule.unit, a.cut(first, last), b.cut(first, last), np.zeros_like(c))
        if schedule.scaled == "stretches":
            assert a_scale is not None
            assert b_scale is not None
            c = _added(schedule, c, nearest(found, 23, FLOAT32), a_scale[first // every], b_scale[first // every])
        else:
            c = plus(c, found)
    return c


def _added(schedule: Schedule, c: F64, found: F64, one: F64, other: F64) -> F64:
    if schedule.fused:
        return fma32(found, times(one, other), c)
    return plus(c, _scaled(schedule.order, found, one, other))


def _scaled(order: Order, found: F64, one: F64, other: F64) -> F64:
    match order:
        case "a first":
            return times(times(found, one), other)
        case "b first":
            return times(times(found, other), one)
    return times(found, times(one, other))


def plus(x: F64, y: F64) -> F64:
    """The float32 sum: float64 has more than twice its digits and two, so its own rounding is innocuous."""
    with np.errstate(invalid="ignore"):
        return nearest(x + y, 23, FLOAT32)


def times(x: F64, y: F64) -> F64:
    """The float32 product, exact in float64 before it is rounded."""
    with np.errstate(invalid="ignore"):
        return nearest(x * y, 23, FLOAT32)


def _reduced(schedule: Schedule, parts: list[F64]) -> F64:
    """The parts' sums added up, each stored in the format of the reduction."""
    if len(parts) == 1:
        return parts[0]
    if schedule.unit.out == "int32":
        return wrapped(np.sum(parts, axis=0))
    stored = [_stored(schedule, part) for part in parts]
    while len(stored) > 1 and schedule.reduce == "pairs":
        pairs = [stored[i : i + 2] for i in range(0, len(stored), 2)]
        stored = [_stored(schedule, plus(*pair)) if len(pair) == 2 else pair[0] for pair in pairs]
    total = stored[0]
    for part in stored[1:]:
        total = _stored(schedule, plus(total, part))
    return total


def _stored(schedule: Schedule, values: F64) -> F64:
    return values if schedule.reduce_format == "float32" else decode_values(_narrowed(values, schedule.reduce_format))


def _narrowed(values: F64, format_name: str) -> Coded:
    with np.errstate(over="ignore"):
        return cast(Coded("float32", values.astype(np.float32).view(np.uint32)), format_name, _CAST)


def _result(schedule: Schedule, found: F64) -> Coded:
    unit, out = schedule.unit, schedule.out or schedule.unit.out
    whole = format_named(unit.out).family == "integer"
    if whole and schedule.scaled and not schedule.out:
        out = "float32"
    if out == unit.out and (whole or not (schedule.scaled or schedule.promote_every or schedule.split_k > 1)):
        return coded(unit, found)
    return _narrowed(nearest(found, 23, FLOAT32), out)
