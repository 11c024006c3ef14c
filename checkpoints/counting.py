"""What a tensor of scales holds: counts, extremes, and the first places of what is unusual."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from narrowgauge.checkpoints.findings import Place
from narrowgauge.checkpoints.model import Stored
from narrowgauge.checkpoints.reading import pieces
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import FORMATS, Format
from narrowgauge.reference.codec import values
from narrowgauge.reference.fast_codec import decode_values

#: places of a finding
PLACES = 3


@dataclass
class Counted:
    """What a tensor of scales holds."""

    every: int = 0
    zero: int = 0
    negative: int = 0
    not_finite: int = 0
    subnormal: int = 0
    one: int = 0
    least: float = np.inf  #: of the finite ones above 0
    most: float = 0.0
    codes: Mapping[int, int] = field(default_factory=dict)  #: of formats of 8 bits: how often each
    places: dict[str, list[tuple[int, float]]] = field(default_factory=dict)  #: first few, flat


def counted(tensor: Stored, form: str = "") -> Counted:
    """Counts over all scales of a tensor. ``form``: its format, where the file's word is a container."""
    fmt = FORMATS[form if form and tensor.dtype in ("U8", "I8") else tensor.format]
    found, histogram, at = Counted(), np.zeros(256, np.int64), 0
    for piece in pieces(tensor):
        data = piece.view(fmt.storage)
        if fmt.bits == 8:
            histogram += np.bincount(data, minlength=256)
        else:
            count_into(found, decode_values(Coded(fmt.name, data)), fmt, at)
        at += len(data)
    if fmt.bits == 8:
        each = np.flatnonzero(histogram)
        found.codes = {int(code): int(histogram[code]) for code in each}
        for code in each:
            count_into(found, values(fmt)[[code]], fmt, None, int(histogram[code]))
    return found


def count_into(found: Counted, value: npt.NDArray[np.float64], fmt: Format, at: int | None, times: int = 1) -> None:
    with np.errstate(invalid="ignore"):
        masks = {
            "zero": value == 0,
            "negative": value < 0,
            "not_finite": ~np.isfinite(value),
            "subnormal": (value != 0) & (np.abs(value) < 2.0 ** (1 - fmt.bias)) & (fmt.family != "exponent"),
            "one": value == 1,
        }
    found.every += times * len(value)
    for name, mask in masks.items():
        if count := int(np.count_nonzero(mask)):
            setattr(found, name, getattr(found, name) + times * count)
            known = found.places.setdefault(name, [])
            if at is not None and len(known) < PLACES:
                known += [(at + int(i), float(value[i])) for i in np.flatnonzero(mask)[: PLACES - len(known)]]
    good = value[np.isfinite(value) & (value > 0)]
    if good.size:
        found.least, found.most = min(found.least, float(good.min())), max(found.most, float(good.max()))


def as_places(tensor: Stored, flat: Iterable[tuple[int, float]]) -> tuple[Place, ...]:
    """Flat indices with their values, as places of a tensor."""
    return tuple(
        Place(tuple(int(i) for i in np.unravel_index(index, tensor.shape or (1,))), f"{value:g}")
        for index, value in flat
    )


def where(tensor: Stored, code: int) -> Iterator[tuple[int, ...]]:
    """The first places of a code in a tensor of bytes."""
    at, left = 0, PLACES
    for piece in pieces(tensor):
        for i in np.flatnonzero(piece == code)[:left]:
            left -= 1
            yield tuple(int(axis) for axis in np.unravel_index(at + int(i), tensor.shape or (1,)))
        at += len(piece)
        if not left:
            return
