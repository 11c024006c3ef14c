"""NaN and infinity in a product reach the whole row or column of the result that they belong to, and nothing else.

A kernel is held to its own answer: of a call with a few poisoned elements everything else must be, bit for bit, what it
gave for the same call without them. The sums are exact in any order, so nothing but the poison can change them. Where
an element of K is infinite, the result is infinite or, times 0, NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.operations import Claim
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.contracts.product import B, Operand
from narrowgauge.reference.behaviour import multiplying_of
from narrowgauge.reference.fast_codec import cast, decode_values
from narrowgauge.reference.interval import Expected, Interval
from narrowgauge.reference.matmul.call import NARROW_SCALES, inputs_of, recipe_of_operand
from narrowgauge.reference.matmul.cases import Shape, call
from narrowgauge.reference.matmul.multiplying import F64
from narrowgauge.reference.matmul.reading import terms_by_expert

SHAPE = Shape("exact", rows=9, columns=17, depth=70, blocks=2, seed=6)
#: the row of the other operand that is 0 where it meets a poison
ZERO_ROW = 5
_IEEE = CastPolicy(overflow="special", infinity="special")


@dataclass(frozen=True)
class Poison:
    """One element, by its place in its row: of a row of a, or of a row of b, which is a column of the result."""

    side: str
    row: int
    k: int
    value: float


@dataclass(frozen=True)
class Poisoned:
    """A call, the same with poison in it, and what is poisoned."""

    clean: Input
    call: Input
    poisons: tuple[Poison, ...]

    def expected(self, claim: Claim, outputs: Mapping[str, Coded]) -> Expected:
        """What the second call must give, by what the first one gave."""
        clean = outputs["codes"]
        poison = self._poison(claim, clean.shape)
        codes = cast(Coded("float64", poison.view(np.uint64)), clean.format, _IEEE)
        data = np.where(poison == 0, clean.data, codes.data)
        return {"codes": Interval.exactly(Coded(clean.format, data.astype(clean.data.dtype)))}

    def _poison(self, claim: Claim, shape: tuple[int, ...]) -> F64:
        """NaN or an infinity in each element of the result that is poisoned, else 0."""
        found, by_row = np.zeros(shape), {p.row: p for p in self.poisons if p.side == "a"}
        columns = {p.row: p for p in self.poisons if p.side == "b"}
        with np.errstate(invalid="ignore"):
            for rows, terms in terms_by_expert(multiplying_of(claim), self.clean):
                for place, row in enumerate(rows.tolist()):
                    if row in by_row:
                        found[row] += by_row[row].value * terms.b[:, by_row[row].k]
                    for column, p in columns.items():
                        found[row, column] += p.value * terms.a[place, p.k]
        return found


def can_be_poisoned(claim: Claim) -> bool:
    """Whether an operand, or a scale of it, has NaN; by formats alone, since all cells are asked."""
    multiplying = multiplying_of(claim)
    formats = inputs_of(multiplying.product, multiplying.source, multiplying.format)
    scales = [formats[name] for name in ("a_scale", "b_scale") if formats.get(name) in NARROW_SCALES]
    return any(_code(fmt, np.nan) is not None for fmt in (multiplying.source, formats[B], *scales))


def poisoned(claim: Claim) -> Poisoned:
    """The pair of calls for a claim."""
    x = call(SHAPE)(claim)
    assert isinstance(x, Input)
    poisons = _poisons(claim, x)
    for poison in poisons:
        x = _with_zero(claim, x, poison)
    found = x
    for poison in poisons:
        found = _with(claim, found, poison)
    return Poisoned(x, found, poisons)


def _poisons(claim: Claim, x: Coded) -> tuple[Poison, ...]:
    """NaN at either end of K, infinity in between, in the first and last rows of both operands."""
    assert isinstance(x, Input)
    rows, depth = x.shape
    columns = _columns(claim, x)
    of_a = [Poison("a", rows - 1, 0, np.nan), Poison("a", 0, depth - 1, np.nan), Poison("a", 1, depth // 2, np.inf)]
    of_b = [Poison("b", columns - 1, 0, np.nan), Poison("b", 0, depth - 1, np.nan), Poison("b", 3, depth // 3, -np.inf)]
    return tuple(p for p in (*of_a, *of_b) if _is_there(claim, x, p))


def _columns(claim: Claim, x: Input) -> int:
    (_, terms), *_ = terms_by_expert(multiplying_of(claim), x)
    return len(terms.b)


def _is_there(claim: Claim, x: Input, poison: Poison) -> bool:
    """Whether the operand's format has that number, or its scales a NaN of their own."""
    fmt = x.format if poison.side == "a" else x.given[B].format
    return _code(fmt, poison.value) is not None or (np.isnan(poison.value) and _scale(claim, x, poison) is not None)


def _code(format_name: str, value: float) -> int | None:
    """The code of a quiet NaN or of an infinity; None where a format has none."""
    fmt = format_named(format_name)
    if fmt.family in ("integer", "finite"):
        return None
    code = cast(Coded("float64", np.array([value]).view(np.uint64)), format_name, _IEEE)
    return int(code.data[0]) if np.array_equal(decode_values(code), [value], equal_nan=True) else None


def _scale(claim: Claim, x: Input, poison: Poison) -> tuple[str, tuple[int, int], int] | None:
    """Name and place of the scale of a poisoned element, and its code of NaN, where it is one row's alone."""
    operand = _operand(claim, poison.side)
    recipe, name = recipe_of_operand(operand), f"{poison.side}_scale"
    held = x.given.get(name)
    if recipe is None or held is None or held.format not in NARROW_SCALES or recipe.blocks.rows != 1:
        return None
    code = _code(held.format, np.nan)
    return None if code is None else (name, (poison.row, poison.k // recipe.blocks.columns), code)


def _operand(claim: Claim, side: str) -> Operand:
    product = multiplying_of(claim).product
    return product.a if side == "a" else product.b


def _with(claim: Claim, x: Input, poison: Poison) -> Input:
    """The call with one poison: in the codes, else in the scale. Of a grouped b in the matrices of all experts."""
    codes = x if poison.side == "a" else x.given[B]
    code = _code(codes.format, poison.value)
    if code is None:
        found = _scale(claim, x, poison)
        assert found is not None
        name, place, code = found
        return replace(x, given={**x.given, name: _changed(x.given[name], [place], code)})
    if poison.side == "a":
        return replace(x, data=_changed(codes, [(poison.row, poison.k)], code).data)
    columns, by_rows = _columns(claim, x), _operand(claim, "b").by_rows
    count = max(codes.shape[0] // columns, 1) if by_rows else 1
    places = [(poison.row + e * columns, poison.k) for e in range(count)]
    return replace(x, given={**x.given, B: _changed(codes, places if by_rows else [p[::-1] for p in places], code)})


def _with_zero(claim: Claim, x: Input, poison: Poison) -> Input:
    """The call with 0 where the other operand meets the poison, once: what skips zeros does not see it there."""
    if poison.side == "b":
        return replace(x, data=_changed(x, [(ZERO_ROW, poison.k)], 0).data)
    if format_named(x.given[B].format).family == "integer":
        return x  # 0 is where its zero point is
    place = (ZERO_ROW, poison.k) if _operand(claim, "b").by_rows else (poison.k, ZERO_ROW)
    return replace(x, given={**x.given, B: _changed(x.given[B], [place], 0)})


def _changed(value: Coded, places: list[tuple[int, int]], code: int) -> Coded:
    data = value.data.copy()
    for place in places:
        data[place] = code
    return Coded(value.format, data)
