"""The ways in which a mistake can be made in a product: in either operand, in both, with tiles of several widths.

Each way is one wrong ``Multiplying``. This is what the vocabulary of faults of products is built of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.formats import Format, format_named
from narrowgauge.contracts.product import Operand
from narrowgauge.contracts.recipe import Recipe
from narrowgauge.reference.behaviour import Behaviour
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.interval import Interval
from narrowgauge.reference.kv.arithmetic import digits
from narrowgauge.reference.matmul.multiplying import F64, Multiplying, Terms

Grid = npt.NDArray[Any]
SIDES = ("a", "b")
#: tiles of K, of rows or columns of the result, and square ones
TILES, ROWS, SQUARES = (16, 32, 64, 128, 256), (8, 16, 32, 64, 128), (16, 32, 64)


@dataclass(frozen=True)
class Way:
    """A mistake in one of the ways in which it can be made."""

    note: str  #: which, in words: "in a", "tiles of 64"; "" where there is one alone
    behaviour: Any  #: a ``Multiplying``; of another kind where one fault is asked of all kinds
    #: not a definite result but all that a bound allows, which fits much that is a little off: results that fit must be
    #: of so many significant bits at most, which a sum kept in more would not be; 0 for a definite result
    bits: int = 0


#: of the ways in which a fault was made, so many are told
_TOLD = 3


def in_words(made: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Of faults and the ways in which each was made: the first of the ways, and how many more there are, by fault."""
    ways: dict[str, list[str]] = {}
    for name, way in made:
        ways.setdefault(name, []).append(way)
    return {name: _in_words(several) for name, several in ways.items()}


def _in_words(ways: list[str]) -> str:
    more = len(ways) - _TOLD
    return " or ".join(ways[:_TOLD]) + (f", or in {more} more ways" if more > 0 else "")


def bits_of(got: Mapping[str, Coded]) -> int:
    """How many significant bits the results of a kernel have at most; at least 1."""
    value = np.concatenate([decode_values(codes).ravel() for codes in got.values()])
    return max(1, int(digits(value[np.isfinite(value)][None]).max(initial=0)))


Ways = Callable[[Multiplying], Iterator[Way]]
#: what a call is taken for
Taken = Callable[[Input], Input]


def one(edit: Callable[[Multiplying], Multiplying | None]) -> Ways:
    """A mistake that can be made in one way."""

    def ways(multiplying: Multiplying) -> Iterator[Way]:
        wrong = edit(multiplying)
        if wrong is not None:
            yield Way("", wrong)

    return ways


def both(*several: Ways) -> Ways:
    """All ways of several."""
    return lambda multiplying: (way for ways in several for way in ways(multiplying))


def taking(multiplying: Multiplying, change: Taken) -> Multiplying:
    """The call is taken for another."""
    return replace(multiplying, received=(*multiplying.received, change))


def with_given(x: Input, changed: Mapping[str, Coded]) -> Input:
    """The call with other things beside x."""
    return Input(x.format, x.data, {**x.given, **changed})


def in_operands(edit: Callable[[Multiplying, str], Multiplying | None], operands: tuple[str, ...] = SIDES) -> Ways:
    """A mistake in one operand, in the other, in both."""

    def ways(multiplying: Multiplying) -> Iterator[Way]:
        made = {side: edit(multiplying, side) for side in operands}
        for side, wrong in made.items():
            if wrong is not None:
                yield Way(f"in {side}", wrong)
        if len(operands) == 2 and None not in made.values():
            again = edit(made["a"], "b")  # type: ignore[arg-type]
            if again is not None:
                yield Way("in both operands", again)

    return ways


def in_tiles(edit: Callable[[Multiplying, int], Multiplying | None], widths: tuple[int, ...]) -> Ways:
    """A mistake of tiles of each of several sizes."""

    def ways(multiplying: Multiplying) -> Iterator[Way]:
        for width in widths:
            wrong = edit(multiplying, width)
            if wrong is not None:
                yield Way(f"tiles of {width}", wrong)

    return ways


def with_terms(multiplying: Multiplying, change: Callable[[Terms], Terms]) -> Multiplying:
    """Other numbers are multiplied."""
    return replace(multiplying, terms=(*multiplying.terms, change))


def finishing(multiplying: Multiplying, change: Callable[[Interval, Input], Interval]) -> Multiplying:
    """Another result is left."""
    return replace(multiplying, after=(*multiplying.after, change))


def other_terms(terms: Terms, changed: Mapping[str, Any]) -> Terms:
    """The same with other numbers, by name."""
    return replace(terms, **changed)


def reader_of(multiplying: Multiplying, side: str) -> Behaviour:
    """What reads an operand."""
    return multiplying.a if side == "a" else multiplying.b


def read_by(multiplying: Multiplying, side: str, reader: Behaviour) -> Multiplying:
    """An operand is read by another behaviour."""
    return replace(multiplying, a=reader) if side == "a" else replace(multiplying, b=reader)


def with_codes(found: Interval, change: Callable[[Grid], Grid]) -> Interval:
    """The same change of the codes of both ends."""
    low, high = (Coded(e.format, np.ascontiguousarray(change(e.data))) for e in (found.low, found.high))
    return Interval(low, high)


def in_result_type(multiplying: Multiplying, values: F64) -> F64:
    """Numbers rounded to the type of the result."""
    wide = Coded("float64", np.ascontiguousarray(values).view(np.uint64))
    return decode_values(multiplying.rounding.run(wide)["codes"])


def operand_of(multiplying: Multiplying, side: str) -> Operand:
    return multiplying.product.a if side == "a" else multiplying.product.b


def recipe_of(multiplying: Multiplying, side: str) -> Recipe | None:
    """The recipe of an operand, as the behaviour that reads it has it."""
    return reader_of(multiplying, side).recipe


def codes_of(multiplying: Multiplying, side: str) -> str:
    """The format of an operand's codes."""
    return multiplying.source if side == "a" else multiplying.product.b.format or multiplying.source


def is_turned(multiplying: Multiplying, side: str) -> bool:
    """Whether rows of the operand's matrix are K."""
    return not operand_of(multiplying, side).by_rows


def has_blocks_along_k(multiplying: Multiplying, side: str) -> bool:
    recipe = recipe_of(multiplying, side)
    if recipe is None:
        return False
    return (recipe.blocks.rows if is_turned(multiplying, side) else recipe.blocks.columns) > 0


def of_side(multiplying: Multiplying, side: str, names: tuple[str, ...], change: Callable[[Coded], Coded]) -> Taken:
    """Other matrices beside an operand. ``change`` is given them as [rows of the operand, blocks along K]."""
    turn: Callable[[Grid], Grid] = np.transpose if is_turned(multiplying, side) else lambda matrix: matrix

    def taken(x: Input) -> Input:
        held = {name: x.given[name] for name in (f"{side}_{n}" for n in names) if name in x.given}
        found = {}
        for name, value in held.items():
            made = change(Coded(value.format, turn(value.data)))
            found[name] = Coded(made.format, np.ascontiguousarray(turn(made.data)))
        return with_given(x, found)

    return taken


def enters(multiplying: Multiplying, side: str) -> Format:
    """The format in which an operand's numbers enter the product."""
    return format_named(operand_of(multiplying, side).enters or codes_of(multiplying, side))
