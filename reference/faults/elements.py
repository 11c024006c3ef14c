"""Faults of what is done with each element before its last cast: ``element.*``."""

from __future__ import annotations

from dataclasses import replace

from narrowgauge.contracts.recipe import Chain, Recipe, Step
from narrowgauge.reference.faults import edits
from narrowgauge.reference.faults.fault import Fault
from narrowgauge.reference.faults.recipe_edits import both, chains, dropped, scales_element, swapped, with_chains
from narrowgauge.reference.steps import named

CLAMPS = ("clamp_fmin_first", "clamp_fmax_first", "clamp_keep_nan")
_ELEMENT = ("element",)


def _scaled(*steps: str) -> edits.Edit:
    """Elements are scaled by these operations, with the operand of the right one."""

    def swap(name: str, operands: tuple[float | str, ...]) -> tuple[Step, ...] | None:
        if not scales_element(name, operands):
            return None
        return tuple((name if s == "same" else {"mul": "div", "div": "mul"}[name], *operands) for s in steps)

    return swapped(swap, _ELEMENT, once=True)


def _by_reciprocal(r: Recipe) -> Recipe | None:
    """Elements are multiplied by a reciprocal that is made once for each block."""
    place = next((n for n, s in enumerate(r.element) if n and named(s)[0] == "div" and scales_element(*named(s))), 0)
    if not place:
        return None
    by = str(named(r.element[place])[1][0])
    element: Chain = (*r.element[:place], ("mul", "reciprocal"), *r.element[place + 1 :])
    return replace(r, steps=(*r.steps, ("reciprocal", (by, "recip"))), element=element)


def _divided(r: Recipe) -> Recipe | None:
    """Elements are divided by the scale of which the recipe makes a reciprocal first."""
    encode = chains(r).get("encode", ())
    if len(encode) != 2 or encode[1] != "recip":
        return None
    division: Step = ("div", str(encode[0]))
    return with_chains(r, {"element": ("x", *(division if s == ("mul", "encode") else s for s in r.element[1:]))})


def _clamp(name: str) -> edits.Edit:
    """Another order of the two halves of the clamp, which decides what NaN becomes."""
    return swapped(lambda step, operands: ((name, *operands),) if step in CLAMPS else None, _ELEMENT)


FAULTS = (
    Fault(
        "element.not_scaled",
        "SCALE",
        _scaled(),
        "codes do not depend on the scale: small blocks are zeros, large ones clip",
        "the scale does not reach the cast, which takes the values as they are",
        ("sglang#28144",),
    ),
    Fault(
        "element.scaled_twice",
        "SCALE",
        _scaled("same", "same"),
        "codes are off by the scale: blocks below 1 clip, blocks beyond are zeros",
        "the scale is applied by the quantizer and by who calls it",
        ("vllm#48016",),
    ),
    Fault(
        "element.multiplied_for_divided",
        "SCALE",
        _scaled("other"),
        "codes are off by the square of the scale",
        "the scale and its reciprocal are taken for each other where elements are scaled",
        (),
    ),
    Fault(
        "element.by_reciprocal",
        "ROUND",
        edits.recipe(_by_reciprocal),
        "a few codes beside a tie are one off: 0 of half a million random values, 5 % of boundary values",
        "elements are multiplied by the rounded reciprocal of the scale, and not divided by it",
        ("flashinfer#3656",),
    ),
    Fault(
        "element.divided",
        "ROUND",
        edits.recipe(_divided),
        "a few codes beside a tie are one off",
        "elements are divided by the scale where the engine multiplies by its rounded reciprocal",
        (),
    ),
    Fault(
        "element.rounding_left_out",
        "ROUND",
        dropped("round"),
        "3 % of codes are one off, and they are the more accurate ones: routing and answers change",
        "a rounding to bfloat16 that the engine does between two steps is left out by a fused kernel or a compiler",
        ("TensorRT-LLM#14464", "vllm#37838"),
    ),
    Fault(
        "element.clamp_missing",
        "OVERFLOW",
        both(dropped(*CLAMPS, of=_ELEMENT), edits.policy(overflow="special", infinity="special")),
        "activations beyond the calibrated range, and infinities, are NaN: '!!!!'",
        "nothing clamps before a cast that does not saturate",
        ("vllm#4614", "transformers#42746"),
    ),
    Fault(
        "element.nan_to_upper_bound",
        "NAN",
        _clamp("clamp_fmin_first"),
        "a NaN becomes the largest number: nothing downstream can notice it",
        "the clamp begins with fmin(x, bound), which returns the bound for NaN",
        (),
    ),
    Fault(
        "element.nan_to_lower_bound",
        "NAN",
        _clamp("clamp_fmax_first"),
        "a NaN becomes the lowest number: nothing downstream can notice it",
        "the clamp begins with fmax(x, -bound), which returns the bound for NaN",
        ("tilelang#3024",),
    ),
    Fault(
        "element.nan_kept",
        "NAN",
        _clamp("clamp_keep_nan"),
        "a NaN is NaN where the engine makes a number of it",
        "the clamp lets NaN through, as torch.clamp does, where the engine's fmin and fmax do not",
        (),
    ),
)
