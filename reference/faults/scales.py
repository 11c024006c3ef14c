"""Faults of how a scale is made, stored or delivered: ``scale.*``."""

from __future__ import annotations

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.contracts.recipe import Recipe
from narrowgauge.reference.behaviour import Buffers
from narrowgauge.reference.fast_codec import cast, to_float32
from narrowgauge.reference.faults import edits, recipe_edits
from narrowgauge.reference.faults.fault import Fault
from narrowgauge.reference.faults.recipe_edits import appended, begun, named_otherwise, outputs, swapped
from narrowgauge.reference.steps import F32, STEPS

AMAX = ("amax", "tensor_amax")
#: the least amax of DeepGEMM and of a few others
DEEP_GEMM, TINY = 1e-4, 1e-12
#: of a buffer of scales, the other format in which engines keep scales of blocks
OTHER = {"float8_e8m0fnu": "float8_e4m3fn", "float8_e4m3fn": "float8_e8m0fnu"}
_NEAREST = CastPolicy(overflow="max", infinity="max", negative="magnitude")
_DOWN = CastPolicy("toward_zero", "max", "max", negative="magnitude")


def _in_bfloat16(scale: F32) -> F32:
    return np.asarray(STEPS["round"](scale, "bfloat16"), np.float32)


def _float32_scale(r: Recipe) -> bool:
    return r.scale_format == "float32" and not r.static


def _as_other(made: Buffers) -> Buffers | None:
    """Right scales, as codes of another format of 8 bits."""
    scale = made.get("scale")
    if scale is None or scale.format not in OTHER:
        return None
    other, exact = OTHER[scale.format], Coded("float32", to_float32(scale).view(np.uint32))
    codes = cast(exact, other, _DOWN if other == "float8_e8m0fnu" else _NEAREST)
    return made | {"scale": Coded(scale.format, codes.data)}


def _minimum(name: str, operands: tuple[float | str, ...]) -> bool:
    """Whether a step holds a scale, or an amax, up: to a positive number, or to a value with a name."""
    return name in ("at_least", "at_least_or_nan") and (isinstance(operands[0], str) or operands[0] > 0)


def _with_minimum(least: float, larger: bool) -> edits.Edit:
    """Another least amax, where the recipe's is smaller, or else where it is larger; and for one that has a name."""

    def swap(name: str, operands: tuple[float | str, ...]) -> tuple[tuple[float | str, ...]] | None:
        if not _minimum(name, operands):
            return None
        other = isinstance(operands[0], str) or (operands[0] < least) == larger
        return ((name, least),) if other else None

    return swapped(swap, ("scale",), once=True)


