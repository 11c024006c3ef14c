"""Run a wide operation: between which codes each output must lie."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.errors import BadInput, unknown
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.wide import Wide, Y
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.kv.arithmetic import F64, coded
from narrowgauge.reference.wide.catalogue import WIDE
from narrowgauge.reference.wide.ends import Ends, exactly
from narrowgauge.reference.wide.steps import STEPS, Work
from narrowgauge.reference.wide.widening import Pairs, Widening
from narrowgauge.reference.wide.wrong import WRONG

#: finite numbers above this are refused: float32 does not hold the squares of a row of them
LARGEST = 2.0**40
_ALL = {**STEPS, **WRONG}


def wide_named(name: str, where: str = "") -> Wide:
    """The operation of that name. Raises ``BadInput`` with near names."""
    if name not in WIDE:
        raise unknown("operation", name, WIDE, where or "WideOp(...)")
    return WIDE[name]


def resolve_wide(wide: str | Wide, where: str) -> Wide:
    """An operation by its name, or itself. Raises ``BadInput`` with near names."""
    return wide_named(wide, where) if isinstance(wide, str) else wide


def quantizable(first: str | Wide, where: str) -> Wide:
    """An operation that a quantizer can follow. Raises ``BadInput`` for another."""
    wide = resolve_wide(first, where)
    if not wide.quantizable:
        gives = ", ".join(held.name for held in wide.outputs)
        fit = ", ".join(each for each in WIDE if WIDE[each].quantizable)
        raise BadInput(f"{where}: {wide.name} gives {gives}; a quantizer takes one matrix, as of {fit}")
    return wide


def wide_result(x: Coded, first: str | Wide) -> tuple[Coded, Coded]:
    """The least and the greatest result [rows, columns], in the format of x, that the operation may give before a
    quantizer.

    Raises ``BadInput`` for an operation that does not exist, or gives more than one matrix, what is missing beside x,
    NaN or infinity in x, and numbers whose squares float32 does not hold: of these no bound is derived.
    """
    wide = quantizable(first, "Then(...)")
    if not np.isfinite(decode_values(x)).all():
        raise BadInput(f"{wide.name}: x has elements that are not finite or above 2^40; what they give is not derived")
    return ends_of(Widening(wide, x.format, x.format), x)[Y]


def ends_of(widening: Widening, x: Coded) -> Pairs:
    """The least and the greatest code of each output, for a behaviour, right or wrong. Raises ``BadInput`` for a call
    that is none."""
    taken = Input(x.format, x.data, given_with(x))
    check_taken(widening.wide, widening.source, taken)
    work = _worked(widening, taken)
    formats = widening.wide.gives(widening.format)
    return {name: _pair(work, widening, name, fmt) for name, fmt in formats.items()}


def check_taken(wide: Wide, source: str, x: Input) -> None:
    """Raise ``BadInput`` where shapes or formats do not fit, or of what came no bound is derived."""
    if x.data.ndim != 2:
        raise BadInput(f"{wide.name}: x has shape {list(x.shape)}; expected [rows, {wide.parts} · columns]")
    try:
        columns = wide.columns(x.shape[1])
    except BadInput:
        if x.shape[1] % wide.parts:
            raise BadInput(
                f"{wide.name}: x has shape {list(x.shape)}; expected [rows, {wide.parts} · columns]"
            ) from None
        raise
    for held in wide.inputs:
        shape, fmt = held.shape(x.shape[0], columns, wide.chosen), held.format or source
        found = x.given.get(held.name)
        if found is None or found.shape != shape or found.format != fmt:
            told = "nothing" if found is None else f"{found.format} {list(found.shape)}"
            raise BadInput(f"{wide.name}: {held.name} is {told}; expected {fmt} {list(shape)}")
        _check_beside(wide, held.name, decode_values(found), columns)
    value = decode_values(x)
    if (np.abs(value[np.isfinite(value)]) > LARGEST).any():
        raise BadInput(f"{wide.name}: x has elements that are not finite or above 2^40; what they give is not derived")


def check_chosen(wide: Wide, x: Coded) -> None:
    """Raise ``BadInput`` where it is nobody's promise what is chosen."""
    if guesses(wide) and np.isnan(decode_values(x)).any():
        raise BadInput(
            f"{wide.name}: x has NaN among what is chosen from; whether it is chosen differs between engines"
        )


def guesses(wide: Wide) -> bool:
    """Whether it chooses among numbers of which some may be NaN and others not, and gives those numbers."""
    return any(step[0] == "top" and step[2] and step[3] != Y for step in wide.steps)


def _check_beside(wide: Wide, name: str, value: F64, columns: int) -> None:
    finite = np.isfinite(value)
    if (name != "residual" and not finite.all()) or (np.abs(value[finite]) > LARGEST).any():
        raise BadInput(f"{wide.name}: {name} has elements that are not finite or above 2^40; give smaller ones")
    if name in ("temperature", "noise") and (value < 2.0**-40).any():
        raise BadInput(f"{wide.name}: {name} has elements below 2^-40; expected positive ones, by which is divided")
    if name == "lengths" and ((value < 1) | (value > columns)).any():
        raise BadInput(f"{wide.name}: lengths must be between 1 and {columns}, of columns that are not masked")


def _worked(widening: Widening, x: Input) -> Work:
    held = {"x": exactly(decode_values(x)), **{name: exactly(decode_values(c)) for name, c in x.given.items()}}
    work = Work(held, widening.source, widening.format)
    with np.errstate(all="ignore"):  # infinities and NaN go through every step
        for name, *operands in widening.wide.steps:
            work = replace(work, held={**work.held, **_ALL[str(name)](work, *operands)})
    return work


def _pair(work: Work, widening: Widening, name: str, format_name: str) -> tuple[Coded, Coded]:
    if name not in work.held:
        raise BadInput(f"{widening.wide.name}: no step gives {name!r}")
    ends = work.held[name]
    if format_named(format_name).family == "integer":
        return _whole(ends.low, format_name), _whole(ends.high, format_name)
    low = coded(ends.low, format_name)
    return (low, low) if _known(ends) else (low, coded(ends.high, format_name))


def _known(ends: Ends) -> bool:
    return ends.low is ends.high or bool(np.array_equal(ends.low, ends.high, equal_nan=True))


def _whole(value: F64, format_name: str) -> Coded:
    storage = format_named(format_name).storage
    return Coded(format_name, value.astype(np.int64).astype(f"i{storage.itemsize}").view(storage))
