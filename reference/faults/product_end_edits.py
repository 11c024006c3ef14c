"""The vocabulary in which faults of a product's tails and bias are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.product import BIAS
from narrowgauge.reference.fast_codec import cast, decode_values
from narrowgauge.reference.faults.product_ways import (
    ROWS,
    SIDES,
    TILES,
    Grid,
    Way,
    Ways,
    both,
    finishing,
    in_result_type,
    one,
    other_terms,
    taking,
    with_codes,
    with_given,
    with_terms,
)
from narrowgauge.reference.interval import Interval
from narrowgauge.reference.matmul.multiplying import F64, Ends, Multiplying, Terms
from narrowgauge.reference.matmul.reading import terms_by_expert
from narrowgauge.reference.matmul.run import multiplied
from narrowgauge.reference.policies import resolve


def tail_left_out(multiplying: Multiplying, tile: int) -> Multiplying:
    """Nothing of K behind the last whole tile is multiplied."""

    def change(terms: Terms) -> Terms:
        depth = terms.a.shape[1]
        kept = np.arange(depth) < depth - depth % tile
        return replace(terms, a=np.where(kept, terms.a, 0.0), b=np.where(kept, terms.b, 0.0))

    return with_terms(multiplying, change)


def tail_reads_on(multiplying: Multiplying, tile: int) -> Multiplying | None:
    """In the last tile of K rows of both operands go on with what stands behind them."""
    return _reading_on(multiplying, tile, ("a", "b"))


def padding_is_nan(multiplying: Multiplying) -> Iterator[Way]:
    """Zeros meet NaN in the last tile of K: everywhere, or where an operand that is not masked goes on with it."""
    for tile in TILES:
        yield Way(f"tiles of {tile}", replace(multiplying, biased=(*multiplying.biased, _all_nan(tile))))
        for side in SIDES:
            wrong = _reading_on(multiplying, tile, (side,))
            if wrong is not None:
                yield Way(f"tiles of {tile}, what follows in {side}", wrong)


def _all_nan(tile: int) -> Callable[[Ends, Terms], Ends]:
    def change(ends: Ends, terms: Terms) -> Ends:
        spoilt = np.full(ends[0].shape, np.nan)
        return (spoilt, spoilt) if terms.a.shape[1] % tile else ends

    return change


def _reading_on(multiplying: Multiplying, tile: int, sides: tuple[str, ...]) -> Multiplying | None:
    """K is filled up to whole tiles: of some operands with what stands behind each row in memory, else with zeros."""
    product = multiplying.product
    if not (product.a.by_rows and product.b.by_rows) or product.grouped:
        return None

    def change(terms: Terms) -> Terms:
        more = -terms.a.shape[1] % tile
        longer = {side: _longer(getattr(terms, side), more, side in sides) for side in SIDES}
        opened = {f"{side}_open": getattr(terms, f"{side}_open") for side in SIDES}
        opened = {name: value if value is None else _longer(value, more, False) for name, value in opened.items()}
        ends = (*terms.ends[:-1], *(last + more for last in terms.ends[-1:]))
        return other_terms(terms, {**longer, **opened, "ends": ends})

    return with_terms(multiplying, change)


def _longer(matrix: F64, more: int, reads_on: bool) -> F64:
    """More columns: what stands behind each row, zeros behind the last; or zeros."""
    rows, columns = matrix.shape
    memory = np.concatenate([matrix.ravel(), np.zeros(more)])
    behind = memory[(np.arange(rows)[:, None] + 1) * columns + np.arange(more)] if reads_on else np.zeros((rows, more))
    return np.concatenate([matrix, behind], axis=1)


def left_out(axis: int) -> Callable[[Multiplying, int], Multiplying]:
    """Nothing is written of an axis of the result behind the last whole tile, where there is one."""

    def edit(multiplying: Multiplying, tile: int) -> Multiplying:
        def change(codes: Grid) -> Grid:
            size = codes.shape[axis]
            written = np.arange(size) < (size - size % tile or size)
            return np.where(np.expand_dims(written, 1 - axis), codes, np.zeros_like(codes))

        return finishing(multiplying, lambda found, x: with_codes(found, change))

    return edit


def spilt(multiplying: Multiplying) -> Iterator[Way]:
    """The last tile of columns runs into the next row, with the zeros of columns that there are not: of all rows, or
    of those that are written in one tile with the row before."""
    for tile in ROWS:
        for rows in (0, 16, 32, 64):
            of = f"tiles of {rows} rows and {tile} columns" if rows else f"tiles of {tile} columns"
            yield Way(of, finishing(multiplying, _spill(tile, rows)))


def _spill(tile: int, rows: int) -> Callable[[Interval, Input], Interval]:
    def change(codes: Grid) -> Grid:
        made, columns = codes.copy(), codes.shape[1]
        hit = np.arange(len(codes)) % rows > 0 if rows else np.arange(len(codes)) > 0
        over = -columns % tile
        made[hit, : over if over < columns else 0] = 0
        return made

    return lambda found, x: with_codes(found, change)


def _without(place: int) -> Callable[[Multiplying], Multiplying]:
    """One place of K is not multiplied."""

    def change(terms: Terms) -> Terms:
        a = terms.a.copy()
        a[:, place : place + 1 or None] = 0
        return replace(terms, a=np.where(np.isfinite(terms.a), a, terms.a))

    return lambda multiplying: with_terms(multiplying, change)


def one_k_left_out(multiplying: Multiplying) -> Iterator[Way]:
    """The first place of K is not multiplied, or the last."""
    yield Way("the first", _without(0)(multiplying))
    yield Way("the last", _without(-1)(multiplying))


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


def _scaled_in_type(multiplying: Multiplying) -> Multiplying | None:
    """The sum is rounded to the type of the result, the bias added there, and what comes of it scaled."""
    if multiplying.product.bias != "wide" or multiplying.product.scaled != "sum":
        return None

    def change(ends: Ends, terms: Terms) -> Ends:
        assert terms.bias is not None
        total = in_result_type(multiplying, in_result_type(multiplying, terms.a @ terms.b.T) + terms.bias)
        found = total * terms.a_scale[:, :1] * terms.b_scale[:, :1].T - terms.bias
        return found, found

    return replace(multiplying, sums=(*multiplying.sums, change))


bias_scaled = both(_bias_as(_scaled), one(_scaled_in_type))
bias_by_rows = _bias_as(lambda terms, bias: np.resize(bias, len(terms.a))[:, None])


def _rounded_before(multiplying: Multiplying) -> Multiplying | None:
    """The sum is rounded to the type of the result before the bias is added."""
    if multiplying.product.bias != "wide":
        return None

    def change(ends: Ends, terms: Terms) -> Ends:
        return in_result_type(multiplying, ends[0]), in_result_type(multiplying, ends[1])

    return replace(multiplying, sums=(*multiplying.sums, change))


def _added_wide(multiplying: Multiplying) -> Multiplying | None:
    """The bias is added before the sum is rounded."""
    product = multiplying.product
    return replace(multiplying, product=replace(product, bias="wide")) if product.bias == "narrow" else None


bias_after_rounding, bias_before_rounding = one(_rounded_before), one(_added_wide)


def bias_of_the_first_tile(multiplying: Multiplying, tile: int) -> Multiplying | None:
    """Each tile of columns has the bias of the first."""
    if not multiplying.product.bias:
        return None

    def change(terms: Terms) -> Terms:
        bias = terms.bias
        return terms if bias is None else replace(terms, bias=bias[np.arange(len(bias)) % tile])

    return with_terms(multiplying, change)


# --- NaN -------------------------------------------------------------------------------------------------------------


def _skipping(multiplying: Multiplying) -> Multiplying | None:
    """Terms in which either factor is 0 are no terms. Whole numbers have no special that this could lose."""
    if format_named(multiplying.format).family == "integer":
        return None

    def left(found: Interval, x: Input) -> Interval:
        plain = multiplied(with_terms(replace(multiplying, received=(), after=()), _finite), x)["codes"]
        special = np.zeros(plain.low.shape)
        for rows, terms in terms_by_expert(multiplying, x):
            special[rows] = _specials(terms)
        wide = Coded("float64", np.ascontiguousarray(special).view(np.uint64))
        codes = multiplying.rounding.run(wide)["codes"].data
        kept = [Coded(e.format, np.where(special == 0, e.data, codes)) for e in (plain.low, plain.high)]
        return Interval(*kept)

    return finishing(multiplying, left)


def _finite(terms: Terms) -> Terms:
    a, b = (np.where(np.isfinite(m), m, 0.0) for m in (terms.a, terms.b))
    return replace(terms, a=a, b=b)


def _specials(terms: Terms) -> F64:
    """The sum of terms that are not finite and have no factor of 0; 0 where there are none."""
    found = np.zeros((len(terms.a), len(terms.b)))
    for k in np.flatnonzero(~(np.isfinite(terms.a).all(axis=0) & np.isfinite(terms.b).all(axis=0))):
        a, b = terms.a[:, k, None], terms.b[None, :, k]
        with np.errstate(invalid="ignore"):
            term = np.where((a == 0) | (b == 0), 0.0, a * b)
            found = found + np.where(np.isfinite(term), 0.0, term)
    return found


zeros_skipped = one(_skipping)
