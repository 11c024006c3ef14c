"""An instruction that a model answers: operands to the model as patterns, one of its answers to the destination.

That the model was used, and whether its words left the answer open in a lane that took part, is noted with the machine.
Which of several answers is taken is the machine's ``choice``: "first", or another one where a mismatch is looked into.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from narrowgauge.devices.emulator.engine import Machine
from narrowgauge.devices.emulator.memory import UNSIGNED, Active, Array
from narrowgauge.devices.emulator.models.answers import Answers, Band, Bits, Model
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
        write(machine, taken(machine, model, answer, active).astype(to, copy=False), active)

    return effect


def taken(machine: Machine, model: Model, answer: Answers | Band, active: Active) -> Bits:
    """Note that a model was used, and give the answer that the machine's choice picks in each lane."""
    note(machine.models, model, answer, active)
    return choose(answer, machine.choice)


def choose(answer: Answers | Band, choice: str) -> Bits:
    """One allowed answer in each lane.

    "random N" depends on the answers and on N alone: an instruction gives equal lanes equal results, as hardware does,
    and every call of a kernel the same ones.
    """
    if choice == "first" or not answer.open().any():
        return answer.first
    if choice in ("low", "high"):
        return answer.end(choice == "high")
    return answer.pick(_hash(answer, int(choice.removeprefix("random "))))


def _hash(answer: Answers | Band, seed: int) -> Array:
    """64 even bits for each lane, from its answers (SplitMix64's finish)."""
    with np.errstate(over="ignore"):
        z = answer.first.astype(np.uint64) << np.uint64(32) ^ answer.end(high=True).astype(np.uint64)
        z = z + np.uint64(0x9E3779B97F4A7C15 * seed % 2**64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def note(models: dict[str, bool], model: Model, answer: Answers | Band, active: Active) -> None:
    """Write down that a model was used; True once an answer of its was open in an active lane."""
    if not models.get(model.title, False):
        several: Array = answer.open()
        models[model.title] = bool((several if active is None else several & active).any())


def _flat(operands: Sequence[Operand]) -> Iterator[Operand]:
    for operand in operands:
        yield from operand.vector or (operand,)
