"""Two codes of 4 bits in a byte: whether bytes are such, and of which format."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.formats import FORMATS
from narrowgauge.reference.codec import values

Histogram = npt.NDArray[np.int64]
Found = tuple[tuple[str, ...], tuple[str, ...]]

#: bytes below which nothing is said
LEAST = 4096
#: halves of the summed difference between the two nibbles' shares; of 8-bit formats it is above 0.2
ALIKE = 0.05
#: below which shares of sixteen codes are all the same, and tell nothing
FLAT = 0.02
#: how much better one reading must mirror than another
BETTER = 4.0


def nibbles(codes: Histogram) -> Found | None:
    """Candidates and reasons if bytes are two codes of 4 bits each; None if they are not, or too few."""
    total = int(codes.sum())
    if total < LEAST:
        return None
    both = codes.reshape(16, 16) / total  # [high nibble, low nibble]
    high, low = both.sum(axis=1), both.sum(axis=0)
    noise = np.sqrt(8 / total)  # of such a sum over sixteen shares, at most
    if np.abs(high - low).sum() / 2 > ALIKE + noise:
        return None
    if np.abs(both - np.outer(high, low)).sum() / 2 > ALIKE + 4 * noise:
        return None
    shares = (high + low) / 2
    alike = "both nibbles of the bytes have the same distribution"
    candidates = ("float4_e2m1fn", "int4", "uint4")
    if np.abs(shares - 1 / 16).sum() / 2 < FLAT + noise:
        return (*candidates, "int8", "uint8"), ("all codes are about as common",)
    off = {name: _mirrored(shares, name) for name in ("float4_e2m1fn", "int4")}  # uint4 around 8 has int4's pairs
    best, second = sorted(off, key=lambda name: off[name])
    if off[second] < BETTER * (off[best] + noise / 4):
        return candidates, (alike, "whether they are floats or integers is not decided")
    mirrored = f"codes of either sign are alike if read as {best}, and not as {second}"
    if best == "float4_e2m1fn":
        return (best,), (alike, mirrored)
    if max(shares[0], shares[8]) < 2 * min(shares[0], shares[8]):
        return ("int4", "uint4"), (alike, mirrored, "whether 0 or 8 stands for zero is not decided")
    found = "int4" if shares[0] > shares[8] else "uint4"
    return (found,), (alike, mirrored, f"most are near {0 if found == 'int4' else 8}, so that stands for zero")


def _mirrored(shares: npt.NDArray[np.float64], name: str) -> float:
    """How far shares of numbers and of their negatives lie apart."""
    real = values(FORMATS[name])
    positive = np.flatnonzero(real > 0)
    positive = positive[np.isin(-real[positive], real)]
    negative = [int(np.flatnonzero(real == -x)[0]) for x in real[positive]]
    return float(np.abs(shares[positive] - shares[negative]).sum() / 2)
