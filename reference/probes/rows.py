"""Rows of a probe, and sheets of them: row p of a and row p of b belong together, and D[p, p] is the answer.

One product of P x K by P x K answers P rows; what stands off the diagonal is looked at by nobody.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.reference.probes.setting import F64, Setting, Side

#: a row's name within its probe
Key = tuple[Hashable, ...]
#: scales other than 1, by block of K
Scales = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Row:
    """One dot product: k, number of a, number of b of each term that is not zero, and scales that are not 1."""

    terms: tuple[tuple[int, float, float], ...]
    a_scales: Scales = ()
    b_scales: Scales = ()


Rows = Mapping[Key, Row]


def row(setting: Setting, products: Mapping[int, float]) -> Row | None:
    """A row of these products, by k; None where the operands cannot hold them.

    Where elements are too narrow, powers of two go into the scales of blocks, if a matrix unit applies them.
    """
    return _plain(setting, products) or _scaled(setting, products)


def _plain(setting: Setting, products: Mapping[int, float]) -> Row | None:
    terms = []
    for k, product in products.items():
        factors = setting.factors(product)
        if factors is None:
            return None
        terms.append((k, *factors))
    return Row(tuple(terms))


def _scaled(setting: Setting, products: Mapping[int, float]) -> Row | None:
    a, b = setting.a, setting.b
    own = a.rows == b.rows == 1 and a.along == b.along > 0
    if not own or setting.scaled != "unit":
        return None
    terms: list[tuple[int, float, float]] = []
    a_scales, b_scales = [], []
    for block in sorted({k // a.along for k in products}):
        within = {k: v for k, v in products.items() if k // a.along == block}
        found = _block(setting, within)
        if found is None:
            return None
        terms += found[0]
        a_scales.append((block, found[1]))
        b_scales.append((block, found[2]))
    return Row(tuple(terms), tuple(a_scales), tuple(b_scales))


def _block(setting: Setting, within: Mapping[int, float]) -> tuple[list[tuple[int, float, float]], float, float] | None:
    """Terms of one block and the scales of both sides."""
    top = max(math.frexp(v)[1] - 1 for v in within.values())
    for lift in range(4):  # elements go up to 2^2 · 2^2
        exponent = top - lift
        each = {k: setting.factors(v / math.ldexp(1.0, exponent)) for k, v in within.items()}
        halves = exponent - exponent // 2, exponent // 2
        scales = [math.ldexp(1.0, half) for half in halves]
        held = all(_scale_side(side).holds(s) for side, s in zip((setting.a, setting.b), scales, strict=True))
        if held and all(each.values()):
            return [(k, *f) for k, f in each.items() if f is not None], scales[0], scales[1]
    return None


def _scale_side(side: Side) -> Side:
    return Side(side.scales)


@dataclass(frozen=True, eq=False)
class Sheet:
    """One launch: rows of both operands as numbers [P, K], scales [groups of rows, blocks of K], and whose rows."""

    keys: tuple[Key, ...]
    a: F64
    b: F64
    a_scale: F64 | None
    b_scale: F64 | None
    setting: Setting = field(repr=False)

    def codes(self) -> tuple[Coded, Coded]:
        """a and b as codes [P, K]."""
        return self.setting.a.codes(self.a), self.setting.b.codes(self.b)


def sheets(setting: Setting, rows: Rows, size: int = 256, step: int = 128) -> list[Sheet]:
    """Rows packed into launches of at most ``size``; each is filled up with zeros to a multiple of ``step``.

    Rows that share scales in memory are put into one launch only where they ask for the same ones.
    """
    groups: dict[tuple[Scales, Scales], list[Key]] = {}
    for key, each in rows.items():
        groups.setdefault((_shared(setting.a, each.a_scales), _shared(setting.b, each.b_scales)), []).append(key)
    found = []
    for shared, keys in groups.items():
        for start in range(0, len(keys), size):
            found.append(_sheet(setting, rows, keys[start : start + size], shared, step))
    return found


def _shared(side: Side, scales: Scales) -> Scales:
    return scales if side.rows != 1 else ()


def _sheet(setting: Setting, rows: Rows, keys: list[Key], shared: tuple[Scales, Scales], step: int) -> Sheet:
    count = -(-len(keys) // step) * step
    a, b = np.zeros((count, setting.k)), np.zeros((count, setting.k))
    for place, key in enumerate(keys):
        for k, x, y in rows[key].terms:
            a[place, k], b[place, k] = x, y
    of_rows = [rows[key].a_scales for key in keys], [rows[key].b_scales for key in keys]
    scales = [
        _scale_grid(side, setting.k, count, own if side.rows == 1 else [same])
        for side, own, same in zip((setting.a, setting.b), of_rows, shared, strict=True)
    ]
    return Sheet(tuple(keys), a, b, scales[0], scales[1], setting)


def _scale_grid(side: Side, k: int, count: int, each: Iterable[Scales]) -> F64 | None:
    if not side.scales:
        return None
    columns = -(-k // side.along) if side.along else 1
    if side.rows == 1:
        grid = np.ones((count, columns))
        for place, scales in enumerate(each):
            for block, scale in scales:
                grid[place, block] = scale
        return grid
    grid = np.ones((-(-count // side.rows) if side.rows else 1, columns))
    for scales in each:
        for block, scale in scales:
            grid[:, block] = scale
    return grid


def expanded(side: Side, grid: F64 | None, count: int, k: int) -> F64:
    """The scale of every element [count, K]."""
    if grid is None:
        return np.ones((count, k))
    rows = np.arange(count) // side.rows if side.rows else np.zeros(count, np.int64)
    columns = np.arange(k) // side.along if side.along else np.zeros(k, np.int64)
    return np.asarray(grid[rows[:, None], columns[None, :]])
