"""Step tables: a whole space of inputs as the first pattern of each run of equal codes. And their short form, stairs.

A destination of many bits has as many steps as codes, but they are evenly spaced over long stretches. A stair is such
a stretch: ``count`` steps, the first at pattern ``first`` with ``code``, each next one ``stride`` patterns and ``rise``
codes further. Ties to even make the steps of even and of odd codes two stairs that lie between each other.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import Codes, Format
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.reference.fast_codec import cast

Ints = npt.NDArray[np.int64]
#: what a stair is made of, in the order of ``fold`` and ``unfold``
STAIR = ("first", "stride", "count", "code", "rise")
#: fewer steps than this are kept one by one
SHORTEST = 3


def step_table(source: Format, fmt: Format, policy: CastPolicy) -> tuple[Codes, Codes]:
    """First source pattern of each run of equal codes, in ascending order of patterns, and the code of each run.

    It is found by bisection. Within a sign, and apart from NaN, codes are monotone in the pattern, so a stretch whose
    ends have one code has no other.
    """

    def code_at(patterns: Ints) -> Ints:
        return cast(Coded(source.name, patterns.astype(source.storage)), fmt.name, policy).codes.astype(np.int64)

    starts = _starts(source)
    ends = np.array([*starts[1:], source.code_count], np.int64) - 1
    found = [starts]
    low, high = starts, ends
    at_low, at_high = code_at(low), code_at(high)
    while low.size:
        changes = at_low != at_high
        adjacent = changes & (high - low == 1)
        found.append(high[adjacent])
        open_ = changes & ~adjacent
        low, high, at_low, at_high = low[open_], high[open_], at_low[open_], at_high[open_]
        middle = (low + high) // 2
        at_middle = code_at(middle)
        low, high = np.concatenate([low, middle]), np.concatenate([middle, high])
        at_low, at_high = np.concatenate([at_low, at_middle]), np.concatenate([at_middle, at_high])
    first = np.sort(np.concatenate(found))  # none is there twice: a change lies within one stretch, after its start
    code = code_at(first)
    keep = np.concatenate([[True], code[1:] != code[:-1]])
    return first[keep].astype(source.storage), code[keep].astype(fmt.storage)


def _starts(source: Format) -> Ints:
    """The first patterns of the stretches in which codes are monotone."""
    first_nan = (((1 << source.exponent) - 1) << source.mantissa) + 1
    # A zero stands apart: in a format without one it may be a NaN, as overflow at the other end may be.
    plus = np.array([0, 1, first_nan], np.int64)
    return np.concatenate([plus, plus + source.sign_bit])


def fold(first: Codes, code: Codes) -> Ints:
    """The stairs of a step table, [5, stairs] in the order of ``STAIR``, ascending by their first pattern."""
    at, to = first.astype(np.int64), code.astype(np.int64)
    stairs = [stair for odd in (0, 1) for stair in _stairs(at[to % 2 == odd], to[to % 2 == odd])]
    return np.array(sorted(stairs), np.int64).T


def _stairs(at: Ints, to: Ints) -> list[tuple[int, int, int, int, int]]:
    """The stairs of the steps of one parity, each as long as it can be."""
    stride, rise = np.diff(at), np.diff(to)
    breaks = np.flatnonzero((np.diff(stride) != 0) | (np.diff(rise) != 0)) + 1
    stairs, place = [], 0
    while place < at.size:
        past = int(np.searchsorted(breaks, place, side="right"))
        last = int(breaks[past]) if past < breaks.size else at.size - 1
        if last - place + 1 >= SHORTEST and rise[place] >= 0:
            count = last - place + 1
            stairs.append((int(at[place]), int(stride[place]), count, int(to[place]), int(rise[place])))
        else:
            count = 1
            stairs.append((int(at[place]), 1, 1, int(to[place]), 0))
        place += count
    return stairs


def unfold(stairs: Ints) -> tuple[Ints, Ints]:
    """The step table of stairs: first patterns in ascending order, and the code of each run."""
    first, stride, count, code, rise = stairs
    stair = np.repeat(np.arange(first.size), count)
    step = np.arange(stair.size) - np.repeat(np.cumsum(count) - count, count)
    at = first[stair] + step * stride[stair]
    order = np.argsort(at, kind="stable")
    return at[order], (code[stair] + step * rise[stair])[order]


def spaced(stairs: Ints, source: Format, fmt: Format) -> bool:
    """Whether stairs are a step table: they begin at pattern 0, no two steps are at one place, none lies outside."""
    first, stride, count, code, rise = stairs
    # No table has more steps than this, and no damaged one may ask for more memory; below it no product overflows.
    most = min(source.code_count, 2 * fmt.code_count)
    if first[:1].tolist() != [0] or (stride < 1).any() or (count < 1).any() or int(count.sum()) > most:
        return False
    inside = (first + (count - 1) * stride < source.code_count) & (code + (count - 1) * rise < fmt.code_count)
    return bool(inside.all()) and bool((np.diff(unfold(stairs)[0]) > 0).all())
