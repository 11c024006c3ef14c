"""The vocabulary in which faults of a product's tails and bias are written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.product import BIAS
from narrowgauge.reference.fast_codec import cast, decode_values
from narrowgauge.reference.faults.product_ways import (
    Grid,
    Ways,
    finishing,
    one,
    taking,
    with_codes,
    with_given,
    with_terms,
)
from narrowgauge.reference.matmul.multiplying import F64, Ends, Multiplying, Terms
from narrowgauge.reference.policies import resolve


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

        return finishing(multiplying, lambda found, x: with_codes(found, change))

    return edit


def spilt(multiplying: Multiplying, tile: int) -> Multiplying:
    """The last tile of columns runs into the next row, with the zeros of columns that there are not."""

    def change(codes: Grid) -> Grid:
        flat, columns = codes.copy(), codes.shape[1]
        flat[1:, : min(columns, -columns % tile)] = 0
        return flat

    return finishing(multiplying, lambda found, x: with_codes(found, change))


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
