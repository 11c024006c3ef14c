"""The cast policy: every choice that decides the code of one value, as data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args, get_origin, get_type_hints

from narrowgauge.contracts.errors import BadInput

Rounding = Literal["nearest_even", "nearest_away", "nearest_zero", "toward_zero", "up", "down", "stochastic"]
Beyond = Literal["max", "special"]
OfNaN = Literal["nan", "max", "min", "signed_max", "zero", "opposite_zero"]
OfNegativeZero = Literal["keep", "drop"]
OfSubnormals = Literal["keep", "flush"]
OfNegative = Literal["smallest", "magnitude", "nan"]
OfZero = Literal["smallest", "nan"]


@dataclass(frozen=True)
class CastPolicy:
    """How a real value becomes a code.

    A finite value is rounded to the format's grid as though its exponent had no upper end; if the result's magnitude
    exceeds the largest allowed one, ``overflow`` decides.
    """

    #: to the nearest code, ties to even, away from zero or toward zero; directed; or by random bits that come with x
    rounding: Rounding = "nearest_even"
    #: a finite value that rounds beyond: ``max`` the largest allowed magnitude; ``special`` infinity, else NaN. This
    #: is decided after rounding, on the grid without an end, and is the same for every rounding. IEEE 754 (7.4) is not:
    #: where a directed rounding goes toward zero it gives the largest finite value (our ``max``), else infinity
    overflow: Beyond = "max"
    #: an infinite value: the same two choices
    infinity: Beyond = "max"
    #: a NaN: the format's NaN; +largest allowed, -largest, or largest with the NaN's sign; +0, or 0 of the other sign
    nan: OfNaN = "nan"
    #: a zero result of a negative value keeps its sign where the format has a negative zero, or loses it
    negative_zero: OfNegativeZero = "keep"
    #: a result that is subnormal after rounding is kept, or becomes zero
    subnormals: OfSubnormals = "keep"
    #: a negative value in an unsigned format: the smallest code, the code of its magnitude (which is rounded as a
    #: positive value is), or NaN
    negative: OfNegative = "smallest"
    #: a zero in a format without one (E8M0): the smallest code, or NaN
    zero: OfZero = "smallest"
    #: largest allowed magnitude, where it is below the format's own (224 on FNUZ, 127 on int8 in some engines)
    limit: float | None = None
    #: integers: added after rounding, before the ends of the range are looked at; a NaN of ``zero`` is this code
    zero_point: int = 0

    def __post_init__(self) -> None:
        for name, choices in options().items():
            value = getattr(self, name)
            if value not in choices:
                raise BadInput(f"cast policy: {name}={value!r}; expected one of {', '.join(choices)}")
        if self.limit is not None and not 0 < self.limit < float("inf"):
            raise BadInput(f"cast policy: limit={self.limit!r}; expected a positive, finite number or None")
        if not isinstance(self.zero_point, int):
            raise BadInput(f"cast policy: zero_point={self.zero_point!r}; expected a whole number")


@cache
def options() -> dict[str, tuple[str, ...]]:
    """What can be chosen for each field of a policy that is a choice of words."""
    hints = get_type_hints(CastPolicy)
    return {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Literal}
