"""Calls of converters that show mistakes: every code under every kind of scale, unlike shards, zeros that wrap.

Each block, shard and row has a number of its own, none of them 1 where it can be helped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.conversion import Conversion, Held
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.operations import Claim
from narrowgauge.reference.behaviour import converting_of
from narrowgauge.reference.convert.memory import fits, packed
from narrowgauge.reference.convert.work import WIDTHS, shape_of
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.given import around, coded_as

#: ordinary scales; powers of two; what float16 cannot hold, or holds badly; and those that doubling or dividing spoils
USUAL = (0.37, 1 + 2.0**-8, 2.0**-9, 3.0, 1.0, 0.0123, 2.0**-3)
HARD = (146.0, 147.5, 200.0, 1e-5, 3e-8, 70000.0, 2.0**-14, 1e4, 2.0**127, 2.0**-126, 2.0**-149, 0.0)
#: of other formats of scales
_OTHERS: dict[str, tuple[float, ...]] = {
    "float8_e8m0fnu": (2.0**-3, 1.0, 2.0**7, 2.0**-20, 2.0**-126, 2.0**3, 2.0**-1),
    "float8_e4m3fn": (1.125, 448.0, 2.0**-9, 0.4375, 26.0, 0.0, 1.0),
    "int8": (-3.0, 5.0, -127.0, 0.0, 120.0, -20.0, 1.0),  # exponents
    "float16": (0.37, 0.0123, 2.0**-9, 3.0, 2.0**-14, 6.1e-5, 65504.0, 2.0**-24, 0.0),
    "bfloat16": (0.37, 0.0123, 2.0**-9, 3.0, 1e30, 1.0, 2.0**-3),
}
_HARD_OTHERS = {
    "float8_e8m0fnu": (2.0**127, float("nan"), 2.0**126, 2.0**-127, 2.0**100, 2.0**-100, 1.0),
    "float8_e4m3fn": (1.125, 448.0, 2.0**-9, float("nan"), 26.0, 0.0, 0.4375),
}
#: lower halves of float32: exact, halves of a step of bfloat16 and of float16, one ulp either side
_LOWER = (0, 0x8000, 0x7FFF, 0x8001, 0x1000, 0x0FFF, 0x1001, 0xFFFF, 0x0001, 0x9000, 0x8FFF)
#: shares of the rows that fused shards have: q is wider than k and v
_SHARES = (0.5, 0.125, 0.25)


@dataclass(frozen=True)
class Shape:
    """What a call looks like."""

    rows: int
    columns: int
    hard: bool = False  #: scales at the ends of their format, and beyond what narrower ones hold
    loaded_once: bool = False  #: the last shards' scales were never loaded: float32's least number
    empty_shard: bool = False
    finite: bool = False  #: no code is NaN, so that no amax is: a NaN in each block would hide all else


def call(shape: Shape) -> Callable[[Claim], Coded]:
    """The input of a claim."""
    return lambda claim: _input(converting_of(claim).conversion, claim.source, shape)


def suits(shape: Shape) -> Callable[[Claim], bool]:
    """Whether a claim's blocks and layouts take such a call."""

    def suited(claim: Claim) -> bool:
        conversion = converting_of(claim).conversion
        if (shape.loaded_once or shape.empty_shard) and not _has_widths(conversion):
            return False
        if shape.loaded_once and not any(name == "taken_where_one_scale_came" for name, *_ in conversion.steps):
            return False
        try:
            return fits(conversion, claim.format, _input(conversion, claim.source, shape))
        except BadInput:
            return False

    return suited


def _has_widths(conversion: Conversion) -> bool:
    return any(held.name == WIDTHS for held in conversion.takes)


def _input(conversion: Conversion, source: str, shape: Shape) -> Coded:
    fmt = format_named(source)
    codes = _spread(shape, fmt.bits).astype(fmt.storage)
    if shape.finite:
        codes[np.isnan(decode_values(Coded(source, codes)))] = 1
    widths = _widths(shape) if _has_widths(conversion) else np.zeros(1, np.int64)
    given = {}
    for held in conversion.takes[1:]:
        grid = shape_of(held, conversion, (shape.rows, shape.columns), widths.size)
        given[held.name] = _beside(conversion, held, source, grid, shape, widths)
    return Input(source, codes, given)


def _spread(shape: Shape, bits: int) -> npt.NDArray[np.int64]:
    """Codes of few bits one after the other, each row beginning elsewhere. Of 16 bits all, in an order that mixes them;
    of 32 bits these with lower halves that are ties of narrower formats, and their neighbours."""
    if bits <= 8:
        return (np.arange(shape.rows)[:, None] * 37 + np.arange(shape.columns)) % (1 << bits)
    place = np.arange(shape.rows * shape.columns).reshape(shape.rows, shape.columns)
    upper = place * 40_503 % (1 << 16)
    lower = np.asarray(_LOWER)[place % len(_LOWER)]
    return upper if bits == 16 else upper << 16 | lower


def _widths(shape: Shape) -> npt.NDArray[np.int64]:
    sizes = [int(share * shape.rows) for share in _SHARES]
    sizes = [*sizes, 0] if shape.empty_shard else sizes
    return np.array([*sizes, shape.rows - sum(sizes)], np.int64)


def _beside(
    conversion: Conversion, held: Held, source: str, grid: tuple[int, int], shape: Shape, widths: npt.NDArray[np.int64]
) -> Coded:
    fmt = held.format or source
    if held.name == WIDTHS:
        return coded_as(widths[:, None].astype(np.float64), "int32")
    if held.name == "zero_point":
        return coded_as(around(grid, _zeros(conversion)), "int32")
    made = around(grid, _scales(fmt, shape.hard))
    if shape.loaded_once and held.per == "shard":
        made[1:] = np.finfo(np.float32).min
    return coded_as(made, fmt)


def _scales(format_name: str, hard: bool) -> tuple[float, ...]:
    if format_name == "float32":
        return HARD if hard else USUAL
    usual = _OTHERS.get(format_name, USUAL)
    return _HARD_OTHERS.get(format_name, usual) if hard else usual


def _zeros(conversion: Conversion) -> tuple[float, ...]:
    """Zero points that both conventions have a place for, neighbours far apart."""
    zeros = [p.zeros for h in (*conversion.takes, *conversion.gives) if (p := packed(h)) is not None and p.zeros]
    low, high = max(z.lowest for z in zeros), min(z.highest for z in zeros)
    return tuple(float(low + 7 * place % (high - low + 1)) for place in range(high - low + 1))
