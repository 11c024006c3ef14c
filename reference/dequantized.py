"""What codes and scales stand for, as exactly as float64 says it: for measures, which compare numbers and not bits.

It is the reader that the recipe declares, without the roundings to float32 that an engine does on the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.recipe import Blocks, Recipe
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.quantize import spread_over
from narrowgauge.reference.steps import named

Values = npt.NDArray[np.float64]
_EXACTLY = {"mul": np.multiply, "div": np.divide, "add": np.add, "sub": np.subtract}


def dequantized(outputs: Mapping[str, Coded], recipe: Recipe, given: Mapping[str, Coded] | None = None) -> Values:
    """float64 [rows, columns] of codes [rows, columns], their scales and what the recipe was given beside x."""
    codes = outputs["codes"]
    multiplied = to_elements(multipliers(outputs, recipe, given), recipe.blocks, codes.shape)
    with np.errstate(invalid="ignore", over="ignore"):
        product: Values = code_values(outputs, recipe, given) * multiplied
    return product


def code_values(outputs: Mapping[str, Coded], recipe: Recipe, given: Mapping[str, Coded] | None = None) -> Values:
    """What codes are before a scale is applied: their values less what stands for 0, float64 [rows, columns]."""
    codes = outputs["codes"]
    values = _known(outputs, given)
    zero: Any = 0.0
    for step in recipe.reader.element[1:]:
        name, operands = named(step)
        if name in ("add", "sub"):
            offset = values[operands[0]] if isinstance(operands[0], str) else operands[0]
            zero = zero + offset if name == "sub" else zero - offset
    less: Values = decode_values(codes) - to_elements(np.asarray(zero), recipe.blocks, codes.shape)
    return less


def multipliers(outputs: Mapping[str, Coded], recipe: Recipe, given: Mapping[str, Coded] | None = None) -> Values:
    """What a code of each block is multiplied by, float64 of the shape of the blocks' grid, or [1, 1]."""
    values = _known(outputs, given)
    with np.errstate(all="ignore"):
        for name, chain in recipe.reader.blocks:
            values[name] = _run(values[str(chain[0])], chain[1:], values)
        steps = [step for step in recipe.reader.element[1:] if named(step)[0] in ("mul", "div")]
        return np.asarray(_run(np.ones((1, 1)), steps, values), np.float64)


def _known(outputs: Mapping[str, Coded], given: Mapping[str, Coded] | None) -> dict[str, Any]:
    every = {**(given or {}), **outputs}
    found = {name: decode_values(value) for name, value in every.items() if name != "codes"}
    return found | {"stored": found["scale"]}


def _run(value: Any, steps: Any, values: Mapping[str, Any]) -> Any:
    for step in steps:
        name, operands = named(step)
        operand = values[operands[0]] if isinstance(operands[0], str) else operands[0]
        value = _EXACTLY[name](value, operand)
    return value


def to_elements(value: npt.NDArray[Any], blocks: Blocks, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """A value of each block as one of each element of a whole matrix; axes with one block are left to broadcasting."""
    spread: npt.NDArray[Any] = spread_over(value, slice(None), blocks, shape)
    return spread
