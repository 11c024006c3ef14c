"""What the codes of a weight say of its scales: whether groups reach the largest code, and how many codes are there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from narrowgauge.checkpoints.findings import Finding
from narrowgauge.checkpoints.orders import order_findings
from narrowgauge.checkpoints.passports import Passport
from narrowgauge.checkpoints.values import raws, readable, rows
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.reference.codec import largest, values

#: magnitudes of weights beyond which a scale is implausible: from rounding dust of float16 to ten times the largest
#: weight of any model that was looked at (facts: 497,160 is a running variance, weights stay below 100)
PLAUSIBLE = (2.0**-24, 1000.0)
#: a group is low where its largest code is at most this part of the largest there is. Where scale = amax / largest it
#: is within one step of 1; an exponent alone leaves a factor of two, and one more for whoever rounds it up
LOW_OF_FLOATS, LOW_OF_POWERS = 0.55, 0.2
#: so many groups of all are low, and the largest codes make up so much, before anything is said
MANY_LOW, MANY_LARGEST = 0.5, 0.3


def top(passport: Passport) -> float:
    """The largest magnitude of a code of this weight, zero point considered."""
    fmt = FORMATS[passport.element]
    if passport.scheme.zeros:
        return float(fmt.code_count // 2)
    return float(values(fmt)[largest(fmt)])


def code_findings(passport: Passport) -> Iterator[Finding]:
    """What the codes of one weight say of its scales: whether groups reach the largest code, and how many are there."""
    if readable(passport) or passport.cutting is None or any(order_findings(passport)):
        return
    if passport.scheme.block_size:
        yield from _of_blocks(passport)
        return
    most, groups, low, at_top, count = top(passport), 0, 0, 0, 0
    limit = most * (LOW_OF_POWERS if passport.scheme.parts[0].format == "float8_e8m0fnu" else LOW_OF_FLOATS)
    reached = 0.0
    rows, columns = passport.cutting.rows, passport.cutting.columns or passport.shape[-1]
    for raw in raws(passport):
        magnitude = np.abs(raw.decoded - raw.zeros)
        if raw.order is not None:  # columns of one group beside each other
            magnitude = magnitude[:, np.argsort(raw.order, kind="stable")]
        at_top += int(np.count_nonzero(magnitude >= most - (1 if passport.scheme.zeros else 0)))
        count += magnitude.size
        with np.errstate(invalid="ignore"):
            each = np.maximum.reduceat(np.nan_to_num(magnitude), range(0, magnitude.shape[1], columns), axis=1)
        reached = max(reached, float(each.max(initial=0.0)))
        if rows == 1:
            groups, low = (
                groups + int(np.count_nonzero(each)),
                low + int(np.count_nonzero((each > 0) & (each <= limit))),
            )
    if rows != 1:
        groups, low = (1, int(reached <= limit)) if reached else (0, 0)
    if groups and low > MANY_LOW * groups:
        fnuz = (
            "; 240 is the largest of the FNUZ flavour" if passport.element == "float8_e4m3fn" and reached == 240 else ""
        )
        said = f"the codes of {low:,} of {groups:,} groups stay at or below {limit:g} of {most:g}{fnuz}"
        yield Finding("scale too large", said, passport.weight.name, low)
    if count and at_top > MANY_LARGEST * count:
        yield Finding(
            "codes saturate", f"{at_top:,} of {count:,} codes have the largest magnitude", passport.weight.name, at_top
        )


def _of_blocks(passport: Passport) -> Iterator[Finding]:
    """Of blocks that hold their scales: whether what they stand for is a number, and one that weights have."""
    most, wrong = 0.0, 0
    for piece in rows(passport):
        finite = np.isfinite(piece.values)
        wrong += int(np.count_nonzero(~finite))
        most = max(most, float(np.abs(piece.values[finite]).max(initial=0.0)))
    if wrong:
        yield Finding("scale not finite", f"{wrong:,} weights are infinite or NaN", passport.weight.name, wrong)
    if most and not PLAUSIBLE[0] <= most <= PLAUSIBLE[1]:
        yield Finding("scale implausible", f"its blocks make weights of up to {most:.3g}", passport.weight.name)
