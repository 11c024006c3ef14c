"""The vocabulary in which faults of a product's groups, experts, layouts, tails and bias are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.product import EXPERTS, GROUP_INDEX, B
from narrowgauge.reference.faults.product_ways import (
    Grid,
    Way,
    Ways,
    finishing,
    is_turned,
    one,
    recipe_of,
    taking,
    with_codes,
    with_given,
)
from narrowgauge.reference.interval import Interval
from narrowgauge.reference.matmul.call import experts_of
from narrowgauge.reference.matmul.multiplying import Multiplying

# --- groups of K -----------------------------------------------------------------------------------------------------


def groups(index: Callable[[Grid, int], Grid]) -> Ways:
    """Each k of b has the scale of another group. ``index`` is given that of each k, and how many k share one."""
    return one(lambda multiplying: _regrouped(multiplying, index))


def groups_of_the_tile(multiplying: Multiplying, tile: int) -> Multiplying | None:
    """The group is looked up by the place in a tile."""
    return _regrouped(multiplying, lambda index, each: index[np.arange(index.size) % tile])


def _regrouped(multiplying: Multiplying, index: Callable[[Grid, int], Grid]) -> Multiplying | None:
    recipe = recipe_of(multiplying, "b")
    if recipe is None or not is_turned(multiplying, "b") or not recipe.blocks.rows:
        return None
    each = recipe.blocks.rows
    single = replace(recipe, blocks=replace(recipe.blocks, rows=1, ragged=False))
    product = replace(multiplying.product, b=replace(multiplying.product.b, indexed=False))

    def taken(x: Input) -> Input:
        depth = x.shape[1]
        named = x.given.get(f"b_{GROUP_INDEX}")
        right = np.arange(depth) // each if named is None else named.data.view(np.int32).ravel()
        other = np.clip(index(right, each), 0, -(-depth // each) - 1)
        beside = {n: v for n, v in x.given.items() if n in ("b_scale", "b_zero_point") and v.shape[0] > 1}
        return with_given(x, {n: Coded(v.format, v.data[other]) for n, v in beside.items()})

    wrong = replace(multiplying, product=product, b=replace(multiplying.b, recipe=single))
    return taking(wrong, taken)


def indexed(ways: Ways) -> Ways:
    """For products alone whose groups of K are named one by one."""
    return lambda multiplying: ways(multiplying) if multiplying.product.b.indexed else iter(())


def _sorted_a(multiplying: Multiplying) -> Multiplying | None:
    """Columns of a are sorted by the group of each k, and rows of b are not."""
    if not multiplying.product.b.indexed:
        return None

    def taken(x: Input) -> Input:
        order = np.argsort(x.given[f"b_{GROUP_INDEX}"].data.view(np.int32).ravel(), kind="stable")
        return Input(x.format, np.ascontiguousarray(x.data[:, order]), x.given)

    return taking(multiplying, taken)


permuted_one_way = one(_sorted_a)


# --- experts ---------------------------------------------------------------------------------------------------------


def _with_experts(multiplying: Multiplying, change: Callable[[Grid, int], Grid]) -> Multiplying:
    def taken(x: Input) -> Input:
        experts, count = x.given[EXPERTS].data.view(np.int32).ravel(), experts_of(multiplying.product, x.given)
        other = np.asarray(change(experts, count), np.int32)
        return with_given(x, {EXPERTS: Coded("int32", np.ascontiguousarray(other[None]).view(np.uint32))})

    return taking(multiplying, taken)


def experts(change: Callable[[Grid, int], Grid], note: str = "") -> Ways:
    """Rows belong to other experts. ``change`` is given that of each row, and how many there are."""

    def ways(multiplying: Multiplying) -> Iterator[Way]:
        if multiplying.product.grouped:
            yield Way(note, _with_experts(multiplying, change))

    return ways


def expert_of_the_tile(multiplying: Multiplying, tile: int) -> Multiplying | None:
    """Rows of a tile are multiplied by the matrix of the tile's first."""
    if not multiplying.product.grouped:
        return None
    return _with_experts(multiplying, lambda experts, count: experts[np.arange(experts.size) // tile * tile])


def scales_of_experts(change: Callable[[Grid, int], Grid]) -> Ways:
    """Matrices of experts are read by the scales of other experts."""

    def edit(multiplying: Multiplying) -> Multiplying | None:
        recipe = recipe_of(multiplying, "b")
        if recipe is None or not multiplying.product.grouped or not recipe.blocks.rows:
            return None

        def taken(x: Input) -> Input:
            count, scale = experts_of(multiplying.product, x.given), x.given["b_scale"]
            other = np.asarray(change(np.arange(count), count), np.intp)
            by_expert = scale.data.reshape(count, -1, scale.shape[1])[other]
            return with_given(x, {"b_scale": Coded(scale.format, by_expert.reshape(scale.shape))})

        return taking(multiplying, taken)

    return one(edit)


def _rows_as_sorted(multiplying: Multiplying) -> Multiplying | None:
    """Rows of the result stand in the order of their experts."""
    if not multiplying.product.grouped:
        return None

    def left(found: Interval, x: Input) -> Interval:
        experts = x.given[EXPERTS].data.view(np.int32).ravel()
        return with_codes(found, lambda codes: codes[np.argsort(experts, kind="stable")])

    return finishing(multiplying, left)


rows_in_order_of_experts = one(_rows_as_sorted)


# --- places ----------------------------------------------------------------------------------------------------------


def _other_way(multiplying: Multiplying) -> Multiplying | None:
    """b is read by columns where it is stored by rows, or the reverse; the matrices of experts one by one."""

    def taken(x: Input) -> Input:
        b, count = x.given[B], experts_of(multiplying.product, x.given)
        by_expert = b.data.reshape(count, -1)
        rows, columns = b.shape[0] // count, b.shape[1]
        other = np.transpose(by_expert.reshape(count, columns, rows), (0, 2, 1))
        return with_given(x, {B: Coded(b.format, np.ascontiguousarray(other).reshape(b.shape))})

    return taking(multiplying, taken)


def _stored_by_columns(multiplying: Multiplying) -> Multiplying | None:
    return finishing(multiplying, lambda found, x: with_codes(found, lambda codes: codes.T.reshape(codes.shape)))


def _turned(matrix: Grid, tile: int) -> Grid:
    """Each whole square tile transposed, and what is left as it is."""
    made = matrix.copy()
    for row in range(0, matrix.shape[0] - tile + 1, tile):
        for column in range(0, matrix.shape[1] - tile + 1, tile):
            at = slice(row, row + tile), slice(column, column + tile)
            made[at] = matrix[at].T
    return made


def weight_turned(multiplying: Multiplying, tile: int) -> Multiplying:
    """Square tiles of b are read by columns."""

    def taken(x: Input) -> Input:
        return with_given(x, {B: Coded(x.given[B].format, _turned(x.given[B].data, tile))})

    return taking(multiplying, taken)


def result_turned(multiplying: Multiplying, tile: int) -> Multiplying:
    """Square tiles of the result are stored by columns."""
    return finishing(multiplying, lambda found, x: with_codes(found, lambda codes: _turned(codes, tile)))


weight_by_columns, result_by_columns = one(_other_way), one(_stored_by_columns)
