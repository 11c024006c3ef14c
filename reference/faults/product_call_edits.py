"""The vocabulary in which faults of a product's groups, experts, layouts, tails and bias are written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.product import BIAS, EXPERTS, GROUP_INDEX, B
from narrowgauge.reference.fast_codec import cast, decode_values
from narrowgauge.reference.faults.product_ways import (
    Grid,
    Ways,
    finishing,
    is_turned,
    one,
    recipe_of,
    taking,
    with_given,
    with_terms,
)
from narrowgauge.reference.interval import Interval
from narrowgauge.reference.matmul.call import experts_of
from narrowgauge.reference.matmul.multiplying import F64, Ends, Multiplying, Terms
from narrowgauge.reference.policies import resolve

#: tiles of K, and of rows or columns of the result
TILES, ROWS = (16, 32, 64, 128, 256), (8, 16, 32, 64, 128)


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


def experts(change: Callable[[Grid, int], Grid]) -> Ways:
    """Rows belong to other experts. ``change`` is given that of each row, and how many there are."""
    return one(lambda m: _with_experts(m, change) if m.product.grouped else None)


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
        return _ends(found, lambda codes: codes[np.argsort(experts, kind="stable")])

    return finishing(multiplying, left)


rows_in_order_of_experts = one(_rows_as_sorted)


# --- places ----------------------------------------------------------------------------------------------------------


def _ends(found: Interval, change: Callable[[Grid], Grid]) -> Interval:
    low, high = (Coded(e.format, np.ascontiguousarray(change(e.data))) for e in (found.low, found.high))
    return Interval(low, high)


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
    return finishing(multiplying, lambda found, x: _ends(found, lambda codes: codes.T.reshape(codes.shape)))


weight_by_columns, result_by_columns = one(_other_way), one(_stored_by_columns)


# --- tails -----------------------------------------------------------------------------------------------------------


def tail_left_out(multiplying: Multiplying, tile: int) -> Multiplying:
    """Nothing of K behind the last whole tile is multiplied."""

    def change(terms: Terms) -> Terms:
        depth = terms.a.shape[1]
        kept = np.arange(depth) < depth - depth % tile
        return replace(terms, a=np.where(kept, terms.a, 0.0), b=np.where(kept, terms.b, 0.0))

    return with_terms(multiplying, change)


def tail_reads_on(multiplying: Multiplying, tile: int) -> Multiplying | None:
    """In the last tile of K rows of both operands go on with what stands behind them; 0 behind the last row."""
    if not (multiplying.product.a.by_rows and multiplying.product.b.by_rows):
        return None

    def change(ends: Ends, terms: Terms) -> Ends:
        more = -terms.a.shape[1] % tile
        foreign = _behind(terms.a, more) @ _behind(terms.b, more).T
        scaled = foreign * terms.a_scale[:, -1:] * terms.b_scale[:, -1:].T if terms.ends else foreign
        return ends[0] + scaled, ends[1] + scaled

    return replace(multiplying, sums=(*multiplying.sums, change))


def _behind(matrix: F64, count: int) -> F64:
    rows, columns = matrix.shape
    memory = np.concatenate([matrix.ravel(), np.zeros(count)])
    return memory[(np.arange(rows)[:, None] + 1) * columns + np.arange(count)]


def padding_is_nan(multiplying: Multiplying, tile: int) -> Multiplying:
    """Zeros meet NaN in the last tile of K."""

    def change(ends: Ends, terms: Terms) -> Ends:
        spoilt = np.full(ends[0].shape, np.nan)
        return (spoilt, spoilt) if terms.a.shape[1] % tile else ends

    return replace(multiplying, biased=(*multiplying.biased, change))


def left_out(axis: int) -> Callable[[Multiplying, int], Multiplying]:
    """Nothing is written of an axis of the result behind the last whole tile, where there is one."""

    def edit(multiplying: Multiplying, tile: int) -> Multiplying:
        def change(codes: Grid) -> Grid:
            size = codes.shape[axis]
            written = np.arange(size) < (size - size % tile or size)
            return np.where(np.expand_dims(written, 1 - axis), codes, np.zeros_like(codes))

        return finishing(multiplying, lambda found, x: _ends(found, change))

    return edit


def spilt(multiplying: Multiplying, tile: int) -> Multiplying:
    """The last tile of columns runs into the next row, with the zeros of columns that there are not."""

    def change(codes: Grid) -> Grid:
        flat, columns = codes.copy(), codes.shape[1]
        flat[1:, : min(columns, -columns % tile)] = 0
        return flat

    return finishing(multiplying, lambda found, x: _ends(found, change))


# --- bias ------------------------------------------------------------------------------------------------------------


def bias(change: Callable[[F64], F64]) -> Ways:
    """Another bias is added."""

    def edit(multiplying: Multiplying) -> Multiplying | None:
        if not multiplying.product.bias:
            return None

        def taken(x: Input) -> Input:
            old = x.given[BIAS]
            wide = np.ascontiguousarray(change(decode_values(old))).view(np.uint64)
            return with_given(x, {BIAS: cast(Coded("float64", wide), old.format, resolve("ieee", old.format))})

        return taking(multiplying, taken)

    return one(edit)


def _bias_as(change: Callable[[Terms, F64], F64]) -> Ways:
    """A matrix is added in place of a row."""

    def edit(multiplying: Multiplying) -> Multiplying | None:
        if not multiplying.product.bias or multiplying.product.grouped:
            return None

        def changed(terms: Terms) -> Terms:
            return terms if terms.bias is None else replace(terms, bias=change(terms, terms.bias))

        return with_terms(multiplying, changed)

    return one(edit)


def _scaled(terms: Terms, bias: F64) -> F64:
    return bias * terms.a_scale[:, :1] * terms.b_scale[:, :1].T if terms.ends else bias


bias_scaled = _bias_as(_scaled)
bias_by_rows = _bias_as(lambda terms, bias: np.resize(bias, len(terms.a))[:, None])


def bias_added(now: str, then: str) -> Ways:
    """A bias that is added in one way is added in the other."""

    def edit(multiplying: Multiplying) -> Multiplying | None:
        product = multiplying.product
        return replace(multiplying, product=replace(product, bias=then)) if product.bias == now else None

    return one(edit)
