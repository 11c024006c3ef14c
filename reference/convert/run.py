"""Run a conversion: what must be given for what is taken."""

from __future__ import annotations

from dataclasses import replace

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.conversion import FIRST
from narrowgauge.contracts.errors import BadInput
from narrowgauge.reference.convert.converting import Buffers, Converting
from narrowgauge.reference.convert.steps import STEPS
from narrowgauge.reference.convert.work import Work, check_taken


def converted(converting: Converting, x: Coded) -> Buffers:
    """The outputs of a converter, right or wrong. Raises ``BadInput`` for a call that is none."""
    taken = Input(x.format, x.data, given_with(x))
    check_taken(converting.conversion, converting.source, taken)
    for change in converting.received:
        taken = change(taken)
    work = worked(converting, taken)
    outputs = {held.name: _given(converting, work, held.name) for held in converting.conversion.gives}
    for finish in converting.after:
        outputs = finish(outputs, taken)
    return outputs


def worked(converting: Converting, x: Input) -> Work:
    """All buffers after all steps."""
    taken = {FIRST: Coded(x.format, x.data), **x.given}
    work = Work(converting.conversion, converting.format, taken, taken, converting.quantizer)
    for name, *operands in converting.conversion.steps:
        work = replace(work, held={**work.held, **STEPS[str(name)](work, *operands)})
    return work


def _given(converting: Converting, work: Work, name: str) -> Coded:
    if name not in work.held:
        raise BadInput(f"conversion {converting.conversion.name!r}: no step gives {name!r}")
    return work.held[name]
