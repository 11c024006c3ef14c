"""Faults of integers alone: ``integer.*``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.recipe import Recipe
from narrowgauge.reference.behaviour import Buffers
from narrowgauge.reference.faults import edits, value_edits
from narrowgauge.reference.faults.fault import Fault
from narrowgauge.reference.faults.recipe_edits import appended, bound_of, dropped, outputs, swapped
from narrowgauge.reference.faults.staged import using

#: how the zero point is added to a rounded element
_ADDED = ("add_within_int8", "zero_point")
_ELEMENT = ("element",)


def _negated(made: Buffers) -> Buffers | None:
    if "zero_point" not in made:
        return None
    return made | {"zero_point": Coded("int32", (-made["zero_point"].data.astype(np.int64)).astype(np.uint32))}


def _has_zero_point(r: Recipe) -> bool:
    return "zero_point" in dict(r.steps)


def _unsigned(made: Buffers) -> Buffers | None:
    """Two's complement with its sign bit the other way round: the value plus half of the range."""
    fmt = format_named(made["codes"].format)
    if fmt.family != "integer" or not fmt.signed:
        return None
    codes = made["codes"].data ^ np.array(fmt.sign_bit, fmt.storage)
    return made | {"codes": Coded(fmt.name, codes)}


def _before_rounding(r: Recipe) -> Recipe | None:
    """The zero point is added first, and the sum rounded."""
    if _ADDED not in r.element or "rint" not in r.element:
        return None
    kept = tuple(s for s in r.element if s not in (_ADDED, "rint"))
    return replace(r, element=(*kept, ("add", "zero_point"), "rint", ("at_least", -128.0), ("at_most", 127.0)))


FAULTS = (
    Fault(
        "integer.half_added_in_float32",
        "ROUND",
        value_edits.given(
            value_edits.half_added_in_float32,
            lambda b: value_edits.family(b) == "integer" and value_edits.rounds_to_nearest(b),
        ),
        "values just below a half go up: 0.49999997 gives 1; ties go away from zero",
        "0.5 is added in float32, where the sum is rounded, and the fraction cut",
        ("vllm KV cache per token and head, measured",),
    ),
    Fault(
        "integer.floor_of_half_added",
        "ROUND",
        value_edits.given(
            value_edits.floor_of_half_added,
            lambda b: value_edits.family(b) == "integer" and value_edits.rounds_to_nearest(b),
        ),
        "values just below a half go up: 0.49999997 gives 1; ties go up, -2.5 to -2",
        "0.5 is added in float32, where the sum is rounded, and the floor taken",
        (),
    ),
    Fault(
        "integer.lowest_left_out",
        "OVERFLOW",
        value_edits.all_of(
            value_edits.without_the_lowest,
            lambda b: value_edits.family(b) == "integer" and format_named(b.format).signed,
        ),
        "the most negative value is one too large: -128 gives -127",
        "the value is clamped to a symmetric range",
        (),
    ),
    Fault(
        "integer.half_of_the_range",
        "BOUND",
        bound_of({127.0: 127.5, 7.0: 7.5}, "integer"),
        "scales are 0.4 % smaller (7 % in int4), and the largest element of a block rounds to the even end",
        "half of the number of codes, 127.5, stands for amax where the engine has 127",
        (),
    ),
    Fault(
        "integer.largest_code",
        "BOUND",
        bound_of({127.5: 127.0, 7.5: 7.0}, "integer"),
        "scales are 0.4 % larger (7 % in int4)",
        "the largest code, 127, stands for amax where the engine has half of the range, 127.5",
        (),
    ),
    Fault(
        "integer.lowest_code",
        "BOUND",
        bound_of({127.0: 128.0, 127.5: 128.0, 7.0: 8.0, 7.5: 8.0}, "integer"),
        "the largest positive element of each block clips",
        "the magnitude of the lowest code, 128, stands for amax",
        (),
    ),
    Fault(
        "integer.lowest_reached",
        "OVERFLOW",
        swapped(lambda name, operands: () if (name, *operands) == ("clamp_keep_nan", 127.0) else None, _ELEMENT),
        "some codes are -128, which has no positive counterpart",
        "the clamp to a symmetric range was left out",
        (),
    ),
    Fault(
        "integer.unsigned_written",
        "SIGN",
        outputs(_unsigned),
        "every code is off by half of the range",
        "codes with an offset of 128 (or 8), unsigned, stand in a buffer that is read as signed",
        (),
    ),
    Fault(
        "integer.zero_point_negated",
        "ZERO-POINT",
        using(lambda v: v | {"zero_point": -v["zero_point"]}, lambda r: _ADDED in r.element),
        "codes lie at the wrong end of the range, and clip there",
        "the zero point is subtracted where it should be added",
        (),
    ),
    Fault(
        "integer.zero_point_stored_negated",
        "ZERO-POINT",
        outputs(_negated, _has_zero_point),
        "dequantized values are shifted by twice the zero point",
        "the zero point of the other convention is stored: added or subtracted when it is read",
        (),
    ),
    Fault(
        "integer.zero_point_one_higher",
        "ZERO-POINT",
        appended("zero_point", ("add", 1.0)),
        "all codes are one higher, and those at the upper end clip",
        "the zero point of a convention that stores it less one",
        (),
    ),
    Fault(
        "integer.zero_point_left_out",
        "ZERO-POINT",
        dropped("add_within_int8", of=_ELEMENT),
        "codes are centred at zero, and half of them clip",
        "the zero point is computed and not added",
        (),
    ),
    Fault(
        "integer.zero_point_before_rounding",
        "ZERO-POINT",
        edits.recipe(_before_rounding),
        "ties go to the other neighbour where the zero point is odd; random data shows nothing",
        "the zero point is added before the value is rounded",
        (),
    ),
    Fault(
        "integer.zero_point_after_clamp",
        "ZERO-POINT",
        swapped(
            lambda name, operands: (("at_least", -128.0), ("at_most", 127.0), _ADDED) if name == _ADDED[0] else None,
            _ELEMENT,
        ),
        "values of one sign clip",
        "the scaled value is clamped to int8 before the zero point is added",
        (),
    ),
    Fault(
        "integer.zero_point_of_256_steps",
        "ZERO-POINT",
        swapped(lambda name, operands: (("div", 256.0),) if (name, *operands) == ("div", 255.0) else None, ("scale",)),
        "scales are 0.4 % smaller, and the largest element clips",
        "the range is divided by the number of codes, not by the number of steps between them",
        (),
    ),
)
