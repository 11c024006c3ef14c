"""Matrices for kernels that read codes, and for those that compute something before they quantize."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.operations import Claim
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.reference.fast_codec import cast
from narrowgauge.reference.form import parts_of
from narrowgauge.reference.noise import noise

#: of a matrix of every code: a multiple of every block of columns, and of the words of every layout
COLUMNS = 256


def every_code(rows: int, columns: int = COLUMNS) -> Callable[[Claim], Coded]:
    """Every code of the source in each row, each row beginning elsewhere: a block of 16 meets all of them in time."""

    def make(claim: Claim) -> Coded:
        fmt = format_named(claim.source)
        place = np.arange(rows)[:, None] * 37 + np.arange(columns)
        return Coded(fmt.name, (place % fmt.code_count).astype(fmt.storage))

    return make


def noise_rows(columns: int) -> Callable[[Claim], Coded]:
    """Rows of noise of a magnitude each, one of zeros, and one with a single large element."""

    def make(claim: Claim) -> Coded:
        wide = columns * parts_of(claim)
        powers = (-12, -6, -2, -1, 0, 1, 3, 6)
        rows = [np.ldexp(noise(wide, seed=20 + k), power) for k, power in enumerate(powers)]
        outlier = noise(wide, seed=40)
        outlier[7] = 300.0
        value = np.stack([*rows, np.zeros(wide), outlier])
        exact = CastPolicy(overflow="special", infinity="special")
        return cast(Coded("float64", value.view(np.uint64)), claim.source, exact)

    return make
