"""What a kernel is given beside x: scales that show when they are dropped, shared, swapped or taken for their inverse.

Each block has a number of its own, none of them 1 where it can be helped, powers of two among others. Of what belongs
to the whole tensor there is but one number: a case says by its ``turn`` which.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.operations import Claim, Dequantize, Then
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.contracts.recipe import OF_TENSOR, Recipe
from narrowgauge.contracts.wide import Held, Wide
from narrowgauge.reference.behaviour import recipe_of, resolved
from narrowgauge.reference.calibrated import global_scale_of
from narrowgauge.reference.fast_codec import cast, decode_values, to_float32
from narrowgauge.reference.memory import packings
from narrowgauge.reference.quantize import amax_of
from narrowgauge.reference.wide.cases import beside
from narrowgauge.reference.wide.catalogue import WIDE
from narrowgauge.reference.wide.run import wide_result

F64 = npt.NDArray[np.float64]
#: a static scale in units of amax / bound: below 1 clips, far above 1 flushes
_RELATIVE = (0.37, 1.0, 2.0, 1.3, 0.5, 17.0, 900.0)
#: an upper bound of amax, in units of the largest
_CUT = (0.4, 0.03, 2.0)
#: a tensor's scale in units of the usual one
_GLOBAL = (1.0, 0.37, 4.0)
#: formats of which numpy makes the nearest codes, or the whole ones
_NUMPY = {"int8": np.int8, "int32": np.int32, "float32": np.float32}
_EXACT = CastPolicy(overflow="special", infinity="special")
_ZEROS = (3, -7, 100, -128, 127, 0, 1, -1)
#: scales that a reader meets, of each kind of storage: ordinary, powers of two, the ends, zero, NaN
_STORED: dict[str, tuple[float, ...]] = {
    "float32": (
        0.37,
        1 + 2.0**-8,
        2.0**-9,
        3.0,
        1.0,
        2.0**-126,
        2.0**100,
        1e-40,
        1e30,
        2.0**-149,
        0.0,
        -0.5,
        float("nan"),
    ),
    "float8_e8m0fnu": (2.0**-3, 1.0, 2.0**7, 2.0**-127, 2.0**127, 2.0**-126, 2.0**-20, float("nan")),
    "float8_e4m3fn": (1.125, 0.0, 448.0, 2.0**-9, 0.4375, 1.0, float("nan"), 26.0),
}
#: scales that a reader of such values meets, where another storage is not listed
_ANY = (0.375, 1.0, 2.0, 0.5, 24.0)


def with_given(claim: Claim, x: Coded, turn: int | None = 0) -> Coded:
    """The input of a claim: x with what its contract gives the kernel.

    ``turn`` picks among a tensor's own numbers;
    None gives a quantizer just the scales that the largest magnitudes ask for.
    """
    recipe = recipe_of(claim)
    if recipe is None:
        return x
    if claim.operation == Dequantize.operation:
        return Input(x.format, x.data, _stored(recipe, x, claim, turn or 0))
    given: dict[str, Coded] = {}
    if isinstance(claim.contract, Then):
        given = _beside_first(WIDE[claim.contract.first], x)
        seen = wide_result(Input(x.format, x.data, given), claim.contract.first)[1] if recipe.inputs else x
    else:
        seen = x
    given |= _calibrated(recipe, seen, claim.format, turn)
    return Input(x.format, x.data, given) if given else x


def _beside_first(wide: Wide, x: Coded) -> dict[str, Coded]:
    """What an operation before a quantizer is given: weights, or what its own cases give it."""
    value, columns = decode_values(x), x.shape[1] // wide.parts
    plain = {held.name: held == Held(held.name, "column") for held in wide.inputs}
    return {
        held.name: _weight((1, columns), x.format) if plain[held.name] else beside(held, wide, value, columns, x.format)
        for held in wide.inputs
    }


def around(grid: tuple[int, ...], numbers: tuple[float, ...], turn: int = 0) -> F64:
    """The numbers one after the other along a row; the next row begins five further, so that both neighbours differ."""
    rows, columns = grid
    places = np.arange(rows)[:, None] * 5 + np.arange(columns) + turn
    chosen: F64 = np.asarray(numbers, np.float64)[places % len(numbers)]
    return chosen


def _weight(shape: tuple[int, int], source: str) -> Coded:
    return coded_as(around(shape, (1.0, 0.75, 1.5, 0.3, -1.0, 2.0, 1.1), 0), source)


def coded_as(value: F64, format_name: str) -> Coded:
    """The nearest codes; NaN where the format has it."""
    if format_name in _NUMPY:
        with np.errstate(invalid="ignore", over="ignore"):
            data = np.ascontiguousarray(value.astype(_NUMPY[format_name]))
        return Coded(format_name, data.view(format_named(format_name).storage))
    return cast(Coded("float64", np.ascontiguousarray(value).view(np.uint64)), format_name, _EXACT)


def _calibrated(recipe: Recipe, x: Coded, format_name: str, turn: int | None) -> Mapping[str, Coded]:
    """Inputs of a quantizer: near what the matrix asks for, so that codes are neither all clipped nor all zero."""
    if not recipe.inputs:
        return {}
    value = to_float32(x)
    finite = np.where(np.isfinite(value), value, np.float32(0))
    grid = recipe.blocks.grid(*x.shape)
    amax = amax_of(finite, recipe.blocks, "drop").astype(np.float64)
    largest = float(np.median(amax[amax > 0])) if (amax > 0).any() else 1.0
    bound = recipe.destination(format_name).bound
    relative = np.ones(grid) if turn is None else around(grid, _RELATIVE, turn)
    turn = turn or 0
    whole = global_scale_of(recipe, bound, max(largest, 2.0**-90)) * _GLOBAL[turn % len(_GLOBAL)]
    made: dict[str, F64] = {
        "scale": np.clip(np.where(amax > 0, amax, 1.0) / bound * relative, 2.0**-100, 2.0**100),
        "zero_point": around(grid, _ZEROS, turn),
        "upper_bound": np.full((1, 1), max(largest, 2.0**-100) * _CUT[turn % len(_CUT)]),
        "global_scale": np.full((1, 1), whole),
    }
    return {name: coded_as(made[name], "int32" if name == "zero_point" else "float32") for name in recipe.inputs}


def _stored(recipe: Recipe, x: Coded, claim: Claim, turn: int) -> Mapping[str, Coded]:
    """Inputs of a reader."""
    grid = recipe.blocks.grid(*x.shape)
    numbers: dict[str, tuple[float, ...]] = {
        "zero_point": _zeros(claim),
        "global_scale": (1234.5, 1 + 2.0**-8, 0.37, 2.0**-8),
    }
    made = {}
    for name, format_name in resolved(claim).inputs.items():
        shape = (1, 1) if name in OF_TENSOR else grid
        made[name] = coded_as(around(shape, numbers.get(name, _STORED.get(format_name, _ANY)), turn), format_name)
    return made


def _zeros(claim: Claim) -> tuple[float, ...]:
    """Zero points of a reader: where they are packed, all that its convention has a place for, neighbours far apart."""
    packing = packings(claim).get("zero_point")
    if packing is None or packing.zeros is None:
        return _ZEROS
    count = 1 << packing.zeros.bits
    return tuple(float(packing.zeros.lowest + 7 * place % count) for place in range(count))
