"""The vocabulary in which faults of a product's scales and zero points are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.recipe import TENSOR
from narrowgauge.reference.fast_codec import cast, decode_values, to_float32
from narrowgauge.reference.faults.product_ways import (
    ROWS,
    SIDES,
    Grid,
    Way,
    Ways,
    codes_of,
    has_blocks_along_k,
    in_operands,
    is_turned,
    of_side,
    one,
    other_terms,
    read_by,
    reader_of,
    recipe_of,
    taking,
    with_given,
    with_terms,
)
from narrowgauge.reference.matmul.multiplying import Multiplying, Terms
from narrowgauge.reference.policies import resolve


def blocks(change: Callable[[Grid], Grid], operands: tuple[str, ...] = SIDES) -> Ways:
    """Blocks along K are read by other scales. ``change`` gives a matrix [rows, blocks] of the same shape."""

    def edit(names: tuple[str, ...]) -> Callable[[Multiplying, str], Multiplying | None]:
        def edited(multiplying: Multiplying, side: str) -> Multiplying | None:
            recipe = recipe_of(multiplying, side)
            if recipe is None or not has_blocks_along_k(multiplying, side):
                return None
            if len(names) > 1 and "zero_point" not in recipe.given_to_reader(codes_of(multiplying, side)):
                return None
            changed = of_side(multiplying, side, names, lambda v: Coded(v.format, change(v.data)))
            return taking(multiplying, changed)

        return edited

    def ways(multiplying: Multiplying) -> Iterator[Way]:
        yield from in_operands(edit(("scale",)), operands)(multiplying)
        for way in in_operands(edit(("scale", "zero_point")), operands)(multiplying):
            yield replace(way, note=f"{way.note}, zero points too")

    return ways


def rows(change: Callable[[Grid], Grid]) -> Ways:
    """Rows of an operand are read by scales of others. ``change`` gives a matrix [rows, blocks] of the same shape."""
    return in_operands(lambda m, side: _other_rows(m, side, change))


def _other_rows(multiplying: Multiplying, side: str, change: Callable[[Grid], Grid]) -> Multiplying | None:
    recipe = recipe_of(multiplying, side)
    if recipe is None:
        return None
    down = recipe.blocks.columns if is_turned(multiplying, side) else recipe.blocks.rows
    if not down:
        return None
    return taking(multiplying, of_side(multiplying, side, ("scale",), lambda v: Coded(v.format, change(v.data))))


def rows_of_the_first_tile(multiplying: Multiplying) -> Iterator[Way]:
    """Every tile of rows has the scales of the first."""
    for tile in ROWS:
        of_tile = partial(_from_the_start, tile=tile)
        for way in rows(of_tile)(multiplying):
            yield replace(way, note=f"{way.note}, tiles of {tile}")


def _from_the_start(grid: Grid, tile: int) -> Grid:
    return grid[np.arange(len(grid)) % tile]


def global_of_the_other(multiplying: Multiplying) -> Iterator[Way]:
    """The scale of one whole tensor stands for that of the other, too."""
    names = [f"{side}_global_scale" for side in SIDES]
    if any(
        recipe is None or "global_scale" not in recipe.given_to_reader("")
        for recipe in map(partial(recipe_of, multiplying), SIDES)
    ):
        return
    for own, other in (names, names[::-1]):
        yield Way(f"{own} for both", taking(multiplying, partial(_instead, own=own, other=other)))


def _instead(x: Input, own: str, other: str) -> Input:
    return with_given(x, {other: x.given[own]})


def axes_exchanged(multiplying: Multiplying) -> Iterator[Way]:
    """Scales of rows are taken by columns of the result, and those of columns by rows, from the start again past the
    last."""
    recipes = recipe_of(multiplying, "a"), recipe_of(multiplying, "b")
    if any(r is None or r.blocks.rows != 1 or r.blocks.columns != 0 for r in recipes) or multiplying.product.grouped:
        return

    def taken(x: Input) -> Input:
        a, b = x.given["a_scale"], x.given["b_scale"]
        of_a = Coded(b.format, np.resize(b.data, a.shape))
        return with_given(x, {"a_scale": of_a, "b_scale": Coded(a.format, np.resize(a.data, b.shape))})

    if recipes[0] is not None and recipes[1] is not None and recipes[0].scale_format == recipes[1].scale_format:
        yield Way("", taking(multiplying, taken))


#: what may stand behind a scale in memory
_BEHIND = {"zeros behind it": 0.0, "NaN behind it": np.nan}


def tensor_scale_taken_for_rows(multiplying: Multiplying) -> Iterator[Way]:
    """One scale is read as though each row of an operand had one."""

    def edit(behind: float) -> Callable[[Multiplying, str], Multiplying | None]:
        def edited(inner: Multiplying, side: str) -> Multiplying | None:
            recipe = recipe_of(inner, side)
            if recipe is None or recipe.blocks != TENSOR:
                return None

            def changed(terms: Terms) -> Terms:
                scale = getattr(terms, f"{side}_scale")
                first = np.arange(len(scale))[:, None] == 0
                return other_terms(terms, {f"{side}_scale": np.where(first, scale, behind)})

            return with_terms(inner, changed)

        return edited

    for note, behind in _BEHIND.items():
        for way in in_operands(edit(behind))(multiplying):
            yield replace(way, note=f"{way.note}, {note}")


def _floats(multiplying: Multiplying, side: str) -> bool:
    recipe = recipe_of(multiplying, side)
    return recipe is not None and recipe.scale_format == "float32"


def _float32(values: Grid) -> Coded:
    with np.errstate(all="ignore"):
        return Coded("float32", np.ascontiguousarray(values.astype(np.float32)).view(np.uint32))


def of_values(change: Callable[[Grid], Grid]) -> Ways:
    """Float32 scales are taken for others. ``change`` gives values of the same shape."""

    def edit(multiplying: Multiplying, side: str) -> Multiplying | None:
        if not _floats(multiplying, side):
            return None
        return taking(multiplying, of_side(multiplying, side, ("scale",), lambda v: _float32(change(to_float32(v)))))

    return in_operands(edit)


def scales_rounded(format_name: str) -> Ways:
    """Scales are rounded to a narrower format."""
    policy = resolve("ieee", format_name)
    return of_values(lambda values: to_float32(cast(_float32(values), format_name, policy)))


def scales_to_powers_of_two(rounded: Callable[[Grid], Grid]) -> Ways:
    """The exponents of scales are rounded by a function, and their signs kept."""

    def change(values: Grid) -> Grid:
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.copysign(np.exp2(rounded(np.log2(np.abs(values.astype(np.float64))))), values)
        return np.where(values == 0, 0, found)

    return of_values(change)


def _exponents_as_numbers(multiplying: Multiplying, side: str) -> Multiplying | None:
    recipe = recipe_of(multiplying, side)
    if recipe is None or recipe.scale_format != "float8_e8m0fnu":
        return None
    return scales_as(multiplying, side, lambda codes: codes.data.astype(np.float64))


def scales_as(multiplying: Multiplying, side: str, read: Callable[[Coded], Grid]) -> Multiplying:
    """Scales of an operand are read as other numbers: they come to its reader in float32."""
    reader, recipe = reader_of(multiplying, side), recipe_of(multiplying, side)
    assert recipe is not None
    other = replace(reader, recipe=replace(recipe, scale_format="float32"))
    wrong = taking(multiplying, of_side(multiplying, side, ("scale",), lambda v: _float32(read(v))))
    return read_by(wrong, side, other)


exponents_as_numbers = in_operands(_exponents_as_numbers)


def zero_points(change: Callable[[Grid], Grid], side: str = "b") -> Ways:
    """Zero points of an operand are taken for others."""
    return one(lambda multiplying: _other_zero_points(multiplying, side, change))


def zero_points_of_either(change: Callable[[Grid], Grid]) -> Ways:
    """The same in either operand, or in both."""
    return in_operands(lambda multiplying, side: _other_zero_points(multiplying, side, change))


def _other_zero_points(multiplying: Multiplying, side: str, change: Callable[[Grid], Grid]) -> Multiplying | None:
    recipe = recipe_of(multiplying, side)
    if recipe is None or "zero_point" not in recipe.given_to_reader(codes_of(multiplying, side)):
        return None

    def changed(value: Coded) -> Coded:
        numbers = change(value.data.view(np.int32)).astype(np.int32)
        return Coded(value.format, np.ascontiguousarray(numbers).view(np.uint32))

    return taking(multiplying, of_side(multiplying, side, ("zero_point",), changed))


def reading(change: Callable[[tuple[Any, ...]], tuple[Any, ...] | None], side: str = "b") -> Ways:
    """Other steps from a code of an operand to its value, or None where these have none to change."""

    def edit(multiplying: Multiplying) -> Multiplying | None:
        reader, recipe = reader_of(multiplying, side), recipe_of(multiplying, side)
        element = None if recipe is None else change(recipe.reader.element)
        if recipe is None or element is None:
            return None
        wrong = replace(recipe, reader=replace(recipe.reader, element=element))
        return read_by(multiplying, side, replace(reader, recipe=wrong))

    return one(edit)


def _sums_over(kept: Callable[[int, int], Grid]) -> Callable[[Multiplying, int], Multiplying | None]:
    """Sums of b's rows, which the zero points of a are multiplied by, are taken over some places of K alone."""

    def edit(multiplying: Multiplying, tile: int) -> Multiplying | None:
        reader, recipe = multiplying.a, multiplying.a.recipe
        if recipe is None or "zero_point" not in recipe.given_to_reader(multiplying.source):
            return None

        def received(x: Coded) -> Coded:
            zero = decode_values(given_with(x)["zero_point"])
            added = np.where(kept(x.shape[1], tile), 0.0, zero)
            return Input("float32", _float32(decode_values(x) + added).data, given_with(x))

        return replace(multiplying, a=replace(reader, received=(*reader.received, received)))

    return edit


row_sums_of_the_last_tile = _sums_over(lambda depth, tile: np.arange(depth) >= (depth - 1) // tile * tile)
row_sums_of_whole_tiles = _sums_over(lambda depth, tile: np.arange(depth) < depth // tile * tile)


def _less_last(element: tuple[Any, ...]) -> tuple[Any, ...] | None:
    less = ("sub", "zero_point")
    if less not in element or element[-1] == less:
        return None
    return (*(step for step in element if step != less), less)


def _without_offset(element: tuple[Any, ...]) -> tuple[Any, ...] | None:
    kept = tuple(s for s in element if not (isinstance(s, tuple) and s[0] == "sub" and isinstance(s[1], float | int)))
    return None if kept == element else kept


def _offset_lower(element: tuple[Any, ...]) -> tuple[Any, ...] | None:
    lower = tuple(("sub", 7.0) if step == ("sub", 8.0) else step for step in element)
    return None if lower == element else lower


zero_point_not_scaled, offset_left_out = reading(_less_last), reading(_without_offset)
offset_one_lower = reading(_offset_lower)
