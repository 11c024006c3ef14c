"""g_idx: the group of each column."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from narrowgauge.checkpoints.counting import PLACES, as_places
from narrowgauge.checkpoints.findings import Finding
from narrowgauge.checkpoints.passports import Passport
from narrowgauge.checkpoints.reading import pieces


def order_findings(passport: Passport) -> Iterator[Finding]:
    """What is wrong with the group of each column, where a tensor says it."""
    tensor, cutting = passport.tensors.get("order"), passport.cutting
    if tensor is None or cutting is None or tensor.dtype != "I32":
        return
    groups = cutting.grid(*passport.shape[-2:])[1]
    every = np.concatenate([piece.view("<i4") for piece in map(np.copy, pieces(tensor))] or [np.zeros(0, np.int32)])
    wrong = np.flatnonzero((every < 0) | (every >= groups))
    if wrong.size or len(every) != passport.shape[-1]:
        said = f"{len(wrong):,} of {len(every):,} entries lie outside of 0 to {groups - 1}"
        if len(every) != passport.shape[-1]:
            said = f"{len(every):,} entries for {passport.shape[-1]:,} columns"
        places = as_places(tensor, [(int(i), float(every[i])) for i in wrong[:PLACES]])
        yield Finding("order out of range", said, tensor.name, len(wrong), places)