FAULTS = (
    Fault(
        "scale.inverted",
        "SCALE",
        edits.on_scale(lambda s: np.float32(1) / s),
        "dequantized values are off by the square of the scale",
        "the encode scale is stored where the dequantization scale is expected",
        ("modular#6600",),
    ),
    Fault(
        "scale.unity",
        "SCALE",
        edits.on_scale(np.ones_like),
        "dequantized values all have the same range, whatever the input was",
        "the computed scale is not delivered, 1.0 is stored",
        ("flashinfer#4624", "Model-Optimizer#20"),
    ),
    Fault(
        "scale.squared",
        "SCALE",
        edits.on_scale(lambda s: s * s),
        "dequantized values are off by the scale",
        "the scale is multiplied in where it is stored, and was multiplied in before",
        (),
    ),
    Fault(
        "scale.reciprocal_multiplied",
        "SCALE",
        edits.in_chain("scale", "div", edits.by_reciprocal),
        "half of the scales are one ulp off",
        "amax is multiplied by the rounded constant 1/448 instead of divided by 448 (Triton does so on NVIDIA)",
        ("vllm fp8_utils.py Triton path, read", "sglang per_token_group_quant.cuh, read"),
    ),
    Fault(
        "scale.divided_by_the_bound",
        "SCALE",
        swapped(lambda name, operands: (("div", "bound"),) if operands == ("1/bound",) else None, ("scale",)),
        "half of the scales are one ulp off",
        "amax is divided by the bound where the engine multiplies by its rounded reciprocal",
        ("aiter#3212",),
    ),
    Fault(
        "scale.reciprocal_of_encode",
        "SCALE",
        recipe_edits.scale_from_encode,
        "some scales are one ulp off; a tiny block has scale 0 and codes of infinity",
        "the multiplier bound / amax is made first, and the scale as its reciprocal",
        ("TransformerEngine#786",),
    ),
    Fault(
        "scale.minimum_missing",
        "SCALE",
        swapped(lambda name, operands: () if _minimum(name, operands) else None, ("scale",)),
        "a row of zeros gets scale 0, and then NaN or the largest code",
        "the floor under the scale was left out",
        ("kernels-community#681", "ao#4713", "slime#2256"),
    ),
    Fault(
        "scale.minimum_too_large",
        "SCALE",
        _with_minimum(DEEP_GEMM, larger=True),
        "blocks of small values lose bits, or become zeros",
        "amax is held to at least 1e-4, the floor of another engine",
        (),
    ),
    Fault(
        "scale.minimum_too_small",
        "SCALE",
        _with_minimum(TINY, larger=False),
        "blocks of tiny values, or of zeros, have another scale than the engine's",
        "amax is held to at least 1e-12 where the engine's floor is higher",
        ("ao#4714",),
    ),
    Fault(
        "scale.amax_in_bfloat16",
        "SCALE",
        begun(AMAX, ("round", "bfloat16")),
        "scales of float32 or float16 inputs are up to 0.4 % off; a power of two may be the next one",
        "the largest magnitude passes through bfloat16 before the scale is made of it",
        ("ao#4725",),
    ),
    Fault(
        "scale.amax_in_float16",
        "SCALE",
        begun(AMAX, ("round", "float16")),
        "blocks beyond 65504 have an infinite scale, and those below 2^-24 scale 0",
        "the largest magnitude passes through float16 before the scale is made of it",
        (),
    ),
    Fault(
        "scale.amax_without_magnitude",
        "SCALE",
        named_otherwise("amax", "max"),
        "blocks whose largest element is negative clip it",
        "the largest element is taken where the largest magnitude is meant",
        (),
    ),
    Fault(
        "scale.rounded_to_bfloat16",
        "SCALE",
        lambda b: appended("scale", ("round", "bfloat16"))(b) if b.recipe and _float32_scale(b.recipe) else None,
        "scales are up to 0.4 % off, and so are the values: the largest may clip",
        "the scale is made in the type of the activations, and widened when it is stored",
        ("pytorch#136181",),
    ),
    Fault(
        "scale.stored_in_bfloat16",
        "SCALE",
        lambda b: edits.on_scale(_in_bfloat16)(b) if b.recipe and _float32_scale(b.recipe) else None,
        "dequantized blocks are up to 0.4 % off, each by its own factor",
        "codes are made with the float32 scale, and its bfloat16 is stored",
        (),
    ),
    Fault(
        "scale.codes_not_requantized",
        "SCALE",
        recipe_edits.codes_by_exact_scale,
        "each block is inflated by a factor between 1 and 2 of its own: finite nonsense on one architecture",
        "the stored scale is rounded to a power of two, or to fewer bits, and the codes are those of the scale before",
        ("transformers#47030", "sglang#28662", "sglang#13960"),
    ),
    Fault(
        "scale.quantized_twice",
        "SCALE",
        recipe_edits.quantized_twice,
        "codes are up to one step off: 2.6 % of the norm, some points of accuracy",
        "values that were quantized by a float32 scale are quantized again when the scale becomes a power of two",
        ("vllm#37804",),
    ),
    Fault(
        "scale.written_in_another_format",
        "SCALE",
        outputs(_as_other, lambda r: r.scale_format in OTHER and not r.static),
        "whole blocks are zeros, huge or NaN: a scale of 1.0 is read as 4e-22",
        "bytes of E4M3 stand in a buffer of E8M0, or the other way round",
        ("sglang#19948",),
    ),
    Fault(
        "scale.overflow_to_nan",
        "SCALE",
        recipe_edits.zero_block_of_one("ocp_nonsaturate"),
        "a checkpoint holds scales of NaN, 0x7F, for blocks of zeros",
        "a block of zeros gets scale 1 before the tensor's is multiplied in, and the cast to E4M3 does not saturate",
        ("Model-Optimizer#1397",),
    ),
    Fault(
        "scale.format_maximum_for_224",
        "FNUZ",
        edits.bound(lambda d: 240.0 if d.format == "float8_e4m3fnuz" else None),
        "scales are 7 % smaller than the engine's, and codes reach 0x7F",
        "the FNUZ format's own maximum 240 is used where the engine holds to 224",
        ("vllm#30360", "vllm#31106"),
    ),
    Fault(
        "scale.224_for_format_maximum",
        "FNUZ",
        edits.bound(lambda d: 224.0 if d.format == "float8_e4m3fnuz" and d.bound == 240.0 else None),
        "scales are 7 % larger than they need be, and codes stop at 0x7E",
        "224, which engines hold to for parity with OCP bytes, is used where the format's own maximum 240 is meant",
        (),
    ),
    Fault(
        "scale.448_for_fnuz",
        "FNUZ",
        edits.bound(lambda d: 448.0 if d.format == "float8_e4m3fnuz" else None),
        "on FNUZ hardware the largest values of each row clip, or are NaN",
        "the maximum of the OCP format is a constant in the kernel",
        ("ROCm/TransformerEngine#485",),
    ),
)
