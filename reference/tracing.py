"""One element's way through a recipe, step by step, and the first step at which two recipes part on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.recipe import Chain, Recipe
from narrowgauge.reference.fast_codec import decode_values, to_float32
from narrowgauge.reference.quantize import Statistics, Values, block_values, elements, own_cast, statistics
from narrowgauge.reference.steps import STEPS, run_chain
from narrowgauge.reference.words import step_in_words

Given = Mapping[str, Coded]


@dataclass(frozen=True)
class Done:
    """A value of a recipe: what it starts from, each step in words with its result, and what came of it."""

    name: str  #: of the value: "scale", "element"; or of a statistic, "amax"
    start: str
    steps: tuple[tuple[str, float], ...]
    number: float  #: of a scale that is stored in a format of its own, what the stored code says

    @property
    def shown(self) -> str:
        return f"{self.number:.9g}"


@dataclass(frozen=True)
class Part:
    """What one recipe does where two part."""

    said: str  #: "amax, over bound"
    value: str


@dataclass(frozen=True)
class Parting:
    """The first value of the two ways that differs, and how each comes to it."""

    name: str
    step: int  #: the first step of its chain that is another or gives another number; 0 where they start differently
    one: Part
    other: Part


def trace(x: Coded, recipe: Recipe, format_name: str, given: Given, at: tuple[int, int]) -> list[Done]:
    """Every value on the way to the code at [row, column] of a matrix, in the order in which it is computed."""
    with np.errstate(all="ignore"):
        matrix = to_float32(x)
        seen = statistics(matrix, recipe)
        place = block_of(recipe, at)
        own = Statistics((1, 1), {name: _at(value, place) for name, value in seen.found.items()})
        beside = {name: Coded(g.format, _at(g.data, place)) for name, g in given.items()}
        recorded: list[float] = []
        values = block_values(own, recipe, format_name, x.format, beside, _recording(recorded))
        done = [Done(name, name, (), _number(own.found[name])) for name in sorted(own.found)]
        done += [Done(name, "given", (), _number(values[name])) for name in recipe.inputs]
        done += [_named(name, chain, recipe, values, recorded) for name, chain in recipe.steps]
        element = to_float32(Coded(x.format, x.data[at[0] : at[0] + 1, at[1] : at[1] + 1]))
        last = _number(run_chain(recipe.element, values | {"x": element}, _recording(recorded)))
        done.append(Done("element", "x", _taken(recipe.element, recorded), last))
        code = decode_values(elements(element, values, recipe, format_name, own_cast(recipe, format_name)))
    return [*done, Done("code", f"cast {recipe.destination(format_name).cast}", (), _number(code))]


def _named(name: str, chain: Chain, recipe: Recipe, values: Values, recorded: list[float]) -> Done:
    steps, number = _taken(chain, recorded), _number(values[name])
    if name == "scale" and recipe.scale_format != "float32":
        number = _number(values["stored"])
        steps = (*steps, (f"stored as {recipe.scale_format} by {recipe.scale_cast}", number))
    return Done(name, str(chain[0]), steps, number)


def block_of(recipe: Recipe, at: tuple[int, int]) -> tuple[int, int]:
    """Place in the grid of the block that holds an element."""
    rows, columns = recipe.blocks.rows, recipe.blocks.columns
    return at[0] // rows if rows else 0, at[1] // columns if columns else 0


def _at(value: Any, place: tuple[int, int]) -> Any:
    i, j = (min(p, size - 1) for p, size in zip(place, value.shape, strict=True))
    return value[i : i + 1, j : j + 1]


def _recording(into: list[float]) -> Mapping[str, Callable[..., Any]]:
    """The steps, each of which writes down what it gives."""

    def writing(step: Callable[..., Any]) -> Callable[..., Any]:
        def run(*operands: Any) -> Any:
            value = step(*operands)
            into.append(float(np.ravel(value)[0]))
            return value

        return run

    return {name: writing(step) for name, step in STEPS.items()}


def _taken(chain: Chain, recorded: list[float]) -> tuple[tuple[str, float], ...]:
    """The steps of a chain with their results, which are taken off the record."""
    return tuple((step_in_words(step), recorded.pop(0)) for step in chain[1:])


def _number(value: Any) -> float:
    return float(np.ravel(value)[0])


# --- where two part --------------------------------------------------------------------------------------------------


def parting(one: list[Done], other: list[Done]) -> Parting | None:
    """The first value that both ways have and that is not the same on both; None where they agree to the end.

    A statistic that one of them alone asks for is no parting by itself.
    """
    theirs = {done.name: done for done in other}
    for mine in one:
        its = theirs.get(mine.name)
        if its is not None and repr(its.number) != repr(mine.number):
            return Parting(mine.name, _first_step(mine, its), _part(mine), _part(its))
    return None


def _first_step(one: Done, other: Done) -> int:
    if one.start != other.start:
        return 0
    same = 0
    for mine, its in zip(one.steps, other.steps, strict=False):
        if mine[0] != its[0] or repr(mine[1]) != repr(its[1]):
            break
        same += 1
    return same + 1


def _part(done: Done) -> Part:
    return Part(", ".join([done.start, *(words for words, _ in done.steps)]), done.shown)
