"""How often each code of quantized tensors occurs, in the order of the numbers that codes stand for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from narrowgauge.checkpoints.counted import Census
from narrowgauge.checkpoints.passports import Passport
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.reference.codec import values

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Histogram:
    """Counts of codes by their numbers, ascending; NaN, where there is any, stands apart."""

    format: str
    codes: tuple[int, ...]  #: in the order of ``numbers``
    numbers: tuple[float, ...]
    counts: tuple[int, ...]
    nan: int

    @property
    def total(self) -> int:
        return sum(self.counts) + self.nan

    @property
    def at_the_ends(self) -> int:
        """Elements whose code is the last one on its side."""
        finite = [abs(n) for n in self.numbers if np.isfinite(n)]
        return sum(c for n, c in zip(self.numbers, self.counts, strict=True) if abs(n) == max(finite))


def codes_of(passport: Passport, census: Census) -> Counts | None:
    """How often each code of a weight's element occurs. None where bytes hold other things than one or two of them."""
    fmt = FORMATS.get(passport.element)
    if fmt is None or census.codes is None or passport.scheme.block_size or passport.scheme.block_bytes:
        return None
    if census.codes.size == fmt.code_count:
        return census.codes
    if census.codes.size == 256 and fmt.bits == 4:
        both = census.codes.reshape(16, 16)
        return np.asarray(both.sum(axis=0) + both.sum(axis=1), np.int64)
    return None


def histogram(format_name: str, counts: Iterable[Counts]) -> Histogram:
    """The sum of several counts, in order."""
    fmt = FORMATS[format_name]
    total = np.sum(list(counts), axis=0)
    numbers = values(fmt)
    there = ~np.isnan(numbers)
    order = [int(code) for code in np.argsort(numbers, kind="stable") if there[code]]
    return Histogram(
        fmt.name,
        tuple(order),
        tuple(float(numbers[code]) for code in order),
        tuple(int(total[code]) for code in order),
        int(total[~there].sum()),
    )


def by_pattern(
    passports: Iterable[Passport], censuses: Mapping[str, Census], pattern: Mapping[str, str]
) -> dict[tuple[str, str], Histogram]:
    """One for all weights of a pattern of names and an element's format: ``pattern`` by module."""
    found: dict[tuple[str, str], list[Counts]] = {}
    for one in passports:
        census = censuses.get(one.weight.name)
        counts = None if census is None else codes_of(one, census)
        if counts is not None:
            found.setdefault((pattern[one.module], FORMATS[one.element].name), []).append(counts)
    return {key: histogram(key[1], each) for key, each in found.items()}
