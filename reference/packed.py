"""Many blocks in one matrix, each with contents of its own: every special, every position, every amax, every tie.

A block that must come out in its own way stands beside blocks of plain numbers, which must not notice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from narrowgauge.contracts.coded import Coded, given_with
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.operations import Claim
from narrowgauge.contracts.recipe import OF_TENSOR, TENSOR, TOKEN
from narrowgauge.reference import contents
from narrowgauge.reference.behaviour import blocks_of, recipe_of
from narrowgauge.reference.codec import largest, unrestricted
from narrowgauge.reference.fast_codec import to_float32
from narrowgauge.reference.given import with_given
from narrowgauge.reference.landmarks import boundaries
from narrowgauge.reference.matrices import Make, Reals, as_source, bound_of, local, near
from narrowgauge.reference.quantize import block_values, statistics
from narrowgauge.reference.steps import named

#: elements along an axis of a block that takes the whole axis, at most; twice as many such a block may have
FREE = 128
#: blocks side by side, where they are not all in one row
ACROSS = 4
#: elements of a block that is too large for every place, amax and tie to have one
LARGE = 1024
#: elements for a tie: five values of the source, both signs
_MOST = 10
_ONE = Coded("float32", np.full((1, 1), 0x3F800000, "<u4"))

Given = Mapping[str, Coded]


@dataclass(frozen=True)
class Tiles:
    """How a claim's blocks are packed. ``across`` blocks stand side by side; 0 for all of them."""

    rows: int
    columns: int
    across: int

    @property
    def size(self) -> int:
        """Elements of a block."""
        return self.rows * self.columns

    def matrix(self, held: Sequence[Reals], filler: Callable[[int, int], Reals]) -> Reals:
        """Blocks [size] as a matrix; further blocks fill its last row up."""
        across = self.across or len(held)
        lacking = -len(held) % across
        stack = np.stack([*held, *(filler(self.size, k) for k in range(lacking))])
        blocks = stack.reshape(-1, across, self.rows, self.columns)
        return np.asarray(blocks.transpose(0, 2, 1, 3).reshape(-1, across * self.columns), np.float64)


