"""Where the numbers of one format come to lie in a narrower one: the magnitudes at which the answer changes.

Thresholds are found by asking the reference's codec, so a midpoint that goes to the even neighbour is on its right
side: into float16, 65520 is the first that becomes infinite and 2^-25 the last that becomes 0. One rounding, from the
exact value, to nearest even, which is what engines do by default.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import FORMATS, Format, format_named
from narrowgauge.reference.codec import WIDEST_TABLE, decode, encode, special_code
from narrowgauge.reference.landmarks import EXACT, smallest_normal, top_code

#: where a census looks by default
DESTINATIONS = ("float16", "bfloat16")
#: formats in which a number alone, without a scale, can be asked for
NARROW = tuple(
    f.name for f in FORMATS.values() if f.family not in ("integer", "exponent") and f.bits <= WIDEST_TABLE
)  # fmt: skip


@dataclass(frozen=True)
class Landing:
    """Codes of magnitudes of ``source``, in ascending order, at which its numbers land elsewhere in ``to``.

    Zero stays zero. Each is the first code of what it names, and the code of infinity where there is none.
    """

    source: Format
    to: Format
    some: int  #: the first that does not become zero
    normal: int  #: the first that becomes a normal number
    beyond: int  #: the first that becomes no finite number

    @property
    def dropped(self) -> int:
        """Bits of the significand that a normal number loses; none if the destination has more."""
        return max(0, self.source.mantissa - self.to.mantissa)

    @property
    def whole(self) -> int:
        """The first magnitude from which on bits are lost as ``dropped`` says.

        Below it stand subnormal numbers of either side. A destination with more bits than the source has that many
        binades of subnormal numbers that still hold all of the source's.
        """
        spare = max(0, self.to.mantissa - self.source.mantissa)
        field = 1 - self.to.bias - spare + self.source.bias
        return max(1, field) << self.source.mantissa


def destination(name: str) -> Format:
    """The format of that name, if numbers can be asked for in it without a scale. Raises ``BadInput`` if not."""
    fmt = format_named(name)
    if fmt.name not in NARROW:
        raise BadInput(f"{fmt.name} is no destination of a census; expected one of {', '.join(NARROW)}")
    return fmt


@cache
def landing(source: Format, to: Format) -> Landing:
    """The thresholds from a format of IEEE's layout into a narrow one."""
    top = top_code(to)
    return Landing(
        source,
        to,
        some=_first(source, to, lambda code: code >= 1),
        normal=_first(source, to, lambda code: code >= smallest_normal(to)),
        beyond=_first(source, to, lambda code: code > top),
    )


def _first(source: Format, to: Format, holds: Callable[[int], bool]) -> int:
    """The first magnitude for whose code in ``to`` it holds. What holds of one holds of all larger: casts are monotone.

    Of infinity, which is the last, it is taken to hold.
    """
    low, high = 0, special_code(source)
    while low < high:
        middle = (low + high) // 2
        value = decode(np.array([middle], source.storage), source)
        if holds(int(encode(value, to, EXACT)[0])):
            high = middle
        else:
            low = middle + 1
    return low
