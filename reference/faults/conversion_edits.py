"""The vocabulary in which faults of converters are written: edits of a ``Converting``, or None where they change
nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.conversion import Step
from narrowgauge.reference.convert.converting import Buffers, Converting

Matrix = npt.NDArray[Any]
ConversionEdit = Callable[[Converting], Converting | None]
Condition = Callable[[Converting], bool]
#: whether a step is meant
Which = Callable[[Step], bool]


# --- which conversions -----------------------------------------------------------------------------------------------


def has(name: str) -> Condition:
    """One of whose steps has that name."""
    return lambda converting: any(found[0] == name for found in converting.conversion.steps)


def takes(name: str) -> Condition:
    return lambda converting: any(held.name == name for held in converting.conversion.takes)


def gives(name: str, format_name: str = "") -> Condition:
    """What it gives has a buffer of that name, and of that format."""
    return lambda converting: any(
        held.name == name and format_name in ("", held.format) for held in converting.conversion.gives
    )


def from_format(name: str) -> Condition:
    return lambda converting: converting.source == name


def keeps_format(converting: Converting) -> bool:
    return converting.source == converting.format


def both(*conditions: Condition) -> Condition:
    return lambda converting: all(holds(converting) for holds in conditions)


def where(fits: Condition, edit: ConversionEdit) -> ConversionEdit:
    """The edit, for such conversions alone."""
    return lambda converting: edit(converting) if fits(converting) else None


def first(*edits: ConversionEdit) -> ConversionEdit:
    """One mistake that is written in several ways: the first that can be."""
    return lambda converting: next((made for edit in edits if (made := edit(converting)) is not None), None)


# --- other steps -----------------------------------------------------------------------------------------------------


def step(name: str, *operands: str | float) -> Which:
    """A step of that name whose first operands are these."""
    return lambda found: found[: 1 + len(operands)] == (name, *operands)


def instead(which: Which, other: Callable[[Step], tuple[Step, ...]]) -> ConversionEdit:
    """Other steps in place of one."""

    def edit(converting: Converting) -> Converting | None:
        old = converting.conversion.steps
        new = tuple(made for found in old for made in (other(found) if which(found) else (found,)))
        return None if new == old else replace(converting, conversion=replace(converting.conversion, steps=new))

    return edit


def without(which: Which) -> ConversionEdit:
    """A step is left out."""
    return instead(which, lambda found: ())


def twice(which: Which) -> ConversionEdit:
    """A step is done two times."""
    return instead(which, lambda found: (found, found))


# --- other buffers ---------------------------------------------------------------------------------------------------


def taking_buffer(name: str, change: Callable[[Coded, Input], Coded]) -> ConversionEdit:
    """One buffer that comes beside the codes is taken for another."""

    def taken(x: Input) -> Input:
        return Input(x.format, x.data, {**x.given, name: change(x.given[name], x)})

    return where(takes(name), lambda converting: replace(converting, received=(*converting.received, taken)))


def giving(change: Callable[[Buffers, Input], Buffers]) -> ConversionEdit:
    """Other buffers are given."""
    return lambda converting: replace(converting, after=(*converting.after, change))


def giving_buffer(name: str, change: Callable[[Coded, Input], Coded]) -> ConversionEdit:
    """Another buffer is given."""
    return where(gives(name), giving(lambda outputs, x: {**outputs, name: change(outputs[name], x)}))


def matrix(change: Callable[[Matrix], Matrix]) -> Callable[[Coded, Input], Coded]:
    """A change of a matrix of codes that keeps its shape."""
    return lambda value, _: Coded(value.format, np.ascontiguousarray(change(value.data)))
