"""What codes and scales stand for: the numbers that whoever reads a quantized matrix multiplies with.

A recipe says how x becomes codes. How a reader goes back follows from its steps, and is derived from them here: the
power in which a global scale went into the stored scale is taken out again, a number by which elements were multiplied
is divided by, and a zero point that was added is taken off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.recipe import Blocks, Chain, Recipe
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.steps import named

Values = npt.NDArray[np.float64]


def dequantized(outputs: Mapping[str, Coded], recipe: Recipe, given: Mapping[str, Coded] | None = None) -> Values:
    """float64 [rows, columns] of codes [rows, columns], their scales and what the recipe was given beside x.

    Exact, but where a reader divides by a global scale: there quotient and product are each rounded to float64.
    """
    codes = outputs["codes"]
    spread = to_elements(multipliers(outputs, recipe, given), recipe.blocks, codes.shape)
    with np.errstate(invalid="ignore"):
        product: Values = code_values(outputs, recipe, given) * spread
    return product


def code_values(outputs: Mapping[str, Coded], recipe: Recipe, given: Mapping[str, Coded] | None = None) -> Values:
    """What codes are before a scale is applied: their values less the zero point, float64 [rows, columns]."""
    codes = outputs["codes"]
    _, added = affine(recipe.element)
    values: Values = decode_values(codes) - added
    if "zero_point" in _named_in(recipe.element):
        zero = decode_values(outputs.get("zero_point") or (given or {})["zero_point"])
        values = values - to_elements(zero, recipe.blocks, codes.shape)
    return values


def multipliers(outputs: Mapping[str, Coded], recipe: Recipe, given: Mapping[str, Coded] | None = None) -> Values:
    """What a code of each block is multiplied by, float64 of the shape of the blocks' grid, or [1, 1]."""
    every = {**(given or {}), **outputs}
    found: Values = decode_values(every["scale"]) / affine(recipe.element)[0]
    power = global_power(recipe)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if power > 0:
            found = found / decode_values(every["global_scale"])
        elif power < 0:
            found = found * decode_values(every["global_scale"])
    return found


def global_power(recipe: Recipe) -> int:
    """In which power the global scale went into the stored scale: 1 where it was multiplied by, -1 where divided."""
    powers: dict[str, int] = {"global_scale": 1}
    for name, chain in recipe.steps:
        if name != "global_scale":
            powers[name] = _power(chain, powers)
    return powers.get("scale", 0)


def _power(chain: Chain, powers: Mapping[str, int]) -> int:
    found = powers.get(str(chain[0]), 0)
    for step in chain[1:]:
        name, operands = named(step)
        other = powers.get(str(operands[0]), 0) if operands else 0
        match name:
            case "mul":
                found += other
            case "div":
                found -= other
            case "rdiv":
                found = other - found
            case "recip" | "recip_or_zero" | "recip_approx":
                found = -found
    return found


def affine(element: Chain) -> tuple[float, float]:
    """By which number elements are multiplied besides their scale (64 where codes count 64ths), and which is added."""
    factor, added = 1.0, 0.0
    for step in element[1:]:
        name, operands = named(step)
        if not operands or isinstance(operands[0], str):
            continue
        match name:
            case "mul":
                factor, added = factor * operands[0], added * operands[0]
            case "div":
                factor, added = factor / operands[0], added / operands[0]
            case "add":
                added += operands[0]
            case "sub":
                added -= operands[0]
    return factor, added


def _named_in(chain: Chain) -> set[str]:
    return {o for step in chain[1:] for o in named(step)[1] if isinstance(o, str)}


def to_elements(value: npt.NDArray[Any], blocks: Blocks, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """A value of each block as one of each element; axes with one block are left to broadcasting."""
    for axis, each in enumerate((blocks.rows, blocks.columns)):
        if value.shape[axis] > 1 and each > 1:
            value = np.repeat(value, each, axis=axis).take(range(shape[axis]), axis=axis)
    return value
