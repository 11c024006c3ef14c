"""Why a weight is not what the original has: the reading of its bytes that brings the original back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import numpy.typing as npt

from narrowgauge.checkpoints.hypotheses import FLAVOURS, HYPOTHESES, Hypothesis, pairs_in_blocks
from narrowgauge.checkpoints.originals import Sister
from narrowgauge.checkpoints.passports import Passport
from narrowgauge.checkpoints.reading import whole
from narrowgauge.checkpoints.values import Raw, Rows, combined
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.layouts import layout_named, storage_shape, unpack

#: of readings that come so near to each other, the first is named: one scale over all is a factor too
ALIKE = 0.5
#: an explanation brings the weight back to within so many decibels of the nearest quantization
RESTORED = 3.0

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Sample:
    """Some rows: of the original, of the checkpoint, and of the nearest quantization."""

    x: Values
    piece: Rows
    raw: Raw | None  #: None where codes and scales stand in one block
    nearest: Values

    @property
    def signal(self) -> float:
        return float(np.square(self.x[np.isfinite(self.x)]).sum())

    def noise(self, w: Values) -> float:
        """Energy of the error of other values for the same elements."""
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.square(self.x - w)
        return float(error[np.isfinite(self.x)].sum())


@dataclass(frozen=True)
class Explained:
    """What happened; "" where nothing explains it."""

    says: str
    remedy: str
    meant: bool = False  #: no mistake


def _db(signal: float, noise: float) -> float:
    if not np.isfinite(noise):
        return -np.inf
    return float(10 * np.log10(signal / noise)) if noise and signal else np.inf


def explain(
    passport: Passport, samples: Sequence[Sample], expected: float, sisters: Iterable[Sister] = ()
) -> Explained:
    """The mistake that, undone, comes within ``RESTORED`` dB of the nearest quantization. ``expected`` in dB.

    ``sisters``: what else of the original the weight may be.
    """
    signal = sum(sample.signal for sample in samples)
    tried = [
        (_db(signal, sum(sample.noise(w) for sample, w in zip(samples, each.values, strict=True))), each)
        for each in _readings(passport, samples)
    ]
    best = max((db + each.less for db, each in tried), default=-np.inf)
    if best >= expected - RESTORED:
        db, reading = next((db, each) for db, each in tried if db + each.less >= best - ALIKE)
        return Explained(f"{reading.says}: so read it has {db:.1f} dB", reading.remedy)
    groups = _by_group(passport, samples, signal)
    if groups >= expected - RESTORED:
        return Explained(
            f"with other scales for the same codes it has {groups:.1f} dB: the scales are of another layer or shard, "
            "in another order, or of another run",
            "Take codes and scales from the same run of the quantizer.",
        )
    columns = _db(signal, _after_columns(samples))
    if columns >= expected - RESTORED:
        return Explained(
            f"with a factor for each column it has {columns:.1f} dB: as AWQ and SmoothQuant leave it, which put the "
            "factors into the layer before", "Nothing, if that layer has them.", meant=True,
        )  # fmt: skip
    for sister in sisters:
        sample = samples[0]
        other = replace(sample, x=sister.rows(sample.piece.which, sample.piece.first, len(sample.x)))
        if _db(other.signal, other.noise(sample.piece.values)) >= expected - RESTORED:
            return Explained(
                f"these are the weights of {sister.name}", "Look how the exporter orders experts and shards."
            )
    return Explained("no mistake that is known here explains it: other weights, or another order of them", "")


def _of_factor(factor: float) -> str:
    if 0.98 < factor / 2 < 1.02:
        return "Double the scale: bytes of the FNUZ flavour stand for half of what OCP's do."
    if 0.98 < factor * 2 < 1.02:
        return "Halve the scale: it was doubled for the FNUZ flavour, and the bytes were kept."
    return "Correct the scale by that factor."


@dataclass(frozen=True, eq=False)
class _Reading:
    """Another way to read the bytes, and what they are then, for each sample."""

    says: str
    remedy: str
    values: list[Values]
    less: float = 0.0


def _readings(passport: Passport, samples: Sequence[Sample]) -> Iterator[_Reading]:
    """What the bytes stand for by each hypothesis: the ones that say more before those that say less."""
    kept = [sample.raw for sample in samples if sample.raw is not None]
    split = len(kept) == len(samples)
    if split:
        yield from _by(HYPOTHESES, passport, kept)
        yield from _swizzled(passport, kept)
    if factor := _factor(samples):
        values = [sample.piece.values * factor for sample in samples]
        yield _Reading(f"every weight is {1 / factor:.6g} times the original's", _of_factor(factor), values)
    if split:
        yield from _by(FLAVOURS, passport, kept)
    if passport.scheme.name == "gguf_mxfp4":
        says = "each byte holds neighbours, and not the halves of a block"
        values = [pairs_in_blocks(sample.piece.values) for sample in samples]
        yield _Reading(says, "Write element i low and i + 16 high.", values)
    n, columns = passport.shape[-2:]
    if n == columns and len(samples) == 1 and len(samples[0].x) == n:
        yield _Reading("the matrix is turned", "Store it as [out, in].", [samples[0].piece.values.T])


def _by(hypotheses: Sequence[Hypothesis], passport: Passport, kept: Sequence[Raw]) -> Iterator[_Reading]:
    for each in hypotheses:
        if each.applies(passport):
            yield _Reading(each.says, each.remedy, [each.read(raw, passport) for raw in kept], each.less)


def _swizzled(passport: Passport, kept: Sequence[Raw]) -> Iterator[_Reading]:
    """Scales that a kernel's order was left in, once or twice."""
    scale, part, cutting = passport.scale, passport.scheme.part("scale"), passport.cutting
    if scale is None or part is None or cutting is None or len(passport.shape) != 2 or part.format not in FORMATS:
        return
    layout = layout_named("scales_128x4")
    down, across = cutting.grid(*passport.shape)
    if cutting.cut != "group" or scale.size != down * across or prod(storage_shape(layout, down, across)) != scale.size:
        return  # with padding they have another shape, which says so itself
    codes = whole(scale)
    for times in ("", " twice"):
        codes = unpack(codes.reshape(-1), layout, down, across).codes
        grid = decode_values(Coded(part.format, codes))
        says = f"the scales are{times} in the order of a kernel (128 x 4)"
        yield _Reading(says, "Store them row by row.", [_with_scales(raw, grid, cutting.columns) for raw in kept])


