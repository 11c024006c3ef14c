"""Static scales: found once from calibration batches, by the largest magnitude, a percentile, or the least error.

Largest magnitude and percentile are the two that every engine's tools have (ModelOpt, llm-compressor, Quark); how a
percentile falls between two elements differs among them, so the rule is an argument. Everything up to the last step is
exact; the last one rounds to float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput, unknown
from narrowgauge.contracts.recipe import Recipe
from narrowgauge.reference.fast_codec import decode_values, to_float32
from narrowgauge.reference.quantize import quantize

F32 = npt.NDArray[np.float32]

#: where a rank lies between two elements: the lower and the upper one, and how far it is from the lower
RULES: dict[str, Callable[[Fraction, Fraction, Fraction], Fraction]] = {
    "lower": lambda low, high, way: low,
    "higher": lambda low, high, way: high if way else low,
    "linear": lambda low, high, way: low + way * (high - low),
}
Rule = Literal["lower", "higher", "linear"]


def magnitudes(batches: Sequence[Coded]) -> F32:
    """|x| of all elements of all batches, float32 [elements], in ascending order.

    Raises ``BadInput`` for batches without an element, and for NaN or infinity: of such data no range is known.
    """
    parts = [np.abs(to_float32(batch)).ravel() for batch in batches]
    for i, part in enumerate(parts):
        wrong = int((~np.isfinite(part)).sum())
        if wrong:
            raise BadInput(
                f"calibration: batch {i} has {wrong} elements that are NaN or infinite of {part.size:,}; "
                "expected finite data: leave the batch out, or look for what made them"
            )
    flat = np.sort(np.concatenate([*parts, np.empty(0, np.float32)]))
    if not flat.size:
        raise BadInput(f"calibration: {len(batches)} batches without an element; expected at least one element")
    return flat


def largest(batches: Sequence[Coded]) -> np.float32:
    """The largest magnitude of all batches. Raises ``BadInput`` as ``magnitudes`` does."""
    return np.float32(magnitudes(batches)[-1])


def percentile(batches: Sequence[Coded], percent: float | str | Fraction, rule: Rule = "linear") -> np.float32:
    """The magnitude below which so many percent of all elements lie, rounded once to float32.

    Of n elements in order the rank is (n - 1) * percent / 100, from 0; between two elements ``rule`` decides, "linear"
    as NumPy's of that name. A float counts as the decimal that it prints as: 99.9 is 999/10. Raises ``BadInput`` for
    a percentage that is not within 0 to 100, another rule, and as ``magnitudes`` does.
    """
    try:
        part = Fraction(repr(percent) if isinstance(percent, float) else percent)
    except (ValueError, ZeroDivisionError):
        part = Fraction(-1)
    if not 0 <= part <= 100:
        raise BadInput(f"calibration: percentile {percent}; expected a number from 0 to 100")
    if rule not in RULES:
        raise unknown("interpolation rule", rule, RULES, "percentile")
    ordered = magnitudes(batches)
    below, way = divmod((ordered.size - 1) * part / 100, 1)
    above = min(below + 1, ordered.size - 1)
    return _nearest(RULES[rule](Fraction(float(ordered[below])), Fraction(float(ordered[above])), way))


def _nearest(value: Fraction) -> np.float32:
    """The float32 nearest to a magnitude, ties to even.

    float64 first, with an odd last bit where it is not exact: no such number is a tie of float32, whose significand is
    more than two bits shorter, so that the second rounding is the only one.
    """
    wide = np.float64(float(value))
    if Fraction(float(wide)) != value and wide.view(np.uint64) % 2 == 0:
        wide = np.nextafter(wide, np.inf if value > Fraction(float(wide)) else -np.inf)
    return np.float32(wide)


def static_scale(amax: np.float32, bound: float, margin: int = 0) -> dict[str, Coded]:
    """``given`` for a static recipe: scale float32 [1, 1] of (amax * 2^margin) / bound, each step rounded to float32.

    A margin of 1 leaves the upper binade of the codes free. Raises ``BadInput`` where that is no finite number above 0:
    of zeros alone no scale is known.
    """
    with np.errstate(all="ignore"):
        scale = np.ldexp(np.float32(amax), margin) / np.float32(bound)
    if not (np.isfinite(scale) and scale > 0):
        raise BadInput(
            f"calibration: a largest magnitude of {amax:g}, margin {margin}, over {bound:g} is a scale of {scale:g}; "
            "expected a finite number above 0: the data were all zero, or beyond float32"
        )
    return {"scale": Coded("float32", np.asarray([[scale]], np.float32).view(np.uint32))}


def least_error(
    batches: Sequence[Coded], recipe: Recipe, format_name: str, steps: int = 80, smallest: float = 0.2
) -> np.float32:
    """The magnitude whose scale leaves the least sum of squared errors, among ``steps`` parts of the largest one.

    Candidate i of steps is the largest magnitude times 1 - i * (1 - smallest) / steps, in float64 and rounded once to
    float32; i is 0 to steps - 1. Errors x - code * scale and their squares are float64, their sum is exactly rounded.
    Of equal sums the larger magnitude is taken. ``recipe`` is static. Raises ``BadInput`` for one that is not, and as
    ``magnitudes`` and ``static_scale`` do.
    """
    if recipe.inputs != ("scale",):
        raise BadInput(f"calibration: recipe {recipe.name!r} is not given a scale alone; expected a static one")
    if not (steps > 0 and 0 <= smallest < 1):
        raise BadInput(f"calibration: {steps} steps down to {smallest}; expected at least one, and a part of 1")
    amax, bound = largest(batches), recipe.destination(format_name).bound
    parts = 1 - np.arange(steps) * (1 - smallest) / steps
    candidates = (np.float64(amax) * parts).astype(np.float32)

    def error(candidate: np.float32) -> float:
        scale = static_scale(candidate, bound)
        return math.fsum(e for batch in batches for e in _squares(batch, recipe, format_name, scale))

    return np.float32(min(candidates, key=error))


def _squares(batch: Coded, recipe: Recipe, format_name: str, given: dict[str, Coded]) -> list[float]:
    codes = decode_values(quantize(batch, recipe, format_name, given=given)["codes"])
    difference: npt.NDArray[Any] = to_float32(batch) - codes * np.float64(to_float32(given["scale"])[0, 0])
    return [float(e) for e in (difference**2).ravel()]
