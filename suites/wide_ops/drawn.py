"""Calls of wide operations that hypothesis draws, and shrinks: sizes, magnitudes, and numbers of any kind in any
places."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.operations import Claim
from narrowgauge.reference.behaviour import widening_of
from narrowgauge.reference.noise import noise
from narrowgauge.reference.wide.cases import call_with
from narrowgauge.reference.wide.ends import F64
from narrowgauge.reference.wide.run import guesses

COLUMNS, ROWS, FEW = (4, 6, 16, 30, 64, 130), (1, 2, 5), 4
_ODD = (0.0, -0.0, 1.0, -1.0, 2.0**-20, -(2.0**-130), 88.5, -104.0, 300.0, -65504.0, 2.0**20)
_SPECIAL = (float("nan"), float("inf"), float("-inf"))
_PLACES = st.integers(0, (1 << 16) - 1)


def calls(claim: Claim) -> st.SearchStrategy[Coded]:
    """A call of noise of some magnitude, with other numbers in some places."""
    wide = widening_of(claim).wide
    special = () if guesses(wide) else _SPECIAL[1:] if wide.chosen else _SPECIAL
    drawn = st.tuples(
        st.sampled_from(ROWS), st.sampled_from(COLUMNS), st.integers(-12, 6), st.integers(0, 1 << 20),
        st.dictionaries(_PLACES, st.sampled_from(_ODD + special), max_size=FEW),
    )  # fmt: skip
    return drawn.map(lambda parts: call_with(_matrix(wide.parts, *parts), wide, claim.source))


def _matrix(parts: int, rows: int, columns: int, power: int, seed: int, odd: dict[int, float]) -> F64:
    value = np.ldexp(noise(rows * columns * parts, seed), power)
    for place, number in odd.items():
        value[place % value.size] = number
    return value.reshape(rows, columns * parts)
