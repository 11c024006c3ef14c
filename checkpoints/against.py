"""Dequantized weights against those of the original checkpoint: the check that decides.

A correct quantization comes close to what the nearest one keeps (``ideal``). One that is further below than any choice
of scales explains is read wrong, scaled wrong, or of other weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.checkpoints.explained import Explained, Sample, explain
from narrowgauge.checkpoints.findings import Finding, Place
from narrowgauge.checkpoints.ideal import grid_of, nearest
from narrowgauge.checkpoints.model import Checkpoint
from narrowgauge.checkpoints.originals import Original, Sister, originals, sisters
from narrowgauge.checkpoints.passports import Passport
from narrowgauge.checkpoints.values import Raw, Rows, combined, raws, readable, rows

#: decibels below the nearest quantization from which on weights are lost. The smallest mistake that is known, a zero
#: point off by one step, adds an error of s^2 to one of s^2 / 12: 11 dB. GPTQ, which rounds for the layer's output and
#: not for its weights, lost 0.3 to 1.8 dB of drawn weights (2 to 4 bits, inputs from white to strongly correlated)
MARGIN = 6.0
#: the same for one row, whose numbers are fewer
ROW_MARGIN = 12.0
#: elements of a piece, and pieces that are looked at more closely
PIECE, SAMPLES = 1 << 18, 4

Values = npt.NDArray[np.float64]


@dataclass
class Sums:
    """Over the elements of a weight, x of the original and w of the checkpoint."""

    signal: float = 0.0
    noise: float = 0.0
    energy: float = 0.0  #: of w
    product: float = 0.0
    most: float = 0.0  #: the largest error
    lost: int = 0  #: finite in the original, NaN or infinite here
    lowest: list[tuple[float, int, int]] = field(default_factory=list)  #: SQNR, matrix, row of the worst rows

    @property
    def sqnr(self) -> float:
        return decibels(self.signal, self.noise)

    @property
    def cosine(self) -> float:
        both = np.sqrt(self.signal * self.energy)
        return float(self.product / both) if both else 0.0


def decibels(signal: float, noise: float) -> float:
    """Of two energies; infinite without noise, minus infinite without a signal."""
    if noise == 0:
        return np.inf
    return float(10 * np.log10(signal / noise)) if signal else -np.inf


@dataclass(frozen=True)
class Compared:
    """One weight against its original. Decibels are of energies: signal over error."""

    module: str
    original: str  #: names of its tensors there; "" where none was found
    sqnr: float = 0.0
    expected: float = 0.0  #: of the nearest quantization, over some of the rows
    most: float = 0.0  #: the largest error
    cosine: float = 0.0  #: weak: it does not see a factor
    lost: int = 0
    finding: Finding | None = None

    def to_json(self) -> dict[str, Any]:
        """Decibels that are infinite are null: JSON has no infinity."""
        return {
            "module": self.module,
            "original": self.original,
            "sqnr_db": self.sqnr if np.isfinite(self.sqnr) else None,
            "expected_sqnr_db": self.expected if np.isfinite(self.expected) else None,
            "max_error": self.most if np.isfinite(self.most) else None,
            "cosine": self.cosine,
            "lost": self.lost,
        }


def compare(passports: Sequence[Passport], original: Checkpoint) -> Iterator[Compared]:
    """Each weight that is quantized against the original's. Raises ``BadInput`` where a file ends too early."""
    for passport in passports:
        yield compare_one(passport, passports, original)


def compare_one(passport: Passport, passports: Sequence[Passport], original: Checkpoint) -> Compared:
    """One weight; of several that it may be in the original, the one that is nearest."""
    name = passport.weight.name
    if reason := readable(passport):
        return Compared(passport.module, "", finding=Finding("not compared", reason, name))
    found = [_against(passport, each, original) for each in originals(passport, passports, original)]
    if not found:
        said = f"no plain tensor of shape {list(passport.shape)} is {passport.module!r} in {original.path}"
        return Compared(passport.module, "", finding=Finding("not compared", said, name))
    return max(found, key=lambda each: each.sqnr)


