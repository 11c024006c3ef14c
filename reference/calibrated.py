"""What recipes are given beside x, where nobody gives it: from the data itself, as calibration on it alone would."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.recipe import INPUTS, Recipe
from narrowgauge.reference.fast_codec import to_float32
from narrowgauge.reference.steps import F32

#: the largest scale of E4M3, in which NVFP4 stores those of its blocks
_LARGEST_SCALE = 448.0
#: to which numbers from the data are held: float32 without its subnormals, int32
_ENDS = {"float32": (2.0**-126, float(np.finfo(np.float32).max)), "int32": (-(2.0**31), 2.0**31 - 1)}
#: how each input is made, for people
HOW = {
    "scale": "the tensor's largest finite magnitude over the recipe's bound; with a zero point, its range over 255",
    "zero_point": "-128 less the smallest finite element over the scale",
    "global_scale": "448 times the bound over the tensor's largest finite magnitude, or its reciprocal",
    "upper_bound": "the tensor's largest finite magnitude",
}


def divides_by_global(recipe: Recipe) -> bool:
    """Whether a reader divides by the global scale; otherwise it multiplies."""
    return ("div", "global_scale") in {step for chain in recipe.reader.chains for step in chain[1:]}


def calibrated(x: Coded, recipe: Recipe, format_name: str, chosen: Mapping[str, float]) -> dict[str, Coded]:
    """Every input of a recipe, [1, 1]: the chosen number, else from the finite elements of x.

    A tensor of zeros, or without finite elements, counts as one whose largest magnitude is 1. Raises ``BadInput`` for
    a number that the recipe does not ask for.
    """
    for name in chosen:
        if name not in recipe.inputs:
            asks = ", ".join(recipe.inputs) or "nothing"
            raise BadInput(f"{recipe.name} is given {asks} beside x; {name} was given")
    with np.errstate(invalid="ignore", over="ignore"):
        matrix = to_float32(x)
        finite = matrix[np.isfinite(matrix)]
        makers = _makers(finite, recipe, recipe.destination(format_name).bound)
        made = {name: np.clip(makers[name](), *_ENDS[INPUTS[name]]) for name in recipe.inputs if name not in chosen}
    return {name: _coded(name, chosen[name] if name in chosen else float(made[name])) for name in recipe.inputs}


def _makers(finite: F32, recipe: Recipe, bound: float) -> Mapping[str, Callable[[], float]]:
    amax = float(np.abs(finite).max(initial=0.0)) or 1.0
    low, high = float(finite.min(initial=0.0)), float(finite.max(initial=0.0))
    asymmetric = "zero_point" in recipe.inputs and high > low
    scale = (high - low) / 255 if asymmetric else amax / bound
    two_level = _LARGEST_SCALE * bound / amax
    return {
        "scale": lambda: scale,
        "zero_point": lambda: float(np.rint(-128 - low / scale)) if asymmetric else 0.0,
        "global_scale": lambda: two_level if divides_by_global(recipe) else 1 / two_level,
        "upper_bound": lambda: amax,
    }


def _coded(name: str, number: float) -> Coded:
    if INPUTS[name] == "int32":
        if not -(2.0**31) <= number < 2.0**31 or number != int(number):
            raise BadInput(f"{name}={number:g}; expected a whole number of 32 bits")
        return Coded("int32", np.array([[int(number)]], np.int32).view(np.uint32))
    with np.errstate(over="ignore"):
        return Coded("float32", np.array([[number]], np.float32).view(np.uint32))
