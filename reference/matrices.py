"""Matrices for quantizers: named rows, shapes in which every block has a magnitude of its own, one scale for all.

What a block itself holds (each special, each tie, each amax) is in ``packed``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import Format, format_named
from narrowgauge.contracts.operations import Claim
from narrowgauge.contracts.recipe import TENSOR, TOKEN, Blocks
from narrowgauge.reference.behaviour import blocks_of, recipe_of
from narrowgauge.reference.codec import decode, encode, largest, values
from narrowgauge.reference.landmarks import EXACT, boundaries, codes_near
from narrowgauge.reference.noise import noise
from narrowgauge.reference.steps import operands_of

Rows = dict[str, npt.NDArray[np.float64]]
Reals = npt.NDArray[np.float64]
Make = Callable[[Claim], Coded]
Applies = Callable[[Claim], bool]


def as_source(matrix: Reals, claim: Claim) -> Coded:
    """A matrix in the format that a claim reads, each element rounded to the nearest value."""
    source = format_named(claim.source)
    if source.name == "float32":
        with np.errstate(over="ignore"):
            return Coded("float32", matrix.astype(np.float32).view(np.uint32))
    return Coded(source.name, encode(matrix, source, EXACT))


def bound_of(claim: Claim) -> float:
    """The largest value that codes stand for: of the recipe, or of the format where nothing is claimed."""
    recipe, fmt = recipe_of(claim), format_named(claim.format)
    return float(values(fmt)[largest(fmt)]) if recipe is None else recipe.destination(fmt.name).bound


def near(reals: Reals, source: Format, reach: int = 1) -> Reals:
    """Finite positive values of the source: the nearest of each given value, and so many on either side."""
    codes = codes_near(np.asarray(reals, np.float64).ravel(), source, reach).astype(source.storage)
    with np.errstate(invalid="ignore"):
        found = decode(codes, source) if source.bits < 32 else codes.view(source.name).astype(np.float64)
    return found[np.isfinite(found) & (found > 0)]


# --- named rows ------------------------------------------------------------------------------------------------------


def quantizer_rows(columns: int, bound: float, fmt: Format) -> Rows:
    """Rows for a quantizer to ``fmt`` whose largest code stands for ``bound``, each with the name of what it is for."""
    random = noise(columns, seed=2)
    ramp = np.linspace(-1.0, 1.0, columns)

    def holding(value: float, row: Reals) -> Reals:
        out = row.copy()
        out[columns // 2] = value
        return out

    rows: Rows = {
        "zeros": np.zeros(columns),
        "negative zeros": np.full(columns, -0.0),
        "ones": np.ones(columns),
        "one element": holding(3.0, np.zeros(columns)),
        "largest is negative": holding(-9.0, random),
        "ties of a unit scale": holding(bound, np.resize(boundaries(fmt), columns) % bound),
        "a NaN": holding(np.nan, random),
        "a signalling NaN": random.copy(),
        "all NaN": np.full(columns, np.nan),
        "an infinity": holding(np.inf, random),
        "a negative infinity": holding(-np.inf, random),
        "smallest subnormal": np.full(columns, 2.0**-149),
        "subnormals": ramp * 2.0**-127,
        "below the minimum scale": ramp * 2.0**-12,
        "near overflow": ramp * 3.3e38,
    }
    for power in (-100, -30, -8, -1, 0, 5, 15, 60):
        rows[f"noise x 2^{power}"] = np.ldexp(random, power)
        rows[f"bound x 2^{power}"] = holding(np.ldexp(bound, power), np.ldexp(ramp * bound, power))
    # A row for each of many largest values: where amax / bound and amax * (1 / bound) part.
    for step, amax in enumerate(np.linspace(1.0, 2.0, 48, endpoint=False)):
        rows[f"largest {amax:.6g}"] = holding(amax, np.clip(np.roll(random, step) * 0.3, -0.99, 0.99))
    return rows


def named_rows(columns: int) -> Make:
    """``quantizer_rows`` as a matrix, with as many more columns as blocks need to divide it."""

    def make(claim: Claim) -> Coded:
        fmt = format_named(claim.format)
        rows = quantizer_rows(fit(1, columns, claim)[1], bound_of(claim), fmt)
        x = as_source(_whole(list(rows.values()), claim), claim)
        source = format_named(claim.source)
        # float64 has no signalling NaN to give: it is written as a pattern, into a row of noise.
        x.data[list(rows).index("a signalling NaN"), x.shape[1] // 2] = (
            ((1 << source.exponent) - 1) << source.mantissa
        ) | 1
        return x

    return make


def finite(claim: Claim) -> Coded:
    """The rows whose largest magnitudes are near 1: where all of a tensor shares a scale, the rest hides them."""
    rows = quantizer_rows(fit(1, 128, claim)[1], bound_of(claim), format_named(claim.format))
    kept = [name for name in rows if name.startswith("largest ") or name in ("zeros", "negative zeros", "ones")]
    tiny = {f"2^-{p} of it": rows["ones"] * 2.0**-p for p in (4, 8, 9, 10, 12, 18, 19, 20)}
    return as_source(_whole([*(rows[name] for name in kept), *tiny.values()], claim), claim)


def _whole(rows: Sequence[Reals], claim: Claim) -> Reals:
    """Rows as a matrix, with as many more as blocks need to divide it."""
    count, columns = fit(len(rows), rows[0].size, claim)
    return np.stack([*rows, *(np.roll(noise(columns, seed=2), k) for k in range(count - len(rows)))])


def wide(claim: Claim) -> Coded:
    """Few rows, many columns, every row at its own magnitude."""
    matrix = noise(8 * 5120, seed=3).reshape(8, 5120) * np.ldexp(1.0, np.arange(-12, 12, 3))[:, None]
    return as_source(matrix, claim)


# --- shapes ----------------------------------------------------------------------------------------------------------


def empty(rows: int, columns: int) -> Make:
    """A matrix without elements."""
    return lambda claim: as_source(np.zeros(fit(rows, columns, claim)), claim)


def shape(rows: int, columns: int) -> Make:
    """A matrix of that shape in which each block has another magnitude: see ``graded``."""
    return lambda claim: as_source(graded(rows, columns, blocks_of(claim) or TOKEN), claim)


def fitting(rows: int, columns: int) -> Make:
    """The same of the next shape that the blocks divide."""
    return lambda claim: shape(*fit(rows, columns, claim))(claim)


def fit(rows: int, columns: int, claim: Claim) -> tuple[int, int]:
    """The next shape from this one on that the claim's blocks divide."""
    blocks = blocks_of(claim) or TOKEN
    if blocks.ragged:
        return rows, columns
    r, c = blocks.rows or 1, blocks.columns or 1
    return -(-rows // r) * r, -(-columns // c) * c


def graded(rows: int, columns: int, blocks: Blocks) -> Reals:
    """Noise with an amax of its own in each block: other than beside it, below it, and at the mirrored place.

    Exponents differ between those, so that scales do that hold nothing else; they span 2^12, which a scale in E4M3
    does too. Where all of a tensor shares a scale, each row has a magnitude of its own.
    """
    r, c = (1, 0) if blocks == TENSOR else (blocks.rows, blocks.columns)
    r, c = r or max(rows, 1), c or max(columns, 1)
    matrix = np.clip(noise(rows * columns, seed=4).reshape(rows, columns) * 0.3, -0.99, 0.99)
    down, across = np.arange(-(-rows // r))[:, None], np.arange(-(-columns // c))
    amax = np.ldexp(1 + ((5 * down + 11 * across) % 32) / 32, (7 * down + 3 * across) % 13 - 6)
    for (i, j), value in np.ndenumerate(amax):
        block = matrix[i * r : (i + 1) * r, j * c : (j + 1) * c]
        place = (3 * i + 5 * j) % block.size
        block.flat[place if (i + j) % 2 else -1 - place] = (-1.0) ** (i // 2 + j)  # the first in its last place
        block *= value
    return matrix


# --- one scale for all -----------------------------------------------------------------------------------------------

#: Rows and columns, before they are made to fit: a few blocks, a tail in rows and columns.
_FEW = (5, 144)


def tensor_with(*elements: float, at: int = 0) -> Make:
    """A small matrix with these elements in it, from a place on."""

    def make(claim: Claim) -> Coded:
        matrix = graded(*fit(*_FEW, claim), blocks_of(claim) or TOKEN) / 128
        matrix.flat[at % matrix.size + np.arange(len(elements))] = elements
        return as_source(matrix, claim)

    return make


def tensor_of(*elements: float) -> Make:
    """A small matrix of nothing but these elements, over and over."""
    return lambda claim: as_source(np.resize(np.array(elements), fit(*_FEW, claim)), claim)


def tensor_of_subnormals(claim: Claim) -> Coded:
    """A small matrix of subnormals of the source, from the largest down, both signs."""
    largest_one = 2.0 ** (1 - format_named(claim.source).bias) * (1 - 2.0 ** -format_named(claim.source).mantissa)
    return tensor_of(*(np.linspace(-1, 1, 19) * largest_one))(claim)


def tensor_amax(step: int) -> Make:
    """A small matrix whose amax lies so many places of the source from ``bound``."""

    def make(claim: Claim) -> Coded:
        beside = near(np.array([bound_of(claim)]), format_named(claim.source))
        return tensor_with(float(beside[step + 1]), at=-1)(claim)

    return make


# --- which claims ----------------------------------------------------------------------------------------------------


def divides(rows: int, columns: int) -> Applies:
    """Whether a claim's blocks divide that shape."""
    return lambda claim: (blocks_of(claim) or TOKEN).divide(rows, columns)


def has_blocks_of_columns(claim: Claim) -> bool:
    """Where a matrix without columns has no block either: otherwise a block without elements has no amax."""
    blocks = blocks_of(claim)
    return blocks is not None and blocks.columns > 0


def shares_rows(claim: Claim) -> bool:
    """Whether what comes out of a row depends on others."""
    recipe = recipe_of(claim)
    return recipe is not None and not recipe.by_rows


def shares_a_tensor(claim: Claim) -> bool:
    """Whether anything is computed of the whole tensor: one block's contents then change all the others."""
    recipe = recipe_of(claim)
    return recipe is not None and (recipe.blocks == TENSOR or "tensor_amax" in operands_of(recipe))


def local(claim: Claim) -> bool:
    """Whether each block stands for itself."""
    return not shares_a_tensor(claim)
