"""Compare a kernel's codes with what is expected, element by element, and say in what way each differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.verdict import DIFFERENCES
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.interval import Expected, Interval

Mask = npt.NDArray[np.bool_]
#: classes by number: 0 is "no difference", then the order of DIFFERENCES
CLASS = {name: number for number, name in enumerate(("same", *DIFFERENCES))}


@dataclass(frozen=True, eq=False)
class Difference:
    """Per output, an array of class numbers of the output's shape."""

    classes: dict[str, npt.NDArray[np.uint8]]

    @property
    def counts(self) -> dict[str, int]:
        """How many elements differ, by class; classes without one are left out."""
        total = sum((np.bincount(c.ravel(), minlength=len(CLASS)) for c in self.classes.values()), np.zeros(1, int))
        return {
            name: int(total[number])
            for name, number in CLASS.items()
            if number and total.size > number and total[number]
        }

    @property
    def total(self) -> int:
        return sum(int(np.count_nonzero(c)) for c in self.classes.values())

    def mask(self, output: str) -> Mask:
        """Which elements of an output differ."""
        return np.asarray(self.classes[output] != 0)

    def count(self, output: str, kind: str) -> int:
        """How many elements of an output differ in that way."""
        return int(np.count_nonzero(self.classes[output] == CLASS[kind]))

    def kind(self, output: str, index: tuple[int, ...]) -> str:
        """The class of one element."""
        return ("same", *DIFFERENCES)[int(self.classes[output][index])]


def compare(got: Mapping[str, Coded], want: Expected) -> Difference:
    """Class of difference of every element. ``got`` must have the outputs and shapes of ``want``."""
    return Difference({name: _classes(got[name], interval, name) for name, interval in want.items()})


def _classes(got: Coded, want: Interval, output: str) -> npt.NDArray[np.uint8]:
    result = np.zeros(want.low.shape, np.uint8)
    strange = _not_codes(got)
    codes = Coded(got.format, np.where(strange, 0, got.data).astype(format_named(got.format).storage))
    # Equal codes need no look at their values, and are nearly all of them.
    differs = strange | (codes.data != want.low.data)
    if not differs.any():
        return result
    where = np.nonzero(differs)
    g, low, high = (decode_values(Coded(c.format, c.data[where])) for c in (codes, want.low, want.high))
    kind = np.full(g.shape, CLASS["scale" if output.endswith("scale") else "value"], np.uint8)
    kind[np.isinf(g) | np.isinf(low)] = CLASS["infinity"]
    kind[np.isnan(g) | np.isnan(low)] = CLASS["nan"]
    kind[np.isnan(g) & np.isnan(low)] = 0  # NaN is compared as a class: sign and payload are free
    inside = (low <= g) & (g <= high)
    # Overflow to NaN at one end: NaN itself, or what lies from the other end outward.
    inside |= (np.isnan(high) & ~np.isnan(low)) & (np.isnan(g) | (g >= low))
    inside |= (np.isnan(low) & ~np.isnan(high)) & (np.isnan(g) | (g <= high))
    one_zero = (g == 0) & (low == high) & (np.signbit(low) == np.signbit(high))
    kind[inside] = np.where(one_zero[inside], CLASS["zero_sign"], 0)
    kind[strange[where]] = CLASS["not_a_code"]
    result[where] = kind
    return result


def _not_codes(got: Coded) -> Mask:
    """Which elements are no code of the format at all: a number too large for it, or negative."""
    fmt = format_named(got.format)
    if got.well_formed:
        return np.zeros(got.shape, np.bool_)
    return np.asarray((got.data < 0) | (got.data >= fmt.code_count))
