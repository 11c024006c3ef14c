"""The vocabulary in which faults of wide operations are written: edits of their steps, or None where they change
nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from narrowgauge.contracts.wide import Step
from narrowgauge.reference.wide.widening import Widening

WideEdit = Callable[[Widening], Widening | None]
#: whether a step is meant
Which = Callable[[Step], bool]
Steps = tuple[Step, ...]


def step(*parts: str | float) -> Which:
    """A step that begins with these: its name, that of what it gives, its operands."""
    return lambda found: found[: len(parts)] == parts


def steps(change: Callable[[Steps], Steps]) -> WideEdit:
    """Other steps."""

    def edit(widening: Widening) -> Widening | None:
        new = change(widening.wide.steps)
        return None if new == widening.wide.steps else replace(widening, wide=replace(widening.wide, steps=new))

    return edit


def instead(which: Which, other: Callable[[Step], Steps]) -> WideEdit:
    """Other steps in place of some."""
    return steps(lambda old: tuple(made for found in old for made in (other(found) if which(found) else (found,))))


def without(which: Which) -> WideEdit:
    """A step is left out."""
    return instead(which, lambda found: ())


def after(which: Which, *more: Step) -> WideEdit:
    """Steps more, behind one."""
    return instead(which, lambda found: (found, *more))


def before(which: Which, *more: Step) -> WideEdit:
    """Steps more, in front of one."""
    return instead(which, lambda found: (*more, found))


def at_first(*more: Step) -> WideEdit:
    """Steps more, in front of all."""
    return steps(lambda old: (*more, *old))


def at_last(*more: Step) -> WideEdit:
    """Steps more, behind all."""
    return steps(lambda old: (*old, *more))


def operand(which: Which, place: int, other: str | float) -> WideEdit:
    """Another operand of a step, its name counted as the first."""
    return instead(which, lambda found: ((*found[:place], other, *found[place + 1 :]),))


def where(holds: Callable[[Widening], bool], edit: WideEdit) -> WideEdit:
    """The edit, for such operations alone."""
    return lambda widening: edit(widening) if holds(widening) else None


def has(*parts: str | float) -> Callable[[Widening], bool]:
    """One of whose steps begins with these."""
    which = step(*parts)
    return lambda widening: any(which(found) for found in widening.wide.steps)


def lacks(*parts: str | float) -> Callable[[Widening], bool]:
    """None of whose steps begins with these."""
    found = has(*parts)
    return lambda widening: not found(widening)


def gives(name: str) -> Callable[[Widening], bool]:
    """It gives an output of that name."""
    return lambda widening: any(held.name == name for held in widening.wide.outputs)


def takes(name: str) -> Callable[[Widening], bool]:
    """It is given a matrix of that name beside x."""
    return lambda widening: any(held.name == name for held in widening.wide.inputs)


def wider_than(format_name: str) -> Callable[[Widening], bool]:
    """x comes in a format of which that one does not hold all numbers."""
    return lambda widening: widening.source != format_name


def both(*conditions: Callable[[Widening], bool]) -> Callable[[Widening], bool]:
    return lambda widening: all(holds(widening) for holds in conditions)


def first(*edits: WideEdit) -> WideEdit:
    """One mistake that is written in several ways: the first that can be."""
    return lambda widening: next((made for edit in edits if (made := edit(widening)) is not None), None)


def then(*edits: WideEdit) -> WideEdit:
    """One mistake that needs several edits, each of which can be."""

    def edit(widening: Widening) -> Widening | None:
        made: Widening | None = widening
        for each in edits:
            made = None if made is None else each(made)
        return made

    return edit
