"""Blocks that do not divide a matrix: it is padded with zeros, quantized, and the padding cut off again.

Source: compressed-tensors, maybe_pad_tensor_for_block_quant; vLLM pads its inputs in the same way. A zero never raises
a largest magnitude, so a block's codes are those of its real elements. A smallest or largest value it does change:
recipes with a zero point are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.recipe import Blocks, Recipe
from narrowgauge.reference.quantize import quantize
from narrowgauge.reference.steps import operands_of


def padded(x: Coded, blocks: Blocks) -> Coded:
    """x [rows, columns] with zeros below and to the right, so that whole blocks cover it; x itself where they do.

    Raises ``BadInput`` for another shape.
    """
    if x.data.ndim != 2:
        raise BadInput(f"padding: x has shape {list(x.shape)}; expected [rows, columns]")
    more = [-size % each if each else 0 for size, each in zip(x.shape, (blocks.rows, blocks.columns), strict=True)]
    return Coded(x.format, np.pad(x.data, [(0, n) for n in more])) if any(more) else x


def quantize_padded(
    x: Coded, recipe: Recipe, format_name: str, given: Mapping[str, Coded] | None = None
) -> dict[str, Coded]:
    """``quantize`` of x with its padding: codes of x's own shape, and one scale for each block, the last ones in part.

    ``given`` is for the blocks of the padded matrix. Raises ``BadInput`` as ``quantize`` does, and for a recipe that
    looks at the smallest and the largest element.
    """
    if {"min", "max"} & operands_of(recipe):
        raise BadInput(
            f"padding: recipe {recipe.name!r} looks at the smallest and the largest element, "
            "which zeros would change; expected one that looks at magnitudes"
        )
    whole = replace(recipe, blocks=replace(recipe.blocks, ragged=False))
    done = quantize(padded(x, recipe.blocks), whole, format_name, given=given)
    rows, columns = x.shape
    return done | {"codes": Coded(format_name, np.ascontiguousarray(done["codes"].data[:rows, :columns]))}
