"""An instruction that a model answers: operands to the model as patterns, its first answer to the destination.

That the model was used, and whether its words left the answer open in a lane that took part, is noted with the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from narrowgauge.devices.emulator.engine import Machine
from narrowgauge.devices.emulator.memory import UNSIGNED, Active, Array
from narrowgauge.devices.emulator.models.answers import Answers, Band, Model
from narrowgauge.devices.emulator.ptx_operands import TYPES, Build, Effect, Operand

_WORD = np.dtype(np.uint32)  #: of tf32 and of random bits


def by_model(b: Build, model: Model, quick: Callable[..., Array] | None = None) -> Effect:
    """The effect of an instruction whose whole opcode the model knows.

    ``quick`` gives the same as the model, faster, for a model without open answers.
    """
    operands = list(_flat(b.operands[1:]))
    if len(operands) != len(model.inputs):
        raise b.refuse()
    b.modifiers.clear()
    if quick is None:
        return _slow(b, model, operands)
    effect = b.compute(quick, model.output, *model.inputs)

    def noted(machine: Machine, active: Active) -> None:
        machine.models.setdefault(model.title, False)
        effect(machine, active)

    return noted


def _slow(b: Build, model: Model, operands: Sequence[Operand]) -> Effect:
    sizes = [TYPES.get(kind, _WORD).itemsize for kind in (model.output, *model.inputs)]
    reads = [b.read(each, f"u{8 * size}") for each, size in zip(operands, sizes[1:], strict=True)]
    write, to = b.writer(0, f"b{8 * sizes[0]}"), UNSIGNED[sizes[0]]

    def effect(machine: Machine, active: Active) -> None:
        answer = model.run(*(read(machine).astype(np.uint32, copy=False) for read in reads))
        assert not isinstance(answer, tuple)  # no instruction of PTX has two results
        note(machine.models, model, answer, active)
        write(machine, answer.first.astype(to, copy=False), active)

    return effect


def note(models: dict[str, bool], model: Model, answer: Answers | Band, active: Active) -> None:
    """Write down that a model was used; True once an answer of its was open in an active lane."""
    if not models.get(model.title, False):
        several: Array = answer.open()
        models[model.title] = bool((several if active is None else several & active).any())


def _flat(operands: Sequence[Operand]) -> Iterator[Operand]:
    for operand in operands:
        yield from operand.vector or (operand,)
