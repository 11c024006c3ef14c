"""Zero points: an asymmetric scale and zero point from a smallest and a largest value that were seen before.

The rules are the steps of the catalogue's own recipes, so that what is calibrated and what is found at run time cannot
part. vLLM's int4 cache hides its zero point in the scale; that is here too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.recipe import Recipe
from narrowgauge.reference.fast_codec import decode_values, to_float32
from narrowgauge.reference.quantize import Statistics, block_values
from narrowgauge.reference.steps import operands_of

F32 = npt.NDArray[np.float32]
_HIDDEN = np.uint32(15)


def from_range(low: F32, high: F32, recipe: Recipe) -> dict[str, Coded]:
    """``scale`` float32 and ``zero_point`` int32 by a recipe's rule; ``low``, ``high`` and both are [down, across].

    They are what vllm.int8_static_azp is given, where the rule is one of int8. Raises ``BadInput`` for a recipe whose
    zero point does not come from the smallest and largest value, shapes that differ, and where low is above high.
    """
    if not {"min", "max"} <= operands_of(recipe) or "zero_point" not in dict(recipe.steps):
        raise BadInput(f"zero points: recipe {recipe.name!r} makes none of a smallest and a largest value")
    if low.shape != high.shape or low.ndim != 2 or not (low <= high).all():
        raise BadInput(
            f"zero points: smallest values {list(low.shape)} and largest {list(high.shape)}; "
            "expected two of the same shape [down, across], none smallest above its largest, no NaN"
        )
    seen = Statistics(
        (low.shape[0], low.shape[1]), {"min": low, "max": high, "amax": np.maximum(np.abs(low), np.abs(high))}
    )
    with np.errstate(all="ignore"):
        values = block_values(seen, recipe, recipe.destinations[0].format, "float32", {})
    return {name: values[f"{name} as stored"] for name in ("scale", "zero_point")}


def observed(batches: Sequence[Coded]) -> tuple[F32, F32]:
    """The smallest and the largest element of all batches, float32 [1, 1]. NaN counts as nothing.

    Raises ``BadInput`` where there is no number at all.
    """
    flat = np.concatenate([*(to_float32(batch).ravel() for batch in batches), np.empty(0, np.float32)])
    flat = flat[~np.isnan(flat)]
    if not flat.size:
        raise BadInput(f"zero points: {len(batches)} batches without a number; expected at least one")
    return flat.min().reshape(1, 1), flat.max().reshape(1, 1)


def hidden(scale: Coded, zero_point: Coded) -> Coded:
    """vLLM's int4 cache: the zero point, 0 to 15, in the four lowest bits of the float32 scale.

    Raises ``BadInput`` for a zero point that has no room there.
    """
    zero = decode_values(zero_point)
    if ((zero < 0) | (zero > 15)).any():
        raise BadInput("zero points: one is not within 0 to 15; only a zero point of int4 fits into a scale")
    return Coded("float32", (scale.codes & ~_HIDDEN) | zero.astype(np.uint32))


def revealed(stored: Coded) -> tuple[Coded, Coded]:
    """The scale that a reader multiplies by, its four lowest bits 0, and the zero point int32. Undoes ``hidden``."""
    return Coded("float32", stored.codes & ~_HIDDEN), Coded("int32", stored.codes & _HIDDEN)
