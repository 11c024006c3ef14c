"""The largest of a row, where numbers are known to lie between two ends: which columns may stand at each place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.errors import unknown
from narrowgauge.reference.wide.ends import F64, Ends

Whole = npt.NDArray[np.intp]
#: what decides between equal numbers: the lower column, the higher one, or nobody
TIES = ("lowest", "highest", "any")


@dataclass(frozen=True, eq=False)
class Choice:
    """``count`` largest of each row. Columns whose ``alike`` are equal in all have one and the same number."""

    ends: Ends
    count: int
    ties: str
    alike: tuple[F64, ...]


def chosen_of(choice: Choice, taken: Ends) -> tuple[Ends, Ends]:
    """Columns [rows, count] that may stand at each place, the least and the greatest of them; and between which ends
    the numbers of ``taken`` are that stand there. NaN may stand anywhere, since engines differ."""
    if choice.ties not in TIES:
        raise unknown("rule of ties", choice.ties, TIES)
    places = [_places(choice, row) for row in range(choice.ends.shape[0])]
    before, after = (np.array([p[k] for p in places]).reshape(choice.ends.shape) for k in (0, 1))
    place = np.arange(choice.count)[None, :, None]
    may = (before[:, None, :] <= place) & (place <= choice.ends.shape[1] - 1 - after[:, None, :])
    columns = np.arange(choice.ends.shape[1], dtype=np.float64)
    where = Ends(_least(may, columns), -_least(may, -columns))
    values = Ends(_least(may, taken.low[:, None, :]), -_least(may, -taken.high[:, None, :]))
    return where, values


def _places(choice: Choice, row: int) -> tuple[Whole, Whole]:
    """Of each column of a row: how many others certainly stand before it, and how many after it."""
    low, high = choice.ends.low[row], choice.ends.high[row]
    nan = np.isnan(low) | np.isnan(high)
    least, most = np.where(nan, -np.inf, low), np.where(nan, np.inf, high)
    before = low.size - np.searchsorted(np.sort(least), most, side="right")
    after = np.searchsorted(np.sort(most), least, side="left")
    if choice.ties != "any":
        rank, rest = _among_equals(choice, row)
        one, two = (rank, rest) if choice.ties == "lowest" else (rest, rank)
        before, after = before + np.where(nan, 0, one), after + np.where(nan, 0, two)
    return before, after


def _among_equals(choice: Choice, row: int) -> tuple[Whole, Whole]:
    """Of each column: how many equal ones have a lower index, and how many a higher one. Numbers are equal where they
    are exactly known and the same, or made of what is alike."""
    low, high = choice.ends.low[row], choice.ends.high[row]
    key = np.zeros(low.size, np.intp)
    for value in choice.alike:
        numbers = np.broadcast_to(value, choice.ends.shape)[row] if value.shape[0] == 1 else value[row]
        key = key * low.size + np.unique(numbers, return_inverse=True)[1]
        key = np.unique(key, return_inverse=True)[1]
    exact = np.unique(low, return_inverse=True)[1]
    key = np.where(low == high, exact, low.size + key)
    order = np.argsort(key, kind="stable")
    _, first, group, counts = np.unique(key[order], return_index=True, return_inverse=True, return_counts=True)
    rank = np.empty(low.size, np.intp)
    rank[order] = np.arange(low.size) - first[group]
    size = np.empty(low.size, np.intp)
    size[order] = counts[group]
    return rank, size - 1 - rank


def _least(may: npt.NDArray[np.bool_], value: F64) -> F64:
    """The least of those that may be; NaN where one of them is."""
    return np.asarray(np.where(may, value, np.inf).min(axis=2))
