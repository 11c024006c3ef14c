"""The whole multiples of one unit that a format holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.codec import values
from narrowgauge.reference.kv.arithmetic import coded

Places = npt.NDArray[np.int64]
#: larger numbers bring nothing: two of them already make a term of 2^24 units
MOST = 4096
#: formats of so few bits count in their smallest subnormal number, so that all their codes are used; others in 1
_FEW_BITS = 6


@dataclass(frozen=True, eq=False)
class Whole:
    """The whole numbers of a format, less a zero point: those above zero, and the negatives of those below."""

    format: str
    unit: float  #: what 1 stands for
    positive: Places  #: ascending
    negative: Places  #: magnitudes, ascending; empty for an unsigned format without a zero point

    def of_sign(self, negative: bool, most: int) -> Places:
        """Magnitudes of one sign up to ``most``."""
        side = self.negative if negative else self.positive
        return side[side <= most]

    def at_most(self, most: float) -> int:
        """The largest magnitude of either sign up to ``most``; the smallest there is where that is larger."""
        every = np.union1d(self.positive, self.negative)
        return int(every[max(0, int(np.searchsorted(every, most, side="right")) - 1)])


def whole_numbers(format_name: str, zero: int = 0) -> Whole:
    """The whole numbers of a format. Raises ``BadInput`` for one that has none, or a zero point of what has none."""
    fmt = format_named(format_name)
    if fmt.family == "exponent" or fmt.bits > 32 or fmt.name == "int32":
        raise BadInput(f"operand of {fmt.name}; expected a float of at most 32 bits, or an integer of 4 or 8")
    if fmt.family == "integer":
        low, high = (-fmt.sign_bit, fmt.sign_bit - 1) if fmt.signed else (0, fmt.code_count - 1)
        return Whole(fmt.name, 1.0, np.arange(1, high - zero + 1), np.arange(1, zero - low + 1))
    if zero:
        raise BadInput(f"zero point {zero} of {fmt.name}; expected 0: floats have none")
    unit = 2.0 ** (1 - fmt.bias - fmt.mantissa) if fmt.bits <= _FEW_BITS else 1.0
    finite = values(fmt)[np.isfinite(values(fmt))].max() if fmt.bits <= 8 else MOST
    number = np.arange(1, int(min(MOST, finite / unit)) + 1)
    # a number of more than mantissa + 1 significant bits is none of the format
    held = number[number // (number & -number) < 2 ** (fmt.mantissa + 1)]
    return Whole(fmt.name, unit, held, held)


def encoded(whole: Whole, numbers: Places, zero: int) -> Coded:
    """The codes of whole numbers."""
    fmt = format_named(whole.format)
    if fmt.family == "integer":
        return Coded(fmt.name, ((numbers + zero) & (fmt.code_count - 1)).astype(fmt.storage))
    return coded(numbers.astype(np.float64) * whole.unit, fmt.name)
