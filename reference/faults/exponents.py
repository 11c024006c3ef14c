"""Faults of a power of two alone, the scale of the MX formats: ``e8m0.*``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from narrowgauge.contracts.formats import Format
from narrowgauge.reference.behaviour import Behaviour
from narrowgauge.reference.faults import edits, value_edits
from narrowgauge.reference.faults.fault import Fault
from narrowgauge.reference.faults.value_edits import Reals

#: bits 20 and 21 of a float32 fraction: what 0x4FFFFF leaves out of 0x7FFFFF
LEFT_OUT = 0x300000


def _is_exponent(b: Behaviour) -> bool:
    return value_edits.family(b) == "exponent"


def _by_log2(to_whole: Callable[[Reals], Reals]) -> Callable[[Reals, Format, Format], Reals]:
    """The power of two whose exponent is made out of log2, which is rounded to float32."""

    def change(real: Reals, source: Format, fmt: Format) -> Reals:
        with np.errstate(divide="ignore"):
            exponent = to_whole(np.log2(np.abs(real)).astype(np.float32).astype(np.float64))
        return np.copysign(np.exp2(exponent), real)

    return change


FAULTS = (
    Fault(
        "e8m0.rounded_down",
        "EXPONENT",
        edits.within("exponent", edits.policy(rounding="toward_zero")),
        "scales are too small by up to a factor of two: the largest elements of a block are clipped",
        "the fraction is not looked at (the rule of OCP MX, where the contract promises another)",
        ("microxcaling#4",),
    ),
    Fault(
        "e8m0.rounded_up",
        "EXPONENT",
        edits.within("exponent", edits.policy(rounding="up")),
        "scales are too large by up to a factor of two: a bit of every element is lost",
        "any fraction lifts the exponent (the rule of CUDA, where the contract promises another)",
        (),
    ),
    Fault(
        "e8m0.rounded_to_nearest",
        "EXPONENT",
        edits.within("exponent", edits.policy(rounding="nearest_away")),
        "half of the scales are too small: the largest elements of their blocks are clipped",
        "the scale is rounded to the nearest power of two, 1.5 up, where the contract promises another rule",
        ("mlx#4353", "ml_dtypes#298"),
    ),
    Fault(
        "e8m0.ties_to_even",
        "EXPONENT",
        edits.within("exponent", edits.policy(rounding="nearest_even")),
        "scales exactly between two powers of two go down in every second binade",
        "ties go to the even exponent where the contract promises another rule",
        ("gfloat e8m0, measured",),
    ),
    Fault(
        "e8m0.log2_in_float32",
        "EXPONENT",
        edits.either(
            value_edits.given(_by_log2(np.floor), lambda b: _is_exponent(b) and b.policy.rounding == "toward_zero"),
            value_edits.given(_by_log2(np.ceil), lambda b: _is_exponent(b) and b.policy.rounding == "up"),
        ),
        "scales next to a power of two are off by a factor of two: those just below for floor, just above for ceil",
        "the exponent is the floor or ceil of log2(x) in float32, where log2 of such a value is a whole number",
        (),
    ),
    Fault(
        "e8m0.rounded_log2",
        "EXPONENT",
        value_edits.given(_by_log2(np.rint), _is_exponent),
        "scales between 1.414 and 1.5 times a power of two go up, where the nearest power is the lower one",
        "the exponent is round(log2(x)): log2 is half way at the square root of two, not at 1.5",
        (),
    ),
    Fault(
        "e8m0.negative_to_smallest",
        "EXPONENT",
        edits.within("exponent", edits.policy(negative="smallest")),
        "the scale of a negative value is 2^-127",
        "a negative value is clamped to the smallest code, where the contract takes its magnitude",
        (),
    ),
    Fault(
        "e8m0.lowest_binade_up",
        "EXPONENT",
        value_edits.coded(value_edits.lowest_binade_up, lambda b: _is_exponent(b) and value_edits.rounds_to_nearest(b)),
        "a block scale just above 2^-127 is stored as 2^-126: its elements are read as twice their value",
        "the bits below the exponent field are read as those of a normal number, where float32 is subnormal",
        ("onnxruntime#28435", "torch e8m0, measured", "ml_dtypes e8m0, measured"),
    ),
    Fault(
        "e8m0.fraction_masked",
        "EXPONENT",
        value_edits.given(
            value_edits.without_fraction_bits(LEFT_OUT),
            lambda b: _is_exponent(b) and b.policy.rounding == "up" and b.source != "float64",
        ),
        "a few scales are not rounded up: 1.125 gives 1",
        "the mask under which the fraction is compared with zero has not all of its bits",
        ("onnx#7784",),
    ),
    Fault(
        "e8m0.underflow_is_nan",
        "EXPONENT",
        value_edits.coded(value_edits.underflow_is_nan, _is_exponent),
        "blocks of tiny values are NaN",
        "a scale below 2^-127 is not clamped to it",
        ("gfloat#62",),
    ),
    Fault(
        "e8m0.zero_is_nan",
        "EXPONENT",
        edits.policy(zero="nan"),
        "blocks of zeros are NaN",
        "zero has no power of two, and the smallest one is not put in its place",
        ("gfloat e8m0, measured", "ml_dtypes e8m0, measured"),
    ),
    Fault(
        "e8m0.negative_is_nan",
        "EXPONENT",
        edits.policy(negative="nan"),
        "a negative value is NaN where the contract promises the smallest code or the magnitude",
        "a sign is taken for a mistake of the caller",
        ("ml_dtypes e8m0, measured",),
    ),
)
