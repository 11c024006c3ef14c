"""What steps of an open last bit may answer besides, by hand: from the words in which each is said to be imprecise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

INF, NAN = float("inf"), float("nan")
TINY, ULP = 2.0**-126, 2.0**-149
#: step: value, its own answer, and every other; a third is 0x3EAAAAAB
TABLE: dict[str, tuple[tuple[float, float, tuple[float, ...]], ...]] = {
    "recip_approx": (
        (3.0, 11184811 * 2.0**-25, (11184810 * 2.0**-25, 11184812 * 2.0**-25)),
        (1.0, 1.0, (1 - 2.0**-24, 1 + 2.0**-23)),
        (-4.0, -0.25, (-0.25 + 2.0**-26, -0.25 - 2.0**-25)),
        (0.0, INF, (INF, INF)),
        (-0.0, -INF, (-INF, -INF)),
        (INF, 0.0, (0.0, 0.0)),
        (2.0**-127, INF, (INF, INF)),
        (TINY, 2.0**126, (2.0**126 - 2.0**102, 2.0**126 + 2.0**103)),
        (2.0**126, TINY, (0.0, TINY + ULP)),
        (2.0**126 + 2.0**103, 0.0, (0.0, TINY)),
        (2.0**127, 0.0, (0.0, 0.0)),
        (NAN, NAN, (NAN, NAN)),
    ),
    # log2 of 16 (1 + n 2^-23) is 4 + n 0.36 places: of 1 it is rounded to 4, of 3 beside it, of 5 beyond that
    "exp2_ceil_log2": (
        (16.0, 16.0, (16.0, 16.0)),
        (16.0 + 2.0**-19, 16.0, (32.0, 16.0)),
        (16.0 + 3 * 2.0**-19, 32.0, (32.0, 16.0)),
        (16.0 + 5 * 2.0**-19, 32.0, (32.0, 32.0)),
        (16.0 - 2.0**-20, 16.0, (16.0, 16.0)),
        (1.0, 1.0, (1.0, 1.0)),
        (24.0, 32.0, (32.0, 32.0)),
        (2.0**-5 + 2.0**-28, 2.0**-5, (2.0**-4, 2.0**-5)),
        (ULP, ULP, (ULP, ULP)),
        (2.0**127, 2.0**127, (2.0**127, 2.0**127)),
        (2.0**127 + 2.0**104, 2.0**127, (INF, 2.0**127)),
        (0.0, 0.0, (0.0, 0.0)),
        (-1.0, NAN, (NAN, NAN)),
        (INF, INF, (INF, INF)),
        (NAN, NAN, (NAN, NAN)),
    ),
    # below 4 the places are half as large: of 16 (1 - n 2^-24), 4 - n 0.36 of them
    "exp2_floor_log2": (
        (16.0, 16.0, (16.0, 16.0)),
        (16.0 - 2.0**-20, 16.0, (8.0, 16.0)),
        (16.0 - 3 * 2.0**-20, 8.0, (8.0, 16.0)),
        (16.0 - 5 * 2.0**-20, 8.0, (8.0, 8.0)),
        (16.0 + 2.0**-19, 16.0, (16.0, 16.0)),
        (1.0, 1.0, (1.0, 1.0)),
        (24.0, 16.0, (16.0, 16.0)),
        (0.75, 0.5, (0.5, 0.5)),
        (2.0**127, 2.0**127, (2.0**127, 2.0**127)),
        (0.0, 0.0, (0.0, 0.0)),
        (-1.0, NAN, (NAN, NAN)),
        (INF, INF, (INF, INF)),
        (NAN, NAN, (NAN, NAN)),
    ),
}


def wrong_variants(steps: Any) -> Iterator[str]:
    """What the module of the steps admits otherwise."""
    if set(TABLE) != set(steps.VARIANTS):
        yield "which steps are open"
    with np.errstate(all="ignore"):
        for name, rows in TABLE.items():
            given = np.array([row[0] for row in rows], np.float32)
            wanted = np.array([(row[1], *row[2]) for row in rows], np.float32).T
            answers = [steps.STEPS[name], *steps.VARIANTS[name]]
            if len(answers) != len(wanted):
                yield f"how many answers {name} has"
            for answer, want in zip(answers, wanted, strict=False):
                got = np.asarray(answer(given), np.float32)
                same = (got.view(np.uint32) == want.view(np.uint32)) | (np.isnan(got) & np.isnan(want))
                for value in given[~same]:
                    yield f"what {name} of {value} may be"
