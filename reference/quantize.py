"""Run a recipe: a matrix becomes codes, scales, and whatever else the recipe computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded, given_with
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.recipe import INPUTS, OF_TENSOR, RETURNED, ROUNDED_TO, TENSOR, Blocks, Chain, Recipe
from narrowgauge.reference import policies
from narrowgauge.reference.fast_codec import cast, decode_values, to_float32
from narrowgauge.reference.steps import F32, STEPS, operands_of, run_chain

#: float32 values to codes: the last step of a recipe
LastCast = Callable[[Coded], Coded]
#: name of a value of a recipe -> float32, one for each block, or [1, 1]
Values = dict[str, Any]
#: so many elements are scaled and cast at once, so that memory stays a few times the input's
_BAND = 1 << 18
_MAGNITUDE, _INFINITY = np.uint32(0x7FFFFFFF), np.uint32(0x7F800000)


def quantize(
    x: Coded,
    recipe: Recipe,
    format_name: str,
    last_cast: LastCast | None = None,
    given: Mapping[str, Coded] | None = None,
) -> dict[str, Coded]:
    """``codes`` [rows, columns] of a matrix x [rows, columns], and what the recipe returns beside them.

    ``given`` are the recipe's inputs, by default those that come with x: a scale float32 of the shape of the blocks'
    grid or [1, 1]; a global scale [1, 1]. ``last_cast`` replaces the recipe's own. Raises ``BadInput`` for another
    shape, a matrix that the blocks do not divide, or an input that is missing or cannot be (see ``given_values``).
    """
    if x.data.ndim != 2:
        raise BadInput(f"quantize: x has shape {x.shape}; expected [rows, columns]")
    with np.errstate(all="ignore"):
        matrix = to_float32(x)
        values = block_values(
            statistics(matrix, recipe), recipe, format_name, x.format, given_with(x) if given is None else given
        )
        codes = elements(matrix, values, recipe, format_name, last_cast or own_cast(recipe, format_name))
    return {"codes": codes} | {
        name: values[f"{name} as stored"] for name in recipe.outputs(format_name) if name != "codes"
    }


@dataclass(frozen=True)
class Statistics:
    """What a recipe can ask of the blocks of a matrix, float32 of the shape of their grid."""

    grid: tuple[int, int]
    found: Mapping[str, F32]


def statistics(matrix: F32, recipe: Recipe) -> Statistics:
    """Those that the recipe uses. A block without elements has 0."""
    grid = recipe.blocks.grid(*matrix.shape)
    makers: dict[str, Callable[[], F32]] = {
        "amax": lambda: amax_of(matrix, recipe.blocks, recipe.amax_nan),
        "tensor_amax": lambda: amax_of(matrix, TENSOR, recipe.amax_nan),
        "min": lambda: _extreme(matrix, recipe.blocks, grid, np.fmin),
        "max": lambda: _extreme(matrix, recipe.blocks, grid, np.fmax),
    }
    return Statistics(grid, {name: makers[name]() for name in makers.keys() & operands_of(recipe)})


def _bands(matrix: npt.NDArray[Any], blocks: Blocks) -> Iterator[tuple[slice, slice]]:
    """Rows in bands of whole blocks, with the rows of the grid that they are."""
    rows, columns = matrix.shape
    each = blocks.rows or 1  # where all rows share a scale, any band will do
    count = max(1, _BAND // max(1, each * columns))
    for first in range(0, -(-rows // each), count):
        last = min(first + count, -(-rows // each))
        yield slice(first * each, last * each), slice(first, last) if blocks.rows else slice(0, 1)


def _blocked(band: npt.NDArray[Any], blocks: Blocks, grid_columns: int) -> npt.NDArray[Any]:
    """A band as [blocks down, rows of a block, blocks across, columns of a block], padded with zeros where ragged."""
    rows, columns = band.shape
    r, c = blocks.rows or max(rows, 1), blocks.columns or max(columns, 1)
    down = -(-rows // r)
    if (down * r, grid_columns * c) != (rows, columns):
        band = np.pad(band, ((0, down * r - rows), (0, grid_columns * c - columns)))
    return band.reshape(down, r, grid_columns, c)


def amax_of(matrix: F32, blocks: Blocks, nan: str) -> F32:
    """The largest magnitude of each block: by patterns, which are ordered as magnitudes are, NaN above infinity."""
    grid = blocks.grid(*matrix.shape)
    found, least = np.zeros(grid, np.uint32), np.full(grid, _MAGNITUDE if matrix.size else _INFINITY, np.uint32)
    for rows, places in _bands(matrix, blocks):
        magnitude = matrix[rows].view(np.uint32) & _MAGNITUDE
        if nan == "all":
            smallest = _blocked(magnitude, blocks, grid[1]).min(axis=(1, 3), initial=_MAGNITUDE)
            np.minimum(least[places], smallest, out=least[places])
        if nan != "keep":
            magnitude[magnitude > _INFINITY] = 0
        largest = _blocked(magnitude, blocks, grid[1]).max(axis=(1, 3), initial=0)
        np.maximum(found[places], largest, out=found[places])
    found[(found > _INFINITY) | ((nan == "all") & (least > _INFINITY))] = 0x7FC00000
    return found.view(np.float32)


def _extreme(matrix: F32, blocks: Blocks, grid: tuple[int, int], reduce: np.ufunc) -> F32:
    """The smallest or largest element of each block. NaN is dropped, and so is the padding of a ragged block."""
    found = np.full(grid, np.nan, np.float32)
    for rows, places in _bands(matrix, blocks):
        band = matrix[rows]
        r, c = blocks.rows or max(band.shape[0], 1), blocks.columns or max(band.shape[1], 1)
        down = -(-band.shape[0] // r)
        padded = np.full((down * r, grid[1] * c), np.nan, np.float32)
        padded[: band.shape[0], : band.shape[1]] = band
        each = reduce.reduce(padded.reshape(down, r, grid[1], c), axis=(1, 3))
        found[places] = reduce(found[places], each)
    return np.where(np.isnan(found), np.float32(0), found)


def block_values(
    seen: Statistics,
    recipe: Recipe,
    format_name: str,
    source: str,
    given: Mapping[str, Coded],
    steps: Mapping[str, Callable[..., Any]] = STEPS,
) -> Values:
    """Every named value of a recipe, and under "NAME as stored" the codes of those that are returned."""
    bound = np.float32(recipe.destination(format_name).bound)
    fmt = format_named(source)
    values: Values = dict(seen.found) | {"bound": bound, "1/bound": np.float32(1) / bound}
    values |= {"epsilon": np.float32(2.0**-fmt.mantissa), "least_normal": np.float32(2.0 ** (1 - fmt.bias))}
    values |= {name: name for name in ROUNDED_TO} | {"source": source}
    for name in recipe.inputs:
        values[name] = given_values(name, given, seen.grid)
    if recipe.static:
        values["stored"] = values["scale"]
    for name, chain in recipe.steps:
        values[name] = np.asarray(run_chain(chain, values, steps), np.float32)  # of each block, or one of all
        if name in RETURNED:
            values[name] = np.broadcast_to(values[name], (1, 1) if name in OF_TENSOR else seen.grid)
            values[f"{name} as stored"] = _stored(name, values[name], recipe)
        if name == "zero_point":  # what is added is the int32 that is stored
            values[name] = decode_values(values["zero_point as stored"])
        if name == "scale":
            values["stored"] = to_float32(values["scale as stored"])
    return values


def _stored(name: str, value: F32, recipe: Recipe) -> Coded:
    if name == "zero_point":
        whole = np.clip(np.nan_to_num(value.astype(np.float64)), -(2.0**31), 2.0**31 - 1)
        return Coded("int32", whole.astype(np.int64).astype(np.uint32))
    exact = Coded("float32", np.ascontiguousarray(value).view(np.uint32))
    return exact if name == "global_scale" else stored_scale(exact, recipe)


def stored_scale(exact: Coded, recipe: Recipe) -> Coded:
    """A float32 scale in the format in which the recipe stores it."""
    if recipe.scale_format == "float32":
        return exact
    return cast(exact, recipe.scale_format, policies.resolve(recipe.scale_cast, recipe.scale_format))


def given_values(name: str, given: Mapping[str, Coded], grid: tuple[int, int]) -> npt.NDArray[Any]:
    """An input of a recipe as numbers. Raises ``BadInput`` where it is missing, misshaped, or no number to scale by."""
    if name not in given:
        raise BadInput(f"the recipe is given {name!r} beside x; nothing of that name came")
    value = given[name]
    check_given(name, value, INPUTS[name], grid)
    if name == "zero_point":
        return decode_values(value)
    numbers = to_float32(value)
    wrong = ~(np.isfinite(numbers) & (numbers > 0))
    if wrong.any():
        at = [int(i) for i in np.argwhere(wrong)[0]]
        raise BadInput(
            f"{name}{at} is {numbers[tuple(at)]:g}; expected a finite number above 0: "
            "by a scale that is zero, negative, infinite or NaN nothing can be quantized"
        )
    return numbers


def check_given(name: str, value: Coded, format_name: str, grid: tuple[int, int]) -> None:
    """Raise ``BadInput`` for what comes beside x in another format, or in a shape that is not one for each block."""
    expected = ((1, 1),) if name in OF_TENSOR else (grid, (1, 1))
    if value.format != format_name or value.shape not in expected:
        shapes = " or ".join(dict.fromkeys(str(list(e)) for e in expected))
        raise BadInput(f"{name} is {value.format} {list(value.shape)}; expected {format_name} {shapes}")


def own_cast(recipe: Recipe, format_name: str) -> LastCast:
    """The cast that a recipe names for a destination."""
    policy = policies.resolve(recipe.destination(format_name).cast, format_name)
    return lambda values: cast(values, format_name, policy)


def elements(
    matrix: F32,
    values: Values,
    recipe: Recipe,
    format_name: str,
    last_cast: LastCast,
    steps: Mapping[str, Callable[..., Any]] = STEPS,
) -> Coded:
    """Scale, clamp and cast each element."""
    return in_bands(matrix, values, recipe.blocks, recipe.element, format_name, last_cast, steps)


def in_bands(
    matrix: F32,
    values: Values,
    blocks: Blocks,
    chain: Chain,
    format_name: str,
    last_cast: LastCast,
    steps: Mapping[str, Callable[..., Any]] = STEPS,
) -> Coded:
    """A chain on each element "x", with the values of its block, and the cast, in bands of rows."""
    bands = []
    for rows, places in _bands(matrix, blocks):
        band = matrix[rows]
        spread = {name: spread_over(value, places, blocks, band.shape) for name, value in values.items()}
        done = np.broadcast_to(run_chain(chain, spread | {"x": band}, steps), band.shape)
        bands.append(last_cast(Coded("float32", np.ascontiguousarray(done, np.float32).view(np.uint32))).data)
    if not bands:
        return last_cast(Coded("float32", np.zeros(matrix.shape, np.uint32)))
    return Coded(format_name, bands[0] if len(bands) == 1 else np.concatenate(bands))


def spread_over(value: Any, places: slice, blocks: Blocks, shape: tuple[int, ...]) -> Any:
    """A value of each block as one of each element of a band; axes with one block are left to broadcasting."""
    if np.ndim(value) != 2 or value.shape == (1, 1):
        return value
    part = value if value.shape[0] == 1 else value[places]
    if part.shape[0] > 1 and blocks.rows > 1:
        part = np.repeat(part, blocks.rows, axis=0)[: shape[0]]
    if part.shape[1] > 1 and blocks.columns > 1:
        part = np.repeat(part, blocks.columns, axis=1)[:, : shape[1]]
    return part
