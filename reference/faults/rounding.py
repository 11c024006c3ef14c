"""Faults that round another way than the contract, everywhere or in one part of the range: ``cast.*``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import Format, format_named
from narrowgauge.contracts.policy import Rounding
from narrowgauge.reference.behaviour import Behaviour
from narrowgauge.reference.fast_codec import cast, decode_values
from narrowgauge.reference.faults import edits, value_edits
from narrowgauge.reference.faults.casts import ROUNDED
from narrowgauge.reference.faults.edits import Edit
from narrowgauge.reference.faults.fault import Fault
from narrowgauge.reference.faults.value_edits import Fits, Reals

Where = Callable[[Reals, Format], npt.NDArray[np.bool_]]


def rounded_otherwise(parts: tuple[tuple[Rounding, Where], ...], fits: Fits) -> Edit:
    """In each part of the range, codes as another rounding gives them."""

    def patch(behaviour: Behaviour, x: Coded, codes: Coded) -> Coded:
        fmt, written = format_named(behaviour.format), behaviour.written or behaviour.format
        real, right, found = decode_values(x), cast(x, written, behaviour.policy).data, codes.data
        for rounding, where in parts:
            other = cast(x, written, replace(behaviour.policy, rounding=rounding)).data
            # What this rounding does not change is left as other edits made it.
            found = np.where(where(real, fmt) & (other != right), other, found)
        return Coded(codes.format, found)

    return lambda b: replace(b, patched=(*b.patched, patch)) if fits(b) else None


def _positive(real: Reals, fmt: Format) -> npt.NDArray[np.bool_]:
    return ~np.signbit(real)


def _negative(real: Reals, fmt: Format) -> npt.NDArray[np.bool_]:
    return np.signbit(real)


def _to_nearest(b: Behaviour) -> bool:
    narrow = value_edits.is_float(b) or value_edits.family(b) == "integer"
    return narrow and value_edits.rounds_to_nearest(b)


FAULTS = (
    Fault(
        "cast.ties_up",
        "TIES",
        rounded_otherwise((("nearest_away", _positive), ("nearest_zero", _negative)), _to_nearest),
        "values exactly between two codes go to the greater one, -2.5 to -2 too; random data shows nothing",
        "half is added and the floor taken, floor(x + 0.5), instead of ties to even",
        (),
    ),
    Fault(
        "cast.ties_away_in_subnormals",
        "TIES",
        rounded_otherwise(
            (("nearest_away", value_edits.below_normal),),
            lambda b: value_edits.is_float(b) and b.policy.rounding == "nearest_even",
        ),
        "below the smallest normal, values exactly between two codes go to the larger one",
        "subnormals are made by a branch of their own, which adds a half before cutting",
        (),
    ),
    Fault(
        "cast.rounds_up",
        "ROUND",
        edits.within(ROUNDED, edits.policy(rounding="up")),
        "half of all codes are the next greater one; outputs are biased upward",
        "values are rounded toward +infinity (ceil, or a rounding mode that was left set)",
        (),
    ),
    Fault(
        "cast.rounds_down",
        "ROUND",
        edits.within(ROUNDED, edits.policy(rounding="down")),
        "half of all codes are the next smaller one; outputs are biased downward",
        "values are rounded toward -infinity (floor, or an arithmetic shift of a signed number)",
        (),
    ),
)