def _with_scales(raw: Raw, grid: Values, columns: int) -> Values:
    mine = grid[raw.first : raw.first + len(raw.decoded)]
    return combined(replace(raw, scale=mine.repeat(columns, axis=1)[:, : raw.decoded.shape[1]]))


def _factor(samples: Sequence[Sample]) -> float:
    """The factor that fits best, as the median of many: squares of a few that went astray would win otherwise."""
    each = []
    for sample in samples:
        w, x = sample.piece.values, sample.x
        large = np.isfinite(w) & np.isfinite(x) & (np.abs(w) > np.abs(w[np.isfinite(w)]).max(initial=0.0) / 4)
        each.append((x[large] / w[large]).reshape(-1))
    every = np.concatenate(each) if each else np.zeros(0)
    return float(np.median(every)) if every.size else 0.0


def _after_columns(samples: Sequence[Sample]) -> float:
    """Energy of the error with the best factor for each column."""
    each = [_products(sample) for sample in samples]
    return _residue(*(np.sum(totals, axis=0) for totals in zip(*each, strict=True)))


def _products(sample: Sample) -> tuple[Values, Values, Values]:
    x, w = np.nan_to_num(sample.x), np.nan_to_num(sample.piece.values)
    return (x * x).sum(axis=0), (w * w).sum(axis=0), (x * w).sum(axis=0)


def _residue(xx: Values, ww: Values, xw: Values) -> float:
    with np.errstate(divide="ignore", invalid="ignore"):
        gone = np.where(ww > 0, xw * xw / ww, 0.0)
    return float(np.maximum(xx - gone, 0.0).sum())


def _by_group(passport: Passport, samples: Sequence[Sample], signal: float) -> float:
    """Decibels with the best factor for each group of the scale. The fit itself wins what one number of a group is."""
    cutting = passport.cutting
    if cutting is None:
        return -np.inf
    noise = 0.0
    for sample in samples:
        x, w = np.nan_to_num(sample.x), np.nan_to_num(sample.piece.values)
        sums = []
        for product in (x * x, w * w, x * w):
            down = range(0, len(x), cutting.rows or len(x))
            across = range(0, x.shape[1], cutting.columns or x.shape[1])
            sums.append(np.add.reduceat(np.add.reduceat(product, down, axis=0), across, axis=1))
        noise += _residue(*sums)
    return _db(signal, noise)
