"""Faults of blocks that are zero or hold NaN: ``zero.*`` and ``nan.*``."""

from __future__ import annotations

from dataclasses import replace

from narrowgauge.contracts.recipe import Recipe, Step
from narrowgauge.reference.faults import edits, recipe_edits
from narrowgauge.reference.faults.fault import Fault
from narrowgauge.reference.faults.recipe_edits import appended, renamed, swapped

#: steps by which recipes keep a scale of 0 from being divided by, and what is left of them without
GUARDS: dict[str, tuple[str | Step, ...]] = {
    "zero_where_zero": (),
    "zero_to": (),
    "not_finite_to": (),
    "recip_or_zero": ("recip",),
}


def _amax(nan: str) -> edits.Edit:
    """What the largest magnitude of a block does with NaN."""

    def change(r: Recipe) -> Recipe:
        return replace(r, amax_nan="keep" if nan == "keep" else "drop")

    return edits.recipe(change)


FAULTS = (
    Fault(
        "zero.guard_missing",
        "ZERO",
        swapped(lambda name, operands: GUARDS.get(name)),
        "blocks of zeros are NaN",
        "0 / 0: what stands in for a scale of 0 was left out",
        ("flashinfer#3448",),
    ),
    Fault(
        "zero.scale_of_one",
        "ZERO",
        appended("scale", ("zero_to", 1.0)),
        "blocks of zeros have scale 1; where it is a power of two of something else, neighbours in a tensor may clip",
        "a scale of 0 is replaced by 1, as some libraries do, where the contract promises another",
        (),
    ),
    Fault(
        "zero.block_of_one",
        "ZERO",
        recipe_edits.zero_block_of_one(),
        "scales of blocks of zeros are as large as the format allows",
        "a block of zeros gets the scale 1 before the tensor's is multiplied in",
        (),
    ),
    Fault(
        "zero.reciprocal_flushed",
        "ZERO",
        renamed({"recip": "recip_approx", "recip_or_zero": "recip_approx"}),
        "blocks of zeros are infinity times 0, which is NaN; tiny and huge scales are zeros",
        "the reciprocal is the hardware's approximate one, which takes subnormals for zeros",
        ("vllm#58089",),
    ),
    Fault(
        "nan.dropped_by_amax",
        "NAN",
        _amax("drop"),
        "a block with a NaN has a finite scale, and all but the NaN look well",
        "fmax, or a packed maximum, returns the number where one operand is NaN",
        ("TransformerEngine#3550",),
    ),
    Fault(
        "nan.kept_by_amax",
        "NAN",
        _amax("keep"),
        "one NaN makes a whole block NaN where the engine loses one element",
        "the reduction lets NaN through, as torch.amax does, where the engine's fmax does not",
        (),
    ),
    Fault(
        "nan.becomes_the_minimum",
        "NAN",
        renamed({"at_least_or_nan": "at_least"}, ("scale",)),
        "a block with a NaN has the smallest scale there is, and its other elements clip",
        "fmax(amax, floor) returns the floor for NaN",
        (),
    ),
)
