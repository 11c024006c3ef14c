"""Calls of products that show mistakes: sums that every order makes exactly, odd shapes, scales of each block its own.

No two rows, columns or blocks are alike, nothing is square, and every place of K is used by some row. In an exact call
each row of a is given elements as long as the sum of its magnitudes stays below what the accumulator holds: whatever
the order, no partial sum is rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from math import lcm

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.operations import Claim
from narrowgauge.contracts.product import Product
from narrowgauge.contracts.recipe import Blocks
from narrowgauge.reference.behaviour import multiplying_of
from narrowgauge.reference.kv.arithmetic import F64, grid
from narrowgauge.reference.matmul.call import recipe_of_operand
from narrowgauge.reference.matmul.case_parts import Sizes, drawn, whole_parts, with_specials, zero_codes
from narrowgauge.reference.matmul.kinds import DEPTH, KINDS, Kind, Name
from narrowgauge.reference.matmul.memory import packings, to_memory
from narrowgauge.reference.matmul.multiplying import Multiplying, Terms
from narrowgauge.reference.matmul.reading import terms_by_expert
from narrowgauge.reference.matmul.run import multiplied, prescaled

#: the share of the budget that is used; significant bits where stretches are added up under scales
_SHARE, _OF_STRETCHES = 0.98, 17
#: rows of b in blocks of several rows: one block whole, and one that is not
_RAGGED_ROWS = 200


@dataclass(frozen=True)
class Shape:
    """What a call looks like. Columns grow to a whole number of blocks, or of words of packed codes."""

    kind: Name
    rows: int = 23
    columns: int = 40
    blocks: int = 3  #: how many blocks along K; where there are none, K is ``depth``
    depth: int = DEPTH
    experts: int = 3
    seed: int = 0


def call(shape: Shape) -> Callable[[Claim], Coded]:
    """The input of a claim."""
    return lambda claim: call_of(multiplying_of(claim), shape)


def suits(shape: Shape) -> Callable[[Claim], bool]:
    """Whether a claim can have such a call."""

    return lambda claim: _has(multiplying_of(claim), shape)


@cache
def _has(multiplying: Multiplying, shape: Shape) -> bool:
    """Whether there is such a call. A plan asks it once for each device, and the answer costs a product."""
    try:
        to_memory(multiplying.product, call_of(multiplying, shape))
    except BadInput:
        return False
    return True


@lru_cache(maxsize=256)
def call_of(multiplying: Multiplying, shape: Shape) -> Input:
    """A call of that kind. What is called exact is checked to be so before it is given away.

    Raises ``BadInput`` where a product has no such call.
    """
    kind = KINDS[shape.kind]
    _check_suited(multiplying, kind, shape)
    x = drawn(multiplying, kind, _sizes(multiplying, shape), shape.seed)
    if kind.exact or kind.name == "scaled":
        x = x if kind.drawn else _within_budget(multiplying, x, kind)
    if kind.exact:
        result = multiplied(multiplying, x)["codes"]
        if not result.exact:
            raise BadInput(f"{multiplying.product.name}: no exact call of kind {kind.name!r}")
    return with_specials(multiplying, x) if kind.name == "specials" else x


def _check_suited(multiplying: Multiplying, kind: Kind, shape: Shape) -> None:
    """Raise ``BadInput`` for a kind that would say nothing of a product."""
    accumulator, product = multiplying.accumulator, multiplying.product
    by_blocks = product.scaled in ("unit", "stretches")
    pointless = {
        "full": accumulator.exact_bits <= KINDS["exact"].bits,
        "beyond": accumulator.exact_bits <= KINDS["exact"].bits or by_blocks,
        "lost": accumulator.exact_bits <= KINDS["exact"].bits or by_blocks,
        "limit": by_blocks,
        "scaled": not (product.a.recipe or product.b.recipe) or product.scaled in ("unit", "operands"),
        "promoted": not accumulator.promote_every or by_blocks,
        "extreme": product.scaled != "unit" or not _has_exponents(product),
        "specials": not shape.rows,
    }
    if pointless.get(kind.name, False):
        raise BadInput(f"{product.name}: a call of kind {kind.name!r} says nothing of it")
    if kind.drawn:
        whole_parts(multiplying)  # raises where another file cannot draw them


def _has_exponents(product: Product) -> bool:
    """Whether scales are powers of two alone."""
    recipes = [recipe_of_operand(operand) for operand in (product.a, product.b)]
    return all(recipe is not None and recipe.scale_format == "float8_e8m0fnu" for recipe in recipes)


def _sizes(multiplying: Multiplying, shape: Shape) -> Sizes:
    """Odd sizes that blocks divide, where they must."""
    product = multiplying.product
    along, across = [1], [1]
    for operand in (product.a, product.b):
        recipe = recipe_of_operand(operand)
        blocks = Blocks(1, 1) if recipe is None else recipe.blocks
        of_k, of_rows = (blocks.columns, blocks.rows) if operand.by_rows else (blocks.rows, blocks.columns)
        along.append(1 if blocks.ragged else of_k or 1)
        if operand is product.b and not (blocks.ragged and not product.grouped):
            across.append(of_rows or 1)
    word = 8 if packings(product) else 1
    unit, each = lcm(*along), lcm(*across, word)
    depth = shape.depth if unit == 1 else unit * max(shape.blocks, 96 // unit)
    depth = max(depth, 2 * multiplying.accumulator.promote_every + 21) if shape.kind == "promoted" else depth
    columns = -(-max(shape.columns, 1) // each) * each
    ragged = _has_ragged_rows(product) and not product.grouped
    return Sizes(
        shape.rows,
        max(columns, _RAGGED_ROWS) if ragged else columns,
        -(-depth // word) * word,
        shape.experts if product.grouped else 1,
    )


def _has_ragged_rows(product: Product) -> bool:
    """Whether b's blocks hold several rows, and the last may be smaller."""
    recipe = recipe_of_operand(product.b)
    return recipe is not None and recipe.blocks.ragged and product.b.by_rows and recipe.blocks.rows > 1


