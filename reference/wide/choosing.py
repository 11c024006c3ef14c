"""The largest of a row, where numbers are known to lie between two ends: which columns may stand at each place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.errors import unknown
from narrowgauge.reference.wide.ends import F64, Ends

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
    """Columns [rows, count] that may stand at each place, the least and the greatest of them; and between which ends the
    numbers of ``taken`` are that stand there. A row with NaN decides no column, and its numbers are NaN if all are."""
    if choice.ties not in TIES:
        raise unknown("rule of ties", choice.ties, TIES)
    before = _certainly_before(choice)
    least, most = before.sum(axis=1), before.shape[1] - 1 - before.sum(axis=2)
    place = np.arange(choice.count)[None, :, None]
    may = (least[:, None, :] <= place) & (place <= most[:, None, :])
    columns = np.arange(before.shape[1], dtype=np.float64)
    where = Ends(_least(may, columns), -_least(may, -columns))
    values = Ends(_least(may, taken.low[:, None, :]), -_least(may, -taken.high[:, None, :]))
    return where, values


def _certainly_before(choice: Choice) -> npt.NDArray[np.bool_]:
    """[rows, i, j]: whether column i stands before column j in every right answer."""
    low, high = choice.ends.low, choice.ends.high
    larger = low[:, :, None] > high[:, None, :]
    if choice.ties == "any":
        return np.asarray(larger)
    equal = np.ones(larger.shape, np.bool_)
    for value in choice.alike:
        equal &= value[:, :, None] == value[:, None, :]
    exact = (low == high)[:, :, None] & (low == high)[:, None, :] & (low[:, :, None] == low[:, None, :])
    column = np.arange(low.shape[1])
    first = column[:, None] < column[None, :] if choice.ties == "lowest" else column[:, None] > column[None, :]
    return np.asarray(larger | ((equal | exact) & first))


def _least(may: npt.NDArray[np.bool_], value: F64) -> F64:
    """The least of those that may be; NaN where one of them is."""
    return np.asarray(np.where(may, value, np.inf).min(axis=2))
