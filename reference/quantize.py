"""Run a recipe: a matrix becomes codes and scales."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.recipe import Recipe
from narrowgauge.reference import policies
from narrowgauge.reference.fast_codec import cast, to_float32
from narrowgauge.reference.steps import CLAMPS, F32, run_chain

#: float32 values to codes: the last step of a recipe
LastCast = Callable[[Coded], Coded]


def quantize(x: Coded, recipe: Recipe, format_name: str, last_cast: LastCast | None = None) -> dict[str, Coded]:
    """``codes`` [rows, columns] and ``scale`` float32 [rows, 1] of a matrix x [rows, columns].

    ``last_cast`` replaces the recipe's own. Raises ``BadInput`` unless x has two axes.
    """
    if x.data.ndim != 2:
        raise BadInput(f"quantize: x has shape {x.shape}; expected [rows, columns]")
    matrix = to_float32(x)
    with np.errstate(all="ignore"):
        scale, encode = scale_and_encode(row_amax(matrix, recipe), recipe, format_name)
        codes = elements(matrix, encode, recipe, format_name, last_cast or own_cast(recipe, format_name))
    return {"codes": codes, "scale": Coded("float32", scale.view(np.uint32))}


def row_amax(matrix: F32, recipe: Recipe) -> F32:
    """The largest magnitude of each row, [rows, 1]. An empty row has 0."""
    reduce = np.fmax.reduce if recipe.amax_nan == "drop" else np.maximum.reduce
    # C's fmax and the GPUs' drop any NaN; numpy's returns NaN for a signalling one, so those are quieted first.
    magnitude = np.where(np.isnan(matrix), np.float32(np.nan), np.abs(matrix))
    amax: F32 = reduce(magnitude, axis=1, keepdims=True, initial=np.float32(0))
    return amax


def scale_and_encode(amax: F32, recipe: Recipe, format_name: str) -> tuple[F32, F32]:
    """The dequantization scale, and the operand that the elements meet. Each may be computed from the other."""
    bound = np.float32(recipe.destination(format_name).bound)
    context: dict[str, object] = {"amax": amax, "bound": bound, "1/bound": np.float32(1) / bound}
    for name, chain in recipe.constants:
        context[name] = run_chain(chain, context)
    chains = {"scale": recipe.scale, "encode": recipe.encode}
    for name in sorted(chains, key=lambda n: chains[n][0] != "amax"):
        context[name] = run_chain(chains[name], context)
    return np.asarray(context["scale"], np.float32), np.asarray(context["encode"], np.float32)


def own_cast(recipe: Recipe, format_name: str) -> LastCast:
    """The cast that a recipe names for a destination."""
    policy = policies.resolve(recipe.destination(format_name).cast, format_name)
    return lambda values: cast(values, format_name, policy)


def elements(matrix: F32, encode: F32, recipe: Recipe, format_name: str, last_cast: LastCast) -> Coded:
    """Scale, clamp and cast each element."""
    destination = recipe.destination(format_name)
    scaled = matrix * encode if recipe.apply == "mul" else matrix / encode
    clamped = np.ascontiguousarray(CLAMPS[recipe.clamp](scaled, np.float32(destination.bound)), np.float32)
    return last_cast(Coded("float32", clamped.view(np.uint32)))
