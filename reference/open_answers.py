"""A mismatch behind open answers of an instruction: do other allowed answers explain it?

The kernel was called again with other choices. Where the expected code of an element lies within what the choices gave,
another allowed answer may give it, and nobody is blamed. Where it lies beyond all of them, the kernel is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.verdict import OpenAnswers
from narrowgauge.reference.compare import Difference, compare
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.interval import Expected, Interval

Outputs = Mapping[str, Coded]
Mask = npt.NDArray[np.bool_]


def open_answers(difference: Difference, want: Expected, given: Mapping[str, Outputs]) -> OpenAnswers:
    """``difference`` of the first choice's outputs from ``want``; ``given``: outputs of every choice, the first too."""
    within = beyond = 0
    for name, classes in difference.classes.items():
        differs = classes != 0
        reached = _reached(want[name], [outputs[name] for outputs in given.values()])
        within += int(np.count_nonzero(differs & reached))
        beyond += int(np.count_nonzero(differs & ~reached))
    agrees = next((choice for choice, outputs in given.items() if compare(outputs, want).total == 0), "")
    return OpenAnswers(tuple(given), within, beyond, agrees)


def _reached(want: Interval, given: Sequence[Coded]) -> Mask:
    """Elements whose expectation meets the hull of what was given; NaN is met by NaN, a moved -0 by its own sign."""
    keys = np.stack([_keys(each) for each in given])
    nan = np.stack([np.isnan(decode_values(each)) for each in given])
    least = np.where(nan, np.iinfo(np.int64).max, keys).min(axis=0)
    most = np.where(nan, np.iinfo(np.int64).min, keys).max(axis=0)
    low, high = decode_values(want.low), decode_values(want.high)
    between = (_keys(want.low) <= most) & (least <= _keys(want.high)) & ~np.isnan(low) & ~np.isnan(high)
    return np.asarray(between | ((np.isnan(low) | np.isnan(high)) & nan.any(axis=0)))


def _keys(codes: Coded) -> npt.NDArray[np.int64]:
    """Numbers in the order of the values, -0 below +0."""
    bits = np.asarray(decode_values(codes), np.float64).view(np.int64)
    return np.where(bits < 0, np.int64(-1) - (bits & np.iinfo(np.int64).max), bits)
