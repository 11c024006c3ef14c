"""A quantizer with room between its parts, so that a fault can stand there, and an interval of inputs go through.

The parts are those of ``quantize``: what is asked of each block, the named values that follow from it, and the codes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from narrowgauge.contracts.coded import Coded, given_with
from narrowgauge.contracts.recipe import Recipe
from narrowgauge.reference.fast_codec import to_float32
from narrowgauge.reference.quantize import LastCast, Statistics, Values, block_values, elements, statistics
from narrowgauge.reference.steps import F32, STEPS

#: what the blocks of a matrix are asked for
Look = Callable[[F32, Recipe], Statistics]
Steps = Mapping[str, Callable[..., Any]]
#: other named values of blocks, or of the tensor
Change = Callable[[Values], Values]


@dataclass(frozen=True)
class Staged:
    """``quantize``, with what faults change in it."""

    looks: tuple[Callable[[Look], Look], ...] = ()  #: each changes how blocks are looked at
    used: tuple[Change, ...] = ()  #: each changes the values that elements are scaled with
    stored: tuple[Change, ...] = ()  #: each changes the values that are returned

    def __call__(self, x: Coded, recipe: Recipe, format_name: str, last_cast: LastCast) -> dict[str, Coded]:
        """The outputs for a matrix x, with what comes beside it."""
        with np.errstate(all="ignore"):
            matrix = to_float32(x)
            values = self.values(matrix, recipe, format_name, x.format, given_with(x))
            return self.outputs(matrix, values, recipe, format_name, last_cast)

    def values(
        self,
        matrix: F32,
        recipe: Recipe,
        format_name: str,
        source: str,
        given: Mapping[str, Coded],
        steps: Steps = STEPS,
    ) -> Values:
        """The named values of the blocks of a matrix."""
        look: Look = statistics
        for around in self.looks:
            look = around(look)
        return block_values(look(matrix, recipe), recipe, format_name, source, given, steps)

    def outputs(
        self, matrix: F32, values: Values, recipe: Recipe, format_name: str, last_cast: LastCast, steps: Steps = STEPS
    ) -> dict[str, Coded]:
        """Codes of a matrix whose blocks have these values, and what is returned beside them."""
        used = returned = values
        for change in self.used:
            used = change(used)
        for change in self.stored:
            returned = change(returned)
        codes = elements(matrix, used, recipe, format_name, last_cast, steps)
        names = (name for name in recipe.outputs(format_name) if name != "codes")
        return {"codes": codes} | {name: returned[f"{name} as stored"] for name in names}


#: with nothing changed
PLAIN = Staged()
