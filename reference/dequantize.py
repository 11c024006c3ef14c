"""Read what a recipe wrote: codes and what is stored beside them become values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from narrowgauge.contracts.coded import Coded, given_with
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.recipe import Recipe
from narrowgauge.reference.fast_codec import decode_values, to_float32
from narrowgauge.reference.quantize import LastCast, Values, check_given, in_bands
from narrowgauge.reference.steps import STEPS, run_chain


def dequantize(
    x: Coded, recipe: Recipe, format_name: str, last_cast: LastCast, given: Mapping[str, Coded] | None = None
) -> Coded:
    """The values, [rows, columns] of a wide format, of codes [rows, columns].

    ``given``, by default what comes with x, are the stored scale, of the blocks' grid or [1, 1], and what else the
    recipe's reader uses. A scale may be any number: what zero, NaN or a negative one makes of a code is the answer.
    Raises ``BadInput`` for another shape, for codes of no destination, and for what is missing or misshaped.
    """
    if x.data.ndim != 2:
        raise BadInput(f"dequantize: codes have shape {x.shape}; expected [rows, columns]")
    with np.errstate(all="ignore"):
        values = reader_values(x, recipe, given_with(x) if given is None else given)
        return in_bands(to_float32(x), values, recipe.blocks, recipe.reader.element, format_name, last_cast)


def reader_values(
    x: Coded, recipe: Recipe, given: Mapping[str, Coded], steps: Mapping[str, Callable[..., Any]] = STEPS
) -> Values:
    """Every named value that the reader of a recipe has, float32 of the shape of the blocks' grid or [1, 1]."""
    values: Values = {"bfloat16": "bfloat16", "float16": "float16"}
    grid = recipe.blocks.grid(*x.shape)
    for name, format_of in recipe.given_to_reader(x.format).items():
        if name not in given:
            raise BadInput(f"dequantize: {name!r} comes beside the codes of {recipe.name}; nothing of that name came")
        check_given(name, given[name], format_of, grid)
        numbers = decode_values(given[name]) if name == "zero_point" else to_float32(given[name])
        values["stored" if name == "scale" else name] = numbers
    for name, chain in recipe.reader.blocks:
        values[name] = run_chain(chain, values, steps)
    return values