def _pieces(passport: Passport) -> Iterator[tuple[Rows, Raw | None]]:
    step = max(1, (passport.cutting.rows if passport.cutting else 0) or 1)
    size = max(PIECE, step * passport.shape[-1])
    size = size // (step * passport.shape[-1]) * step * passport.shape[-1] if passport.shape[-1] else size
    if passport.scheme.block_size:
        yield from ((each, None) for each in rows(passport, size))
    else:
        for raw in raws(passport, size):
            yield Rows(raw.which, raw.first, combined(raw)), raw


def _against(passport: Passport, original: Original, others: Checkpoint) -> Compared:
    sums, samples, amax = Sums(), list[Sample](), _amax(passport, original)
    count = max(1, passport.count // PIECE)
    for number, (piece, raw) in enumerate(_pieces(passport)):
        x = original.rows(piece.which, piece.first, len(piece.values))
        _add(sums, x, piece)
        if number % max(1, count // SAMPLES) == 0 and len(samples) < SAMPLES:
            samples.append(Sample(x, piece, raw, nearest(x, passport, amax)))
    expected = decibels(sum(s.signal for s in samples), sum(s.noise(s.nearest) for s in samples))
    return Compared(
        passport.module, original.name, sums.sqnr, expected, sums.most, sums.cosine, sums.lost,
        _judge(passport, sums, samples, expected, sisters(passport, original, others)),
    )  # fmt: skip


def _amax(passport: Passport, original: Original) -> float:
    """The largest magnitude of the original, where one scale is over all of it; else nobody needs it."""
    if grid_of(passport)[1:] != (0, 0):
        return 0.0
    n, columns = passport.shape[-2:]
    step = max(1, PIECE // max(1, columns))
    most = 0.0
    for which in range(prod(passport.shape[:-2])):
        for first in range(0, n, step):
            x = np.abs(original.rows(which, first, min(step, n - first)))
            most = max(most, float(x[np.isfinite(x)].max(initial=0.0)))
    return most


def _add(sums: Sums, x: Values, piece: Rows) -> None:
    w = piece.values
    there, came = np.isfinite(x), np.isfinite(w)
    both = there & came
    sums.lost += int(np.count_nonzero(there & ~came))
    x, w = np.where(both, x, 0.0), np.where(both, w, 0.0)
    with np.errstate(over="ignore"):
        error = x - w
        signal, noise = (x * x).sum(axis=1), (error * error).sum(axis=1)
        sums.signal += float(signal.sum())
        sums.noise += float(noise.sum())
        sums.energy += float((w * w).sum())
    sums.product += float((x * w).sum())
    sums.most = max(sums.most, float(np.abs(error).max(initial=0.0)))
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(noise > 0, 10 * np.log10(signal / noise), np.inf)
    worst = np.argsort(each, kind="stable")[:3]
    sums.lowest = sorted([*sums.lowest, *((float(each[i]), piece.which, piece.first + int(i)) for i in worst)])[:3]


def _judge(
    passport: Passport, sums: Sums, samples: list[Sample], expected: float, others: Iterator[Sister]
) -> Finding | None:
    name = passport.weight.name
    # under a second scale over all, a row that is small by itself is rounded coarsely, and rightly so
    own_scale = passport.cutting is not None and passport.cutting.cut in ("row", "group")
    own_scale = own_scale and "second" not in passport.tensors
    low = sums.lowest[0] if own_scale and sums.lowest else (np.inf, 0, 0)
    few = not (sums.sqnr < expected - MARGIN) and low[0] < expected - ROW_MARGIN
    if not few and not sums.sqnr < expected - MARGIN and not sums.lost:
        return None
    if sums.lost:
        said = f"{sums.lost:,} weights become NaN or infinite"
        return Finding("weights lost", said, name, sums.lost)
    said = f"SQNR {sums.sqnr:.1f} dB; the nearest quantization of the original keeps {expected:.1f} dB"
    found = Explained("", "") if few else explain(passport, samples, expected, others)
    if found.meant:
        return Finding("weights rescaled", f"{said}; {found.says}", name)
    if few:
        said += f"; its row {low[2]} has {low[0]:.1f} dB"
    places = tuple(Place((row,), f"{db:.1f} dB") for db, _, row in sums.lowest)
    said = f"{said}; {found.says}" if found.says else said
    return Finding("weights lost", said, name, passport.count, places, found.remedy)