def _within_budget(multiplying: Multiplying, x: Input, kind: Kind) -> Input:
    """The same with zeros in a where the sums of magnitudes would pass what is exact in any order."""
    product, data = multiplying.product, x.data.copy()
    most = min(kind.bits, _OF_STRETCHES) if product.scaled == "stretches" else kind.bits
    bits = min(multiplying.accumulator.exact_bits, most)
    zero = zero_codes(multiplying, x)
    window = multiplying.accumulator.promote_every if kind.name == "promoted" else 0
    for rows, terms in terms_by_expert(multiplying, x):
        kept = _kept(prescaled(terms) if product.scaled == "unit" else terms, _SHARE * 2.0**bits, rows, window)
        data[rows] = np.where(kept, data[rows], zero[rows])
    return replace(x, data=data)


def _kept(terms: Terms, limit: float, rows: npt.NDArray[np.intp], window: int) -> npt.NDArray[np.bool_]:
    """Which elements of each row stay: in strides over all of K, each row beginning elsewhere, while there is room.

    Magnitudes count in the units of their row and of b's; in windows of K, where there are any, each has room of its
    own.
    """
    own, other = (np.where(np.isinf(unit := grid(side)), 1.0, unit) for side in (terms.a, terms.b))
    sizes: F64 = np.abs(terms.a) / own[:, None] * np.abs(terms.b / other[:, None]).max(axis=0, initial=0.0)
    count, depth = sizes.shape
    kept = np.zeros((count, depth), np.bool_)
    for first in range(0, depth, window or max(1, depth)):
        part = slice(first, first + (window or depth))
        length = sizes[:, part].shape[1]
        stride = next((s for s in range(int(length * 0.381966) | 1, 4 * length + 3, 2) if np.gcd(s, length) == 1), 1)
        order = (rows[:, None] * 29 + np.arange(length) * stride) % max(1, length)
        inside = np.cumsum(np.take_along_axis(sizes[:, part], order, 1), axis=1) <= limit
        np.put_along_axis(kept[:, part], order, inside, 1)
    return kept
