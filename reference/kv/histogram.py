"""How often each magnitude stood in what went into a key-value cache.

A magnitude is a code without its sign: of bfloat16 or float16, where every bin is one value; of float32, where a bin is
a code of bfloat16 and holds the magnitudes from its value (with it) to the next code's (without it).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.kv_file import BINS, PLACES, ROPES
from narrowgauge.reference.fast_codec import decode_values

#: most elements of one histogram: sums of counts stay exact as 64-bit integers and as float64
MOST = 1 << 53


@dataclass(frozen=True, eq=False)
class Histogram:
    """The finite magnitudes of one part of one layer, and what was not finite."""

    format: str  #: of ``BINS``
    codes: npt.NDArray[np.int64]  #: bins that hold something, ascending
    counts: npt.NDArray[np.int64]  #: how many elements each holds, 1 or more
    nan: int
    inf: int
    amax: npt.NDArray[np.float32]  #: the largest finite magnitude of each head; 0 where there is none
    place: str = "cache"  #: of ``PLACES``
    rope: str = "none"  #: of ``ROPES``

    @property
    def exact(self) -> bool:
        """Whether every bin is one value."""
        return self.format != "float32"

    @property
    def finite(self) -> int:
        return int(self.counts.sum())

    @property
    def elements(self) -> int:
        return self.finite + self.nan + self.inf

    @property
    def largest(self) -> float:
        """The largest finite magnitude of all heads."""
        return float(self.amax.max(initial=0.0))

    def edges(self) -> tuple[Coded, Coded]:
        """The least and the largest magnitude that each bin can hold: [1, bins], in one format; the same where exact.

        The last bin of float32 ends at the largest magnitude that was seen.
        """
        bins = Coded(BINS[self.format], self.codes.astype(np.uint16).reshape(1, -1))
        if self.exact:
            return bins, bins
        low = self.codes.astype(np.uint32) << np.uint32(16)
        high = low + np.uint32(0xFFFF)
        if high.size:
            high[-1] = np.float32(self.largest).view(np.uint32)
        return Coded("float32", low.reshape(1, -1)), Coded("float32", high.reshape(1, -1))


def checked(found: Histogram, where: str) -> Histogram:
    """The same, if it can be what it says. Raises ``BadInput`` that names ``where`` and what is wrong."""
    if found.format not in BINS:
        raise BadInput(f"{where}: elements of {found.format!r}; expected {', '.join(BINS)}")
    for name, value, known in (("place", found.place, PLACES), ("rope", found.rope, ROPES)):
        if value not in known:
            raise BadInput(f"{where}: {name} {value!r}; expected {', '.join(known)}")
    if found.codes.ndim != 1 or found.codes.shape != found.counts.shape:
        raise BadInput(
            f"{where}: codes {list(found.codes.shape)} and counts {list(found.counts.shape)}; expected one list each, "
            "of one length"
        )
    if found.codes.size and (found.codes[0] < 0 or found.codes[-1] >= infinity_of(found.format)):
        raise BadInput(
            f"{where}: codes from {found.codes[0]} to {found.codes[-1]}; finite magnitudes of "
            f"{BINS[found.format]} are 0 to {infinity_of(found.format) - 1}"
        )
    if (np.diff(found.codes) <= 0).any():
        raise BadInput(f"{where}: codes are not in ascending order, each once")
    if (found.counts < 1).any() or found.nan < 0 or found.inf < 0:
        raise BadInput(f"{where}: a count below 1, or a negative number of NaN or infinities")
    if sum(map(float, found.counts)) + found.nan + found.inf > MOST:
        raise BadInput(f"{where}: more than 2^53 elements")
    _check_amax(found, where)
    return found


def _check_amax(found: Histogram, where: str) -> None:
    """The largest magnitude of the heads is in the last bin."""
    if found.amax.ndim != 1 or not found.amax.size:
        raise BadInput(f"{where}: amax has shape {list(found.amax.shape)}; expected [heads]")
    if not (np.isfinite(found.amax) & (found.amax >= 0)).all():
        raise BadInput(f"{where}: amax that is negative, infinite or NaN; of a head without a finite element it is 0")
    code = int(np.float32(found.largest).view(np.uint32) >> 16) if not found.exact else -1
    bins = format_named(BINS[found.format])
    last = Coded(bins.name, found.codes[-1:].astype(bins.storage))
    agrees = code == int(found.codes[-1]) if found.codes.size and code >= 0 else True
    if found.exact or not found.codes.size:
        agrees = found.largest == float(decode_values(last).max(initial=0.0))
    if not agrees:
        raise BadInput(f"{where}: the largest amax is {found.largest:g}, which is not in the last bin of the histogram")


def infinity_of(format_name: str) -> int:
    """The code of infinity among the bins of a format: the first that is no finite magnitude."""
    fmt = format_named(BINS[format_name])
    return ((1 << fmt.exponent) - 1) << fmt.mantissa


def histogram_of(x: Coded, heads: int = 1, **about: str) -> Histogram:
    """The histogram of a tensor [.., heads * d] of a format of ``BINS``. Raises ``BadInput`` for another one."""
    if x.format not in BINS or x.data.ndim < 1 or heads < 1 or x.shape[-1] % heads:
        raise BadInput(f"{x.format} {list(x.shape)} with {heads} heads; expected {', '.join(BINS)} [.., heads * d]")
    magnitude = x.codes.astype(np.int64) & (format_named(x.format).sign_bit - 1)
    top = infinity_of(x.format)
    shift = 0 if x.format in ("bfloat16", "float16") else 16
    infinite, finite = magnitude == top << shift, magnitude < top << shift
    codes, counts = np.unique(magnitude[finite] >> shift, return_counts=True)
    largest = np.where(finite, magnitude, 0).reshape(-1, heads, x.shape[-1] // heads).max(axis=(0, 2), initial=0)
    amax = decode_values(Coded(x.format, largest.astype(x.data.dtype))).astype(np.float32)
    nan = int((~finite & ~infinite).sum())
    return Histogram(x.format, codes, counts, nan, int(infinite.sum()), amax, **about)


def merged(every: list[Histogram], where: str) -> Histogram:
    """One histogram of what several have seen of the same heads. Raises ``BadInput`` where they are not of a kind."""
    return reduce(lambda one, other: _merged(one, other, where), every)


def _merged(one: Histogram, other: Histogram, where: str) -> Histogram:
    for name in ("format", "place", "rope"):
        if getattr(one, name) != getattr(other, name):
            raise BadInput(
                f"{where}: {name} is {getattr(one, name)!r} in one file and {getattr(other, name)!r} in another"
            )
    if one.amax.shape != other.amax.shape:
        raise BadInput(
            f"{where}: {one.amax.size} heads in one file and {other.amax.size} in another; files of one model's "
            "different heads are looked at one by one"
        )
    codes, places = np.unique(np.concatenate([one.codes, other.codes]), return_inverse=True)
    counts = np.zeros(codes.size, np.int64)
    np.add.at(counts, places, np.concatenate([one.counts, other.counts]))
    return replace(
        one, codes=codes, counts=counts, nan=one.nan + other.nan, inf=one.inf + other.inf,
        amax=np.maximum(one.amax, other.amax),
    )  # fmt: skip


def by_binade(histogram: Histogram) -> tuple[int, npt.NDArray[np.int64], int]:
    """Elements in [2^e, 2^(e+1)) for each exponent from the first that is returned on, and those in the bin of zero."""
    low = decode_values(histogram.edges()[0])[0]
    zero = int(histogram.counts[low == 0].sum())
    exponents = np.frexp(low[low > 0])[1] - 1
    if not exponents.size:
        return 0, np.zeros(0, np.int64), zero
    first = int(exponents.min())
    counts = np.zeros(int(exponents.max()) - first + 1, np.int64)
    np.add.at(counts, exponents - first, histogram.counts[low > 0])
    return first, counts, zero
