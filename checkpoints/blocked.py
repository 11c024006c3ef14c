"""The census of weights in GGUF's blocks: of the numbers that they stand for; their bytes are codes of no format."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from narrowgauge.checkpoints.counted import Census
from narrowgauge.checkpoints.passports import Passport
from narrowgauge.checkpoints.tally_floats import FloatTally
from narrowgauge.checkpoints.values import PIECE, readable, rows
from narrowgauge.contracts.formats import FORMATS

#: elements that are looked at together, once they are numbers: they stay in a core's cache
RUN = 1 << 15


def is_blocked(passport: Passport) -> bool:
    """Whether a weight stands in blocks that can be read."""
    return bool(passport.scheme.block_size) and not readable(passport)


def census_of_values(passport: Passport, into: Iterable[str]) -> Census:
    """As ``take_census``, of float64. Raises ``BadInput`` where the file does not give the bytes."""
    fmt, (n, columns) = FORMATS["float64"], passport.shape[-2:]
    tally = FloatTally(fmt, into, RUN)
    for piece in rows(passport, PIECE):
        values = np.ascontiguousarray(piece.values).reshape(-1)
        first = (piece.which * n + piece.first) * columns
        for start in range(0, values.size, RUN):
            tally.add(values[start : start + RUN].view(np.uint8), first + start)
    return tally.result(passport.shape)
