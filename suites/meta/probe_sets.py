"""Simulated kernels for the tests of probes: what they answer, by models that share no code with reference/units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.probes.portrait import stages
from narrowgauge.reference.probes.rows import Key, Sheet
from narrowgauge.reference.probes.setting import Setting, Side
from narrowgauge.suites.meta.probe_units import TOYS, Plan, last, nearest, value

E4M3, E5M2, FNUZ, BF16, F16, F32 = (
    "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "bfloat16", "float16", "float32",
)  # fmt: skip
F64 = npt.NDArray[np.float64]
#: what a kernel makes of the products of one row, [(k, number of a, number of b)], at a length of K
Total = Callable[[Sequence[tuple[int, float, float]], int], int]


def setting(source: str, out: str, k: int = 512) -> Setting:
    """Plain numbers of one format."""
    return Setting(Side(source), Side(source), out, k)


def rounded_to(out: str, x: int) -> float:
    """A sum as a result: to nearest, ties to even."""
    fmt = format_named(out)
    return value(nearest(x, last(x, fmt.mantissa, 1 - fmt.bias)))


def answers(asked: Setting, total: Total, end: Callable[[str, int], float] = rounded_to) -> dict[Key, float]:
    """A kernel's answers to all launches, from the numbers of each sheet."""
    return {key: end(asked.out, total(terms, k)) for key, terms, k in _asked(asked)}


@cache
def _asked(asked: Setting) -> list[tuple[Key, list[tuple[int, float, float]], int]]:
    """Each row with its terms, and the length of K."""
    return [
        (key, _terms(sheet, place), stage.setting.k)
        for stage in stages(asked)
        for sheet in stage.sheets
        for place, key in enumerate(sheet.keys)
    ]


def _terms(sheet: Sheet, place: int) -> list[tuple[int, float, float]]:
    used = np.flatnonzero(sheet.a[place] * sheet.b[place])
    return [(int(k), float(sheet.a[place, k]), float(sheet.b[place, k])) for k in used]


def toy_answers(name: str, source: str, out: str, promote: int = 0, split: int = 0) -> dict[Key, float]:
    """The answers of a toy unit under a plan."""
    return answers(setting(source, out), Plan(TOYS[name], promote, split).total)


# --- scaled kernels in float32 ---------------------------------------------------------------------------------------

ORDERS: dict[str, Callable[..., F64]] = {
    "(d·a)·b": lambda d, a, b: d * a * b,
    "(d·b)·a": lambda d, a, b: d * b * a,
    "d·(a·b)": lambda d, a, b: d * (a * b),
}


def as_format(name: str, x: F64) -> F64:
    """float64 through another type and back: of float32, float16, and bfloat16 by its definition."""
    if name == "bfloat16":
        bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
        kept = (bits + np.uint64(0x7FFF) + ((bits >> np.uint64(16)) & np.uint64(1))) & np.uint64(0xFFFF0000)
        return kept.astype(np.uint32).view(np.float32).astype(np.float64)
    return np.asarray(x, name).astype(np.float64)


def scaled_answers(
    asked: Setting, site: str, order: str = "(d·a)·b", kept: str = F32, enters: str = BF16
) -> dict[Key, float]:
    """A kernel that applies scales in one of the known wrong or right places; its sums are exact."""
    found: dict[Key, float] = {}
    with np.errstate(all="ignore"):
        for stage in stages(asked):
            for sheet in stage.sheets:
                total = _scaled(sheet, site, ORDERS[order], kept, enters)
                found |= dict(zip(sheet.keys, as_format(asked.out, total).tolist(), strict=False))
    return found


def _scaled(sheet: Sheet, site: str, order: Callable[..., F64], kept: str, enters: str) -> F64:
    count, k = sheet.a.shape
    a, b = (as_format(kept, each) for each in _spread(sheet))
    products = sheet.a * sheet.b
    if site == "operands":
        return np.asarray((as_format(enters, sheet.a * a) * as_format(enters, sheet.b * b)).sum(axis=1))
    if site == "ignored":
        return np.asarray(products.sum(axis=1))
    if site == "stretch":
        along = sheet.setting.a.along or sheet.setting.b.along or 128
        total: npt.NDArray[Any] = np.zeros(count, np.float32)
        for start in range(0, k, along):
            part = products[:, start : start + along].sum(axis=1).astype(np.float32)
            total = total + order(part, a[:, start].astype(np.float32), b[:, start].astype(np.float32))
        return total.astype(np.float64)
    place = {"sum": 0, "first": 0, "last": -1}[site]
    scales = (each[:, place].astype(np.float32) for each in (a, b))
    return order(products.sum(axis=1).astype(np.float32), *scales).astype(np.float64)


def _spread(sheet: Sheet) -> list[F64]:
    """The scale of each element of a and of b, [P, K]."""
    count, k = sheet.a.shape
    found = []
    for side, grid in ((sheet.setting.a, sheet.a_scale), (sheet.setting.b, sheet.b_scale)):
        if grid is None:
            found.append(np.ones((count, k)))
            continue
        spread = np.repeat(np.repeat(grid, side.rows or count, axis=0), side.along or k, axis=1)
        found.append(spread[:count, :k])
    return found
