"""A cut of a tensor that holds every class of difference and some agreement: what faults are tried on first."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from narrowgauge.reference.compare import Difference

Rows = npt.NDArray[np.intp]
#: how many rows of each class of difference a witness takes, and how many rows that agree
PER_CLASS, AGREEING = 64, 256


def witness(difference: Difference) -> Rows:
    """Rows (of the first axis) that show each class of difference in each output, and some that show none."""
    chosen: list[Rows] = []
    agrees = np.ones(next(iter(difference.classes.values())).shape[0], np.bool_)
    for classes in difference.classes.values():
        rows = classes.reshape(len(agrees), -1)
        agrees &= ~rows.any(axis=1)
        for number in np.flatnonzero(np.bincount(rows.ravel())[1:]) + 1:
            chosen.append(spread(np.flatnonzero((rows == number).any(axis=1)), PER_CLASS))
    return np.unique(np.concatenate([*chosen, spread(np.flatnonzero(agrees), AGREEING)]))


def spread(rows: Rows, most: int) -> Rows:
    """At most so many of the rows, spread evenly, first and last among them."""
    if rows.size <= most:
        return rows
    return rows[np.linspace(0, rows.size - 1, most).astype(np.intp)]
