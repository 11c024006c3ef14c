# SPDX-License-Identifier: Apache-2.0
"""Operands of products, read by hand: what each code stands for, as an exact fraction, and its scale.

From the words of contracts/product.py and of the facts on engines; it shares nothing with reference/matmul. Formats
come from second_derivation, recipes from second_readers and second_matrices, packings from second_layouts. Rows are
read when they are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.product import Operand
from narrowgauge.suites.meta import second_readers
from narrowgauge.suites.meta.second_catalogue import SHAPES
from narrowgauge.suites.meta.second_derivation import LAYOUTS, Number, cast_bound, decode
from narrowgauge.suites.meta.second_layouts import SECOND
from narrowgauge.suites.meta.second_recipes import rule_of

#: a finite number; or an infinity or a NaN
Real = Fraction | float
Inputs = Mapping[str, Coded]
Place = tuple[int, int]
_ONE = Fraction(1)
#: what stored zero points lack, by the name of their spelling
_LACKING = {"awq_4bit": 0, "gptq_v1_4bit": 1}


@cache
def number(code: int, format: str) -> Real:
    """What a code stands for."""
    return real(decode(code, format))


def real(found: Number) -> Real:
    """A decoded value."""
    if found.kind != "finite":
        return -float(found.kind) if found.negative else float(found.kind)
    return -found.magnitude if found.negative else found.magnitude


def finite(code: int, format: str) -> Fraction:
    """Of a code that must be a number. Raises ``ValueError`` for others."""
    found = number(code, format)
    if isinstance(found, float):
        raise ValueError(f"code {code:#x} of {format} is {found}; expected a number")
    return found


@cache
def exponent(value: Real, format: str) -> int:
    """As a matrix unit sees it: subnormals have that of the least normal number."""
    if isinstance(value, float) or not value:
        return 0
    binade = value.numerator.bit_length() - value.denominator.bit_length()
    if abs(value) < Fraction(2) ** binade:
        binade -= 1
    return binade if LAYOUTS[format].is_integer else max(binade, 1 - LAYOUTS[format].bias)


@dataclass(frozen=True)
class Stored:
    """A matrix of codes as it stands in memory."""

    format: str
    shape: Place
    image: Coded
    layout: str = ""

    def at(self, place: Place) -> int:
        """The code of an element."""
        if not self.layout:
            return int(self.image.data[place])
        where, found, memory = SECOND[self.layout][0], 0, self.image.data.reshape(-1).view(np.uint8)
        for i in range((LAYOUTS[self.format].codes - 1).bit_length()):
            byte, bit = where(*place, i, *self.shape)
            found |= int(memory[byte] >> bit & 1) << i
        return found


@dataclass(frozen=True)
class Row:
    """K numbers that enter the product, and what each is still to be multiplied by."""

    values: list[Real]
    scales: list[Real]  #: E8M0 has a NaN


class Side:
    """One operand. ``name`` is "a" or "b"; ``experts``: so many matrices below one another.

    Raises ``ValueError`` for a buffer whose shape is not that of the recipe's grid.
    """

    def __init__(
        self, operand: Operand, name: str, stored: Stored, inputs: Inputs, experts: int = 1, rounding: str = ""
    ) -> None:
        self.operand, self.stored, self.rounding = operand, stored, rounding
        self.read: dict[int, Row] = {}
        self.rows, self.depth = stored.shape if operand.by_rows else stored.shape[::-1]
        self.format = operand.enters or stored.format
        self.index = inputs.get(f"{name}_group_index")
        self.own = {k[2:]: v for k, v in inputs.items() if k.startswith(f"{name}_") and v is not self.index}
        shape = SHAPES.get(operand.recipe)
        self.block = stored.shape if shape is None else (
            shape.rows or stored.shape[0] // experts, shape.columns or stored.shape[1],
        )  # fmt: skip
        self.reader = second_readers.READERS.get(operand.recipe)
        self.grid = tuple(-(-n // b) if b else 0 for n, b in zip(stored.shape, self.block, strict=True))
        self.zeros = self._zeros()
        for what in ("scale", "zero_point"):
            if what in self.own and what not in dict(operand.layouts) and self.own[what].shape != self.grid:
                raise ValueError(f"{name}_{what} is {self.own[what].shape}; the grid is {self.grid}")

    def _zeros(self) -> Stored | None:
        """Zero points as they stand in memory."""
        packing = dict(self.operand.layouts).get("zero_point", "").split("~")[0]
        if "zero_point" not in self.own:
            return None
        format = "uint4" if packing else "int32"
        return Stored(format, (self.grid[0], self.grid[1]), self.own["zero_point"], packing)

    def _zero(self, block: Place) -> int:
        if self.zeros is None:
            return 8 if self.reader is second_readers.less_8 else 0
        spelling = dict(self.operand.layouts).get("zero_point", "~").split("~")[1]
        return int(finite(self.zeros.at(block), self.zeros.format)) + _LACKING.get(spelling, 0)

    @property
    def blocks(self) -> list[int]:
        """Which elements along K share a scale."""
        each = self.block[1 if self.operand.by_rows else 0]
        return [k // each for k in range(self.depth)]

    @property
    def overall(self) -> Fraction:
        """A factor of the whole operand, beside its scales."""
        stored = self.inverse
        if stored is not None:
            return 1 / stored
        if self.operand.enters or self.reader is not second_readers.times_global:
            return _ONE
        return finite(int(self.own["global_scale"].data.ravel()[0]), "float32")

    @property
    def inverse(self) -> Fraction | None:
        """Where that factor is one over a stored number, the number."""
        if self.operand.enters or self.reader is not second_readers.over_global:
            return None
        return finite(int(self.own["global_scale"].data.ravel()[0]), "float32")

    def row(self, i: int) -> Row:
        """One row of a, or one of b as [N, K]; read once."""
        if i not in self.read:
            self.read[i] = self._row(i)
        return self.read[i]

    def _row(self, i: int) -> Row:
        places = [(i, k) if self.operand.by_rows else (k, i) for k in range(self.depth)]
        if not self.operand.recipe:
            values = [number(self.stored.at(p), self.stored.format) for p in places]
            return Row([self._entering(v) for v in values], [_ONE] * self.depth)
        if self.operand.enters:
            return Row([self._dequantized(p) for p in places], [_ONE] * self.depth)
        return Row([self._counted(p) for p in places], [self._scale(self._of(p)) for p in places])

    def _of(self, place: Place) -> Place:
        """The block of an element; ``index`` says that of each k, where k counts rows."""
        if self.index is not None:
            return int(self.index.data.ravel()[place[0]]), place[1] // self.block[1]
        return place[0] // self.block[0], place[1] // self.block[1]

    def _scale(self, block: Place) -> Real:
        return number(int(self.own["scale"].data[block]), self.own["scale"].format)

    def _counted(self, place: Place) -> Real:
        """A code less its zero point, in its units."""
        value = number(self.stored.at(place), self.stored.format)
        if isinstance(value, float):
            return value
        unit = Fraction(1, 64) if self.reader is second_readers.sixty_fourths else _ONE
        return (value - self._zero(self._of(place))) * unit

    def _entering(self, value: Real) -> Real:
        """A plain number, rounded to the format in which it enters; "none" leaves it."""
        if not self.operand.enters or isinstance(value, float) or self.rounding == "none":
            return value
        rule = rule_of(self.operand.enters, rounding=self.rounding or "nearest_even")
        return number(cast_bound(Number("finite", value < 0, abs(value)), rule), self.operand.enters)

    def _dequantized(self, place: Place) -> Real:
        """As the recipe's reader does it, in float32, and rounded to the format in which it enters."""
        block, beside = self._of(place), []
        for name, coded in self.own.items():
            if name == "zero_point":
                beside.append((name, (self._zero(block), "int32")))
            else:
                beside.append((name, (int(coded.data[block if coded.shape != (1, 1) else (0, 0)]), coded.format)))
        code = _read(self.operand.recipe, self.stored.at(place), self.stored.format, tuple(beside), self.format)
        return number(code, self.format)


@cache
def _read(recipe: str, code: int, format: str, beside: tuple[tuple[str, tuple[int, str]], ...], to: str) -> int:
    return second_readers.read(recipe, code, format, dict(beside), to)
