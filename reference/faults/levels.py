"""Faults of a recipe of two levels, NVFP4: of the scale of the whole tensor. ``global.*``"""

from __future__ import annotations

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.recipe import Recipe
from narrowgauge.reference.behaviour import Behaviour, Buffers
from narrowgauge.reference.fast_codec import to_float32
from narrowgauge.reference.faults.fault import Fault
from narrowgauge.reference.faults.recipe_edits import appended, in_its_place, outputs

#: 1, of any finite number, by steps of a recipe
_ONE = (("mul", 0.0), ("add", 1.0))
_SCALE, _CODES = ("scale",), ("encode", "element")
_SMALLEST_E4M3 = 2.0**-9


def _inverted(made: Buffers) -> Buffers | None:
    if "global_scale" not in made:
        return None
    with np.errstate(all="ignore"):
        other = np.float32(1) / to_float32(made["global_scale"])
    return made | {"global_scale": Coded("float32", other.view(np.uint32))}


def _two_levels(r: Recipe) -> bool:
    return "global_scale" in dict(r.steps)


def _in_e4m3(b: Behaviour) -> bool:
    return b.recipe is not None and b.recipe.scale_format == "float8_e4m3fn"


FAULTS = (
    Fault(
        "global.left_out",
        "GLOBAL",
        in_its_place("global_scale", *_ONE),
        "scales of blocks are at the ends of E4M3: zeros, or all the largest",
        "the scale of the tensor is not used",
        (),
    ),
    Fault(
        "global.left_out_of_scales",
        "GLOBAL",
        in_its_place("global_scale", *_ONE, of=_SCALE),
        "most codes are the largest one, or zero",
        "scales of blocks are stored before the tensor's is multiplied in",
        (),
    ),
    Fault(
        "global.left_out_of_codes",
        "GLOBAL",
        in_its_place("global_scale", *_ONE, of=_CODES),
        "most codes are the largest one, or zero; scales are right",
        "elements are divided by the block's scale alone",
        (),
    ),
    Fault(
        "global.inverted",
        "GLOBAL",
        in_its_place("global_scale", "recip"),
        "scales of blocks are all zero or all the largest, codes zero or the largest: fluent nonsense",
        "a divisor, as compressed-tensors keeps it, is taken for a multiplier, as ModelOpt keeps it, or the reverse",
        ("modular#6600",),
    ),
    Fault(
        "global.applied_twice",
        "GLOBAL",
        in_its_place("global_scale", ("mul", "global_scale")),
        "scales of blocks are at the ends of E4M3",
        "the scale of the tensor is multiplied in by two layers",
        (),
    ),
    Fault(
        "global.stored_inverted",
        "GLOBAL",
        outputs(_inverted, _two_levels),
        "dequantized tensors are off by the square of their scale, 1e7 in one report; codes are right",
        "the reciprocal of the scale of the tensor is stored",
        ("modular#6600",),
    ),
    Fault(
        "global.smallest_scale_raised",
        "GLOBAL",
        lambda b: appended("scale", ("at_least", _SMALLEST_E4M3))(b) if _in_e4m3(b) else None,
        "blocks of zeros, and tiny ones, have the smallest scale and not 0",
        "scales are clamped to 2^-9 from below, as ModelOpt does, where the contract promises 0",
        ("Model-Optimizer#2243",),
    ),
)
