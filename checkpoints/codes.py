"""What the codes of a weight say of its scales: whether groups reach the largest code, and how many codes are there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from narrowgauge.checkpoints.cutting import Cutting
from narrowgauge.checkpoints.findings import Finding
from narrowgauge.checkpoints.orders import order_findings
from narrowgauge.checkpoints.passports import Passport
from narrowgauge.checkpoints.reading import pieces
from narrowgauge.checkpoints.values import raws, readable, rows
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.reference.codec import largest, values

#: magnitudes of weights beyond which a scale is implausible: from rounding dust of float16 to ten times the largest
#: weight of any model that was looked at (facts: 497,160 is a running variance, weights stay below 100)
PLAUSIBLE = (2.0**-24, 1000.0)
#: a group is low where its largest code is at most this part of the largest there is. Where scale = amax / largest it
#: is within one step of 1; an exponent alone leaves a factor of two, and one more for whoever rounds it up
LOW_OF_FLOATS, LOW_OF_POWERS = 0.55, 0.2
#: pieces that are looked at of a weight with many groups, and elements of each
SOME, SIZE = 8, 1 << 16
LARGEST_FNUZ = 240
#: so many groups of all are low, and the largest codes make up so much, before anything is said
MANY_LOW, MANY_LARGEST = 0.5, 0.3


def top(passport: Passport) -> float:
    """The largest magnitude of a code of this weight, zero point considered."""
    fmt = FORMATS[passport.element]
    if passport.scheme.zeros:
        return float(fmt.code_count // 2)
    return float(values(fmt)[largest(fmt)])


@dataclass
class _Seen:
    """What was looked at of the codes of a weight."""

    groups: int = 0
    low: int = 0  #: groups whose largest code stays below the limit
    at_top: int = 0
    count: int = 0
    reached: float = 0.0


def code_findings(passport: Passport) -> Iterator[Finding]:
    """What the codes of one weight say of its scales: whether groups reach the largest code, and how many are there.

    Of one scale over all bytes, every code is looked at; else some pieces, which is enough for a share of all groups.
    Raises ``BadInput`` where the file ends too early.
    """
    if readable(passport) or passport.cutting is None or any(order_findings(passport)):
        return
    if passport.scheme.block_size:
        yield from _of_blocks(passport)
        return
    most = top(passport)
    limit = most * (LOW_OF_POWERS if passport.scheme.parts[0].format == "float8_e8m0fnu" else LOW_OF_FLOATS)
    whole = passport.cutting.cut == "tensor" and not passport.scheme.packing and "zeros" not in passport.tensors
    seen = _of_bytes(passport, most) if whole else _of_pieces(passport, passport.cutting, most, limit)
    if whole and seen.reached:
        seen.groups, seen.low = 1, int(seen.reached <= limit)
    name = passport.weight.name
    if seen.groups and seen.low > MANY_LOW * seen.groups:
        other = passport.element == "float8_e4m3fn" and seen.reached == LARGEST_FNUZ
        more = f"; {LARGEST_FNUZ} is the largest of the FNUZ flavour" if other else ""
        said = f"the codes of {seen.low:,} of {seen.groups:,} groups stay at or below {limit:g} of {most:g}{more}"
        yield Finding("scale too large", said, name, seen.low)
    if seen.at_top - seen.groups > MANY_LARGEST * seen.count:  # the largest of each group has it by construction
        said = f"{seen.at_top:,} of {seen.count:,} codes have the largest magnitude"
        yield Finding("codes saturate", said, name, seen.at_top)


def _of_bytes(passport: Passport, most: float) -> _Seen:
    """Codes of one byte each, as integers: their magnitudes ascend with them."""
    seen = _Seen(count=passport.count)
    fmt = FORMATS[passport.element]
    if fmt.family == "integer":
        for piece in pieces(passport.weight):
            signed = piece.view(np.int8)
            seen.reached = max(seen.reached, float(-int(signed.min())), float(signed.max()))
            seen.at_top += int(np.count_nonzero(signed == 127)) + int(np.count_nonzero(signed <= -127))
        return seen
    end, table = largest(fmt), values(fmt)
    for piece in pieces(passport.weight):
        magnitude = piece & np.uint8(fmt.sign_bit - 1)
        seen.reached = max(seen.reached, float(table[min(int(magnitude.max()), end)]))
        seen.at_top += int(np.count_nonzero(magnitude == end))
    return seen


def _of_pieces(passport: Passport, cutting: Cutting, most: float, limit: float) -> _Seen:
    seen, columns = _Seen(), cutting.columns or passport.shape[-1]
    # at least one block of rows, so that none is cut in two
    size = max(SIZE, (cutting.rows or 1) * passport.shape[-1])
    size = size // ((cutting.rows or 1) * passport.shape[-1]) * (cutting.rows or 1) * passport.shape[-1]
    for raw in raws(passport, size, SOME):
        magnitude = np.nan_to_num(np.abs(raw.decoded - raw.zeros))
        if raw.order is not None:  # columns of one group beside each other
            magnitude = magnitude[:, np.argsort(raw.order, kind="stable")]
        seen.at_top += int(np.count_nonzero(magnitude >= most - (1 if passport.scheme.zeros else 0)))
        seen.count += magnitude.size
        each = np.maximum.reduceat(magnitude, range(0, magnitude.shape[1], columns), axis=1)
        each = np.maximum.reduceat(each, range(0, len(each), cutting.rows or len(each)), axis=0)
        seen.reached = max(seen.reached, float(each.max(initial=0.0)))
        seen.groups += int(np.count_nonzero(each))
        seen.low += int(np.count_nonzero((each > 0) & (each <= limit)))
    return seen


def _of_blocks(passport: Passport) -> Iterator[Finding]:
    """Of blocks that hold their scales: whether each scale is a number, and what they make of some codes."""
    scheme, name, wrong, most = passport.scheme, passport.weight.name, 0, 0.0
    for piece in pieces(passport.weight, SIZE // scheme.block_bytes * scheme.block_bytes):
        block = piece.reshape(-1, scheme.block_bytes)
        for at in scheme.halves:
            exponent = block[:, at + 1] & np.uint8(0x7C)
            wrong += int(np.count_nonzero(exponent == 0x7C))
        if scheme.element == "float4_e2m1fn" and scheme.name.startswith("gguf"):
            wrong += int(np.count_nonzero(block[:, 0] == 255))
    for rows_ in islice(rows(passport, SIZE), SOME):
        finite = rows_.values[np.isfinite(rows_.values)]
        most = max(most, float(np.abs(finite).max(initial=0.0)))
    if wrong:
        yield Finding("scale not finite", f"{wrong:,} scales within blocks are infinite or NaN", name, wrong)
    if most and not PLAUSIBLE[0] <= most <= PLAUSIBLE[1]:
        yield Finding("scale implausible", f"its blocks make weights of up to {most:.3g}", name)