def tiles_of(claim: Claim, whole: bool = False) -> Tiles:
    """Of a large block that may be cut, one row stands for it unless ``whole``."""
    blocks = blocks_of(claim) or TOKEN
    if blocks_of(claim) is None:  # nothing is known: a row of 128 has whole groups of every size in use
        return Tiles(1, 128, 1)
    columns = blocks.columns or min(FREE, max(1, 2 * FREE // (blocks.rows or FREE)))
    rows = blocks.rows or min(FREE, max(1, 2 * FREE // columns))
    if blocks.ragged and rows * columns > LARGE and not whole:
        return Tiles(1, columns, 0)
    return Tiles(rows, columns, 1 if not blocks.columns else ACROSS if blocks.rows else 0)


def small_and_local(claim: Claim) -> bool:
    """Whether blocks stand for themselves, and they, or what may stand for them, have few elements, but more than an
    amax on either side."""
    return local(claim) and 2 < tiles_of(claim).size <= LARGE


def large_and_local(claim: Claim) -> bool:
    """Whether blocks stand for themselves and have many elements."""
    return local(claim) and tiles_of(claim, whole=True).size > LARGE


def lanes(tiles: Tiles) -> list[int]:
    """Each place of a block. Of one with many rows: corners, middles of sides and middle, and where it is not large, a
    place in each column."""
    if tiles.size <= FREE:
        return list(range(tiles.size))
    rows, columns = (sorted({0, size // 2, size - 1}) for size in (tiles.rows, tiles.columns))
    each = range(tiles.columns if tiles.size <= LARGE else 0)
    found = {(r, c) for r in rows for c in columns} | {(c % tiles.rows, c) for c in each}
    return sorted(r * tiles.columns + c for r, c in found)


# --- ties ------------------------------------------------------------------------------------------------------------


def ties(claim: Claim, tiles: Tiles, factors: Sequence[float], own: Given) -> list[Reals]:
    """For each amax (the bound times a factor), blocks of every value of the source that is scaled to a tie of the
    destination, or beside one. ``own`` are the tensor's own numbers, where the recipe is given any.

    The scale of a block is asked of the recipe. Rounding on the way to the cast is at most 1.5 places of float32, so
    what reaches a tie exactly, or what stands next to it on either side, is within two places of the quotient.
    """
    source = format_named(claim.source)
    top = 2.0**source.bias
    amaxs = [float(near(np.array([min(bound_of(claim) * f, top)]), source, reach=0)[0]) for f in factors]
    targets = _midpoints(claim)
    # As many for each amax, whatever the scale: the amaxs then do not depend on what is given, but it on them.
    count = -(-_MOST * targets.size // (tiles.size - 2))
    found: list[Reals] = []
    for amax, by in zip(amaxs, _multipliers(claim, tiles, amaxs, own), strict=True):
        x = near(targets / by, source, reach=2) if np.isfinite(by) and by > 0 else np.zeros(0)
        x = x[x <= amax]
        found += _in_blocks(np.concatenate([x, -x]), tiles.size, amax, count)
    return found


def _midpoints(claim: Claim) -> Reals:
    fmt = format_named(claim.format)
    grid = unrestricted(np.arange(largest(fmt) + 3, dtype=np.int64), fmt)
    return (grid[1:] + grid[:-1]) / 2


def _in_blocks(x: Reals, n: int, amax: float, count: int) -> list[Reals]:
    """Elements, over and over, in so many blocks that begin with amax and -amax."""
    rest = np.resize(x if x.size else np.zeros(1), count * (n - 2))
    return [np.concatenate([[amax, -amax], part]) for part in rest.reshape(count, n - 2)]


def _multipliers(claim: Claim, tiles: Tiles, amaxs: Sequence[float], own: Given) -> Reals:
    """What the elements of blocks with these amaxes are multiplied by on their way to the cast, by the recipe."""
    recipe = recipe_of(claim)
    if recipe is None:
        return bound_of(claim) / np.array(amaxs)
    blocks = [_in_blocks(np.zeros(0), tiles.size, amax, 1)[0] for amax in amaxs]
    matrix = to_float32(as_source(tiles.matrix(blocks, _zeros), claim))
    with np.errstate(all="ignore"):
        seen = statistics(matrix, recipe)
        given = _for_blocks(claim, seen.grid, amaxs) | dict(own)
        context = block_values(seen, recipe, claim.format, claim.source, given)
        by = np.ones(seen.grid)
        for step in recipe.element[1:]:
            name, operands = named(step)
            if name not in ("mul", "div"):
                break
            operand = operands[0]
            value = np.asarray(context[operand] if isinstance(operand, str) else operand, np.float64)
            by = by * value if name == "mul" else by / value
    return by.ravel()[: len(amaxs)]


def _zeros(n: int, k: int) -> Reals:
    return np.zeros(n)


def _for_blocks(claim: Claim, grid: tuple[int, int], amaxs: Sequence[float]) -> dict[str, Coded]:
    """What a static recipe is given for blocks: the scale that makes amax the bound, and a zero point of 0."""
    scale = np.ones(grid, np.float32)
    scale.flat[: len(amaxs)] = np.array(amaxs, np.float32) / np.float32(bound_of(claim))
    return {"scale": Coded("float32", scale.view("<u4")), "zero_point": Coded("int32", np.zeros(grid, "<u4"))}


# --- cases -----------------------------------------------------------------------------------------------------------

Part = Callable[[Claim, Tiles, Given], list[Reals]]


def packed(*parts: Part, filler: Callable[[int, int], Reals] = contents.plain, whole: bool = False) -> Make:
    """A matrix of the blocks of several parts."""

    def made(claim: Claim, own: Given) -> Coded:
        tiles = tiles_of(claim, whole)
        return as_source(tiles.matrix([block for part in parts for block in part(claim, tiles, own)], filler), claim)

    return lambda claim: _under_own_numbers(claim, made)


def _under_own_numbers(claim: Claim, made: Callable[[Claim, Given], Coded]) -> Coded:
    """A matrix that is made for the tensor's own numbers that will be given with it.

    They depend on the amaxes alone, and ties on them: what is given with a first matrix is for the second.
    """
    recipe = recipe_of(claim)
    names = () if recipe is None else tuple(name for name in recipe.inputs if name in OF_TENSOR)
    own: Given = dict.fromkeys(names, _ONE)
    if names:
        given = given_with(with_given(claim, made(claim, own), None))
        own = {name: given[name] for name in names}
    return made(claim, own)


def _specials(claim: Claim, tiles: Tiles, own: Given) -> list[Reals]:
    return contents.with_plain(contents.specials(tiles.size, format_named(claim.source)))


def _outliers(claim: Claim, tiles: Tiles, own: Given) -> list[Reals]:
    return contents.outliers(tiles.size, lanes(tiles))


def _bad_lanes(claim: Claim, tiles: Tiles, own: Given) -> list[Reals]:
    bad = [contents.holding(tiles.size, place, value, place) for place in lanes(tiles) for value in (np.nan, np.inf)]
    return contents.with_plain(bad)


def _amaxes(exponents: Callable[[Claim], Iterable[int]]) -> Part:
    return lambda claim, tiles, own: [
        contents.scaled_by(tiles.size, float(amax), k)
        for k, amax in enumerate(contents.amaxes(claim, exponents(claim)))
    ]


def _ties(*factors: float) -> Part:
    return lambda claim, tiles, own: ties(claim, tiles, factors, own)


#: specials, one outlier in each place, few amaxes, the ties of two scales: what a smoke run has time for
few = packed(_specials, _outliers, _amaxes(contents.few_exponents), _ties(1.0, 1.3 * 2.0**-6))
large = packed(_specials, _outliers, whole=True)
bad_lanes = packed(_bad_lanes)
every_amax = packed(_amaxes(contents.every_exponent))
#: above and below the bound's own binade, powers of two and others; the last is beyond what a 16-bit float's ties need
every_tie = packed(_ties(2.0**-9, 8.0, 1.3, 1.999, 0.7 * 2.0**-6, 1.1 * 2.0**5, 1.5 * 2.0**-20), filler=_zeros)


def tensor_ties(factor: float) -> Make:
    """The ties of one amax in a matrix that shares its scale, or a part of it."""

    def made(claim: Claim, own: Given) -> Coded:
        if blocks_of(claim) == TENSOR:
            tiles, factors = Tiles(-(-(_MOST * _midpoints(claim).size + 2) // FREE), FREE, 1), [factor]
        else:
            tiles, factors = tiles_of(claim), [factor, factor * 0.7 * 2.0**-5]
        return as_source(tiles.matrix(ties(claim, tiles, factors, own), _zeros), claim)

    return lambda claim: _under_own_numbers(claim, made)


def scale_ties(factor: float) -> Make:
    """Blocks whose scales are values and ties of a narrow scale format, and what lies beside them.

    The first block's amax, the largest, makes the tensor's own scale 1 divided by ``factor``; where that is given, for
    the amax in the middle, as many blocks have that amax.
    """

    def make(claim: Claim) -> Coded:
        recipe, source, tiles = recipe_of(claim), format_named(claim.source), tiles_of(claim)
        assert recipe is not None
        stored = format_named(recipe.scale_format)
        top = float(unrestricted(np.array([largest(stored)]), stored)[0])
        most = float(near(np.array([bound_of(claim) * top * factor]), source, reach=0)[0])
        beside = near(bound_of(claim) * factor * boundaries(stored), source, reach=2)
        beside = beside[beside < most]
        amaxs = [*[most] * (1 + beside.size * bool(recipe.inputs)), *beside]
        held = [contents.scaled_by(tiles.size, amax, k) for k, amax in enumerate(amaxs)]
        return as_source(tiles.matrix(held, _zeros), claim)

    return make


def has_narrow_scales(claim: Claim) -> bool:
    """Whether scales are stored in a format of 8 bits with a mantissa."""
    recipe = recipe_of(claim)
    stored = None if recipe is None else format_named(recipe.scale_format)
    return stored is not None and stored.bits <= 8 and stored.mantissa > 0
