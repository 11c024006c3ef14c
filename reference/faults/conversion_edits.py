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
#: whether a step is meant
Which = Callable[[Step], bool]


def step(name: str, *operands: str | float) -> Which:
    """A step of that name whose first operands are these."""
    return lambda found: found[: 1 + len(operands)] == (name, *operands)


def with_steps(change: Callable[[tuple[Step, ...]], tuple[Step, ...]]) -> ConversionEdit:
    """Other steps."""

    def edit(converting: Converting) -> Converting | None:
        steps = change(converting.conversion.steps)
        if steps == converting.conversion.steps:
            return None
        return replace(converting, conversion=replace(converting.conversion, steps=steps))

    return edit


def without(which: Which) -> ConversionEdit:
    """A step is left out."""
    return with_steps(lambda steps: tuple(s for s in steps if not which(s)))


def twice(which: Which) -> ConversionEdit:
    """A step is done two times."""
    return with_steps(lambda steps: tuple(again for s in steps for again in ((s, s) if which(s) else (s,))))


def instead(which: Which, other: Callable[[Step], tuple[Step, ...]]) -> ConversionEdit:
    """Other steps in place of one."""
    return with_steps(lambda steps: tuple(new for s in steps for new in (other(s) if which(s) else (s,))))


def first(*edits: ConversionEdit) -> ConversionEdit:
    """One mistake that is written in several ways: the first that can be."""
    return lambda converting: next((made for edit in edits if (made := edit(converting)) is not None), None)


def where(fits: Callable[[Converting], bool], edit: ConversionEdit) -> ConversionEdit:
    """The edit, for such conversions alone."""
    return lambda converting: edit(converting) if fits(converting) else None


def takes(name: str) -> Callable[[Converting], bool]:
    return lambda converting: any(held.name == name for held in converting.conversion.takes)


def gives(name: str) -> Callable[[Converting], bool]:
    return lambda converting: any(held.name == name for held in converting.conversion.gives)


def both(*conditions: Callable[[Converting], bool]) -> Callable[[Converting], bool]:
    return lambda converting: all(holds(converting) for holds in conditions)


def taking(change: Callable[[Input], Input]) -> ConversionEdit:
    """The call is taken for another one."""
    return lambda converting: replace(converting, received=(*converting.received, change))


def taking_buffer(name: str, change: Callable[[Coded, Input], Coded]) -> ConversionEdit:
    """One buffer that comes beside the codes is taken for another."""

    def taken(x: Input) -> Input:
        return Input(x.format, x.data, {**x.given, name: change(x.given[name], x)})

    return where(takes(name), taking(taken))


def giving_buffer(name: str, change: Callable[[Coded, Input], Coded]) -> ConversionEdit:
    """Another buffer is given."""

    def given(outputs: Buffers, x: Input) -> Buffers:
        return {**outputs, name: change(outputs[name], x)}

    return where(gives(name), lambda converting: replace(converting, after=(*converting.after, given)))


def matrix(change: Callable[[Matrix], Matrix]) -> Callable[[Coded, Input], Coded]:
    """A change of a matrix of codes."""
    return lambda value, _: Coded(value.format, np.ascontiguousarray(change(value.data)))
