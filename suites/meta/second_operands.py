# SPDX-License-Identifier: Apache-2.0
"""Operands of products, read by hand: what each code stands for, as an exact fraction, and its scale.

From the words of contracts/product.py and of the facts on engines; it shares nothing with reference/matmul. Formats
come from second_derivation, recipes from second_readers and second_matrices, packings from second_layouts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.product import Operand
from narrowgauge.suites.meta import second_readers
from narrowgauge.suites.meta.second_derivation import LAYOUTS, decode
from narrowgauge.suites.meta.second_layouts import SECOND
from narrowgauge.suites.meta.second_matrices import SHAPES

Array = npt.NDArray[Any]
#: a finite number; or an infinity or a NaN
Real = Fraction | float
Inputs = Mapping[str, Coded]
_ONE = Fraction(1)


@cache
def number(code: int, format: str) -> Real:
    """What a code stands for."""
    found = decode(code, format)
    if found.kind != "finite":
        return -float(found.kind) if found.negative else float(found.kind)
    return -found.magnitude if found.negative else found.magnitude


def numbers(coded: Coded) -> Array:
    """Of an array of codes, objects of the same shape."""
    found = [number(int(code), coded.format) for code in coded.data.ravel()]
    made = np.empty(len(found), object)
    made[:] = found
    return made.reshape(coded.shape)


def exponent(value: Real, format: str) -> int:
    """As a matrix unit sees it: subnormals have that of the least normal number."""
    if isinstance(value, float) or not value:
        return 0
    binade = value.numerator.bit_length() - value.denominator.bit_length()
    if abs(value) < Fraction(2) ** binade:
        binade -= 1
    return binade if LAYOUTS[format].is_integer else max(binade, 1 - LAYOUTS[format].bias)


@dataclass(frozen=True)
class Side:
    """One operand as [rows, K]. Only finite scales are of any use."""

    values: Array  #: objects: what enters the product
    format: str  #: as which it enters
    scales: Array  #: objects [rows, K]: what is still to be multiplied
    blocks: Array  #: [K]: which elements share a scale
    overall: Fraction = _ONE  #: a factor of the whole operand, beside its scales
    inverse: Fraction | None = None  #: where that factor is 1 / this, as stored


def unpacked(coded: Coded, layout: str, rows: int, columns: int) -> Coded:
    """A matrix [rows, columns] of codes out of its memory image."""
    image = coded.data.tobytes()
    place = SECOND[layout][0]
    bits = (LAYOUTS[coded.format].codes - 1).bit_length()
    made = np.zeros((rows, columns), np.uint8)
    for r in range(rows):
        for c in range(columns):
            for i in range(bits):
                byte, bit = place(r, c, i, rows, columns)
                made[r, c] |= (image[byte] >> bit & 1) << i
    return Coded(coded.format, made)


def side(operand: Operand, name: str, codes: Coded, inputs: Inputs, experts: int = 1) -> Side:
    """``name`` is "a" or "b"; ``codes`` its matrix, unpacked, as it is stored. ``experts``: so many below one another.

    Raises ``ValueError`` for a buffer whose shape is not that of the recipe's grid.
    """
    values = numbers(codes)
    if not operand.recipe:
        flat = np.full(values.shape, _ONE, object)
        return _turned(operand, Side(values, codes.format, flat, np.zeros(codes.shape[1], int)))
    rows, columns = _blocks(operand.recipe, values.shape, experts)
    own = {k[2:]: v for k, v in inputs.items() if k.startswith(f"{name}_") and k != f"{name}_group_index"}
    grid = -(-values.shape[0] // rows), -(-values.shape[1] // columns)
    spread = partial(_spread, block=(rows, columns), shape=values.shape, index=inputs.get(f"{name}_group_index"))
    for what in ("scale", "zero_point"):
        if what in own and own[what].shape != grid:
            raise ValueError(f"{name}_{what} is {own[what].shape}; the grid of {operand.recipe} is {grid}")
    if operand.enters:
        return _turned(operand, _wide(operand, codes, own, spread))
    values = values - spread(_zero_points(operand.recipe, own, grid))
    along = np.arange(values.shape[1 if operand.by_rows else 0]) // (columns if operand.by_rows else rows)
    made = Side(values * _unit(operand.recipe), codes.format, spread(numbers(own["scale"])), along)
    return _turned(operand, _with_global(operand.recipe, own, made))


def _turned(operand: Operand, made: Side) -> Side:
    if operand.by_rows:
        return made
    return Side(made.values.T, made.format, made.scales.T, made.blocks, made.overall, made.inverse)


def _blocks(recipe: str, shape: tuple[int, int], experts: int) -> tuple[int, int]:
    """Rows and columns that share a scale; the whole of a tensor is the whole of one expert's matrix."""
    known = SHAPES[recipe]
    return known.rows or shape[0] // experts, known.columns or shape[1]


def _spread(grid: Array, block: tuple[int, int], shape: tuple[int, int], index: Coded | None) -> Array:
    """What belongs to each element. ``index`` says the group of each row, where rows are along K."""
    down, across = np.arange(shape[0]) // block[0], np.arange(shape[1]) // block[1]
    if index is not None:
        down = index.data.ravel().astype(np.int64)
    return np.asarray(grid[np.ix_(down, across)])


def _wide(operand: Operand, codes: Coded, own: Inputs, spread: Any) -> Side:
    """Dequantized as the recipe's reader does it, and rounded to the format that enters."""
    beside = {n: (spread(v.data) if v.shape != (1, 1) else np.full(codes.shape, v.data)) for n, v in own.items()}
    made = np.empty(codes.shape, object)
    for at in np.ndindex(*codes.shape):
        stored = tuple((n, (int(v[at]), own[n].format)) for n, v in beside.items())
        made[at] = number(_read(operand.recipe, int(codes.data[at]), codes.format, stored, operand.enters), operand.enters)
    along = np.zeros(codes.shape[1 if operand.by_rows else 0], int)
    return Side(made, operand.enters, np.full(codes.shape, _ONE, object), along)


@cache
def _read(recipe: str, code: int, format: str, beside: Sequence[tuple[str, tuple[int, str]]], to: str) -> int:
    return second_readers.read(recipe, code, format, dict(beside), to)


def _zero_points(recipe: str, own: Inputs, grid: tuple[int, int]) -> Array:
    reader = second_readers.READERS.get(recipe)
    if reader is second_readers.less_zero_point:
        return numbers(own["zero_point"])
    return np.full(grid, Fraction(8 if reader is second_readers.less_8 else 0), object)


def _unit(recipe: str) -> Fraction:
    return Fraction(1, 64) if second_readers.READERS.get(recipe) is second_readers.sixty_fourths else _ONE


def _with_global(recipe: str, own: Inputs, made: Side) -> Side:
    reader = second_readers.READERS.get(recipe)
    if reader not in (second_readers.over_global, second_readers.times_global):
        return made
    (stored,) = numbers(own["global_scale"]).ravel()
    over = reader is second_readers.over_global
    return Side(made.values, made.format, made.scales, made.blocks, 1 / stored if over else stored, stored if over else None)
