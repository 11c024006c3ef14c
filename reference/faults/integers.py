"""Faults of integers alone: ``integer.*``."""

from __future__ import annotations

from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.faults import value_edits
from narrowgauge.reference.faults.fault import Fault

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
)
