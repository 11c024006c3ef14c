"""Faults of a power of two alone, the scale of the MX formats: ``e8m0.*``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import Format, format_named
from narrowgauge.contracts.recipe import Chain, Recipe
from narrowgauge.reference.behaviour import Behaviour, Buffers
from narrowgauge.reference.codec import largest, values
from narrowgauge.reference.faults import edits, value_edits
from narrowgauge.reference.faults.edits import Edit
from narrowgauge.reference.faults.fault import Fault
from narrowgauge.reference.faults.recipe_edits import (
    POWER_CASTS,
    in_its_place,
    outputs,
    power_of_two,
    swapped,
    with_chains,
)
from narrowgauge.reference.faults.staged import storing
from narrowgauge.reference.faults.value_edits import Reals
from narrowgauge.reference.quantize import Values

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


def _stores_powers(r: Recipe) -> bool:
    return r.scale_format == "float8_e8m0fnu" and not r.static


def _for_powers(edit: Edit) -> Edit:
    """The edit, for recipes that store scales as powers of two."""
    return lambda b: edit(b) if b.recipe is not None and _stores_powers(b.recipe) else None


def _rule(scale: Callable[[int, int], Chain], scale_cast: str) -> Edit:
    """The scale by another rule. ``scale`` gets the exponent of the largest element and the bits of its fraction."""

    def edit(behaviour: Behaviour) -> Behaviour | None:
        fmt = format_named(behaviour.format)
        if not value_edits.is_float(behaviour):
            return None
        exponent = int(np.floor(np.log2(values(fmt)[largest(fmt)])))

        def change(r: Recipe) -> Recipe:
            made, start = scale(exponent, fmt.mantissa), str(dict(r.steps)["scale"][0])
            if start in dict(r.steps):  # the power is made first, and the scale of it
                step = "ceil_pow2" if POWER_CASTS[scale_cast] == "up" else "floor_pow2"
                return with_chains(r, {start: (*made, step)})
            return replace(with_chains(r, {"scale": made}), scale_cast=scale_cast)

        return _for_powers(edits.recipe(change))(behaviour)

    return edit


def _moved(step: int) -> Callable[[Buffers], Buffers | None]:
    """Another byte for each scale, NaN apart."""

    def change(made: Buffers) -> Buffers | None:
        if "scale" not in made:
            return None
        code = made["scale"].data.astype(np.int64)
        other = np.where(code == 255, 255, np.clip(code + step, 0, 254)).astype(np.uint8)
        return made | {"scale": Coded("float8_e8m0fnu", other)}

    return change


def _leaking(made: Values) -> Values:
    """Four bytes of a word are joined by "or", each with the seven upper bits of its fraction in the byte below it."""
    bits = np.ascontiguousarray(made["scale"], np.float32).view(np.uint32)
    code = made["scale as stored"].data.copy()
    leaks = (np.arange(1, code.shape[1]) % 4 != 0)[None, :]
    code[:, :-1] |= np.where(leaks, bits[:, 1:] >> 15 & 0xFF, 0).astype(np.uint8)
    return made | {"scale as stored": Coded("float8_e8m0fnu", code)}


def _log2_first(r: Recipe) -> Recipe | None:
    """The exponent is the ceil or floor of log2 in float32, where the recipe looks at the bits."""
    names = {"ceil_pow2": "exp2_ceil_log2", "floor_pow2": "exp2_floor_log2"}
    chain = dict(r.steps).get("scale", ())
    if any(s in names for s in chain):
        return with_chains(r, {"scale": tuple(names.get(s, s) if isinstance(s, str) else s for s in chain)})
    step = {"e8m0_ceil": "exp2_ceil_log2", "e8m0_rceil": "exp2_ceil_log2", "e8m0_floor": "exp2_floor_log2"}
    if r.scale_cast not in step or any(isinstance(s, str) and s in step.values() for s in chain):
        return None
    return with_chains(r, {"scale": (*chain, step[r.scale_cast])})


FAULTS = (
    Fault(
        "e8m0.rounded_down",
        "EXPONENT",
        edits.either(
            edits.within("exponent", edits.policy(rounding="toward_zero")),
            power_of_two("down", "floor_pow2", "e8m0_floor"),
        ),
        "scales are too small by up to a factor of two: the largest elements of a block are clipped",
        "the fraction is not looked at (the rule of OCP MX, where the contract promises another)",
        ("microxcaling#4",),
    ),
    Fault(
        "e8m0.rounded_up",
        "EXPONENT",
        edits.either(
            edits.within("exponent", edits.policy(rounding="up")),
            power_of_two("up", "ceil_pow2", "e8m0_ceil"),
        ),
        "scales are too large by up to a factor of two: a bit of every element is lost",
        "any fraction lifts the exponent (the rule of CUDA, where the contract promises another)",
        (),
    ),
    Fault(
        "e8m0.rounded_to_nearest",
        "EXPONENT",
        edits.either(
            edits.within("exponent", edits.policy(rounding="nearest_away")),
            power_of_two("nearest", ("even_pow2", 0), "e8m0_nearest"),
        ),
        "half of the scales are too small: the largest elements of their blocks are clipped",
        "the scale is rounded to the nearest power of two, 1.5 up, where the contract promises another rule",
        ("mlx#4353", "ml_dtypes#298"),
    ),
    Fault(
        "e8m0.ties_to_even",
        "EXPONENT",
        edits.either(
            edits.within("exponent", edits.policy(rounding="nearest_even")),
            power_of_two("even", ("even_pow2", 0), "e8m0_even"),
        ),
        "scales exactly between two powers of two go down in every second binade",
        "ties go to the even exponent where the contract promises another rule",
        ("gfloat e8m0, measured",),
    ),
    Fault(
        "e8m0.log2_in_float32",
        "EXPONENT",
        edits.either(
            value_edits.given(_by_log2(np.floor), lambda b: _is_exponent(b) and b.policy.rounding == "toward_zero"),
            edits.either(
                value_edits.given(_by_log2(np.ceil), lambda b: _is_exponent(b) and b.policy.rounding == "up"),
                edits.recipe(_log2_first),
            ),
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
    Fault(
        "e8m0.rule_of_ocp",
        "EXPONENT",
        _rule(lambda exponent, mantissa: ("amax", ("mul", 2.0**-exponent)), "e8m0_floor"),
        "blocks whose largest element lies in the upper part of its binade clip it",
        "the scale is the power of two at or below amax, over that of the largest element (OCP MX), where the contract "
        "promises another rule",
        ("ao#2035",),
    ),
    Fault(
        "e8m0.rule_of_nvidia",
        "EXPONENT",
        _rule(lambda exponent, mantissa: ("amax", ("div", "bound")), "e8m0_rceil"),
        "some scales are twice as large: nothing clips, and a bit is lost",
        "amax over the largest value of the elements is rounded up (NVIDIA, DeepGEMM), where the contract promises "
        "another rule",
        ("ao#2035",),
    ),
    Fault(
        "e8m0.rule_of_quark",
        "EXPONENT",
        _rule(
            lambda exponent, mantissa: ("amax", ("even_pow2", float(mantissa)), ("mul", 2.0**-exponent)), "e8m0_floor"
        ),
        "some scales are another power of two, next to those of the contract",
        "amax is rounded to the elements' mantissa before its power of two is taken (EVEN of Quark and torchao), where "
        "the contract promises another rule",
        ("aiter#3212",),
    ),
    Fault(
        "e8m0.exponent_of_elements_left_out",
        "EXPONENT",
        _for_powers(swapped(lambda name, operands: () if name in ("mul", "div") else None, ("scale",), once=True)),
        "codes of every block use the lowest part of the format: most are zero",
        "the power of two of amax itself is stored, without the exponent of the largest element taken off",
        (),
    ),
    Fault(
        "e8m0.one_higher",
        "EXPONENT",
        outputs(_moved(1), _stores_powers),
        "dequantized values are twice what they should be",
        "the bias is taken for 126, or the exponent is that of a fraction between a half and 1 (frexp)",
        (),
    ),
    Fault(
        "e8m0.one_lower",
        "EXPONENT",
        outputs(_moved(-1), _stores_powers),
        "dequantized values are half of what they should be",
        "the bias is taken for 128",
        (),
    ),
    Fault(
        "e8m0.read_by_a_shift",
        "EXPONENT",
        _for_powers(in_its_place("stored", "floor_pow2")),
        "blocks of zeros, and those of the smallest scale, are NaN; blocks with NaN are zeros",
        "the stored byte is shifted into the exponent field to scale the elements: 0 is read as 0, 255 as infinity",
        (),
    ),
    Fault(
        "e8m0.fraction_leaks",
        "EXPONENT",
        storing(_leaking, _stores_powers),
        "every block but the last of each four may have a scale far too large, or NaN",
        "float32 scales are packed by shifts without a mask: bits of a fraction land in the byte of the block before",
        ("sglang#13067", "TransformerEngine#2589"),
    ),
)
