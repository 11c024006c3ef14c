"""What is known while a kernel of LLVM IR is read, and its control flow: phis are copies on the edges."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.devices.emulator.engine import Instruction, Machine
from narrowgauge.devices.emulator.llvm_build import Build, nothing
from narrowgauge.devices.emulator.llvm_functions import Function
from narrowgauge.devices.emulator.llvm_fusion import Products
from narrowgauge.devices.emulator.llvm_text import Kinds, Reader, Tokens, Value, unspecified
from narrowgauge.devices.emulator.memory import Active, Array


@dataclass(frozen=True)
class Phi:
    """A phi: its registers, and the text of its values by block."""

    names: tuple[str, ...]
    kinds: Kinds
    values: dict[str, str]
    where: str


@dataclass(frozen=True)
class Return:
    """Where a function returns to: a label, the registers of the result, and the function's name."""

    label: str
    names: tuple[str, ...]
    kinds: Kinds
    function: str


@dataclass
class Draft:
    """An instruction whose branch, if it is one, still names a block."""

    instruction: Instruction
    block: str = ""


@dataclass
class Body:
    """What is known while a kernel is read."""

    target: str
    symbols: dict[str, int]
    lines: dict[str, str]
    fusion: bool
    functions: Mapping[str, Function] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)  #: functions in the order of their calls, by name
    returns: list[Return] = field(default_factory=list)  #: where the functions that are being read return to
    named: dict[str, Value] = field(default_factory=dict)
    products: Products = field(default_factory=lambda: Products({}))
    phis: dict[str, list[Phi]] = field(default_factory=dict)
    edges: list[tuple[int, str, str]] = field(default_factory=list)
    drafts: list[Draft] = field(default_factory=list)
    starts: dict[str, int] = field(default_factory=dict)


def phi(name: str, tokens: Tokens, where: str, block: str, body: Body) -> None:
    if tokens.peek() in ("fast", "contract"):
        tokens.take()
    kinds = tokens.type()
    values = {
        source.strip('%"'): value
        for value, source in re.findall(r"\[ (.*?), (%[-\w$.\"]+) \]", tokens.line.partition("phi")[2])
    }
    names = tuple(f"{name}.{i}" for i in range(len(kinds)))
    build = Build("phi", name, tokens, body.named, body.target)
    build.registers(kinds)
    body.phis.setdefault(block, []).append(Phi(names, kinds, values, where))


def branch(line: str, tokens: Tokens, where: str, block: str, body: Body) -> None:
    """br. Each edge with phis at its end gets a place of its own for the copies; see ``placed``."""
    if tokens.accept("label"):
        return edge(line, where, block, tokens.take(), body)
    (condition,) = tokens.typed()
    tokens.expect(",")
    tokens.expect("label")
    yes = tokens.take()
    tokens.expect(",")
    tokens.expect("label")
    no = tokens.take()
    stub = f"{block} to {yes}"
    body.drafts.append(Draft(Instruction(line, where, nothing, "branch", condition.read), stub))
    edge(line, where, block, no, body)
    body.starts[stub] = len(body.drafts)
    return edge(line, where, block, yes, body)


def switch(line: str, tokens: Tokens, where: str, block: str, body: Body) -> None:
    """switch: a branch for each case, and the last one for all other values."""
    (value,) = tokens.typed()
    tokens.expect(",")
    tokens.expect("label")
    other = tokens.take()
    tokens.expect("[")
    labels: list[tuple[str, str]] = []
    while not tokens.accept("]"):
        (case,) = tokens.typed()
        tokens.expect(",")
        tokens.expect("label")
        labels.append((f"{block} case {len(labels)}", tokens.take()))
        guard = _equal(value.read, case.read)
        body.drafts.append(Draft(Instruction(line, where, nothing, "branch", guard), labels[-1][0]))
    edge(line, where, block, other, body)
    for stub, label in labels:
        body.starts[stub] = len(body.drafts)
        edge(line, where, block, label, body)


def _equal(one: Reader, other: Reader) -> Reader:
    return lambda machine: np.asarray(one(machine) == other(machine))


def leave(line: str, rest: str, where: str, block: str, body: Body) -> None:
    """ret: the end of the kernel, or back to where a function was called."""
    if not body.returns:
        body.drafts.append(Draft(Instruction(line, where, nothing, "exit")))
        return
    back = body.returns[-1]
    if back.kinds:
        tokens = Tokens(rest, body.named, body.symbols)
        tokens.expect("ret")
        if tokens.type() != back.kinds:
            raise NotExecuted(f"LLVM IR '{line}'")
        text = " ".join(tokens.left)
        phis = body.phis.setdefault(back.label, [Phi(back.names, back.kinds, {}, where)])
        phis[0].values[block] = text
    edge(line, where, block, back.label, body)


def edge(line: str, where: str, block: str, label: str, body: Body) -> None:
    to = label.strip('%"')
    body.edges.append((len(body.drafts), block, to))
    body.drafts.append(Draft(Instruction(line, where, nothing)))  # the copies
    body.drafts.append(Draft(Instruction(line, where, nothing, "branch"), to))


def placed(body: Body) -> list[Instruction]:
    """The instructions, with copies on the edges and the places that branches go to."""
    for at, block, to in body.edges:
        draft = body.drafts[at]
        if phis := body.phis.get(to, []):
            copies = [copy for phi in phis for copy in _copies(phi, block, body)]
            draft.instruction = Instruction(draft.instruction.text, draft.instruction.where, _copy(copies))
    placed = []
    for draft in body.drafts:
        instruction = draft.instruction
        if draft.block:
            if draft.block not in body.starts:
                raise NotExecuted(f"branch to {draft.block}")
            instruction = Instruction(
                instruction.text, instruction.where, nothing, "branch", instruction.guard, body.starts[draft.block]
            )
        placed.append(instruction)
    return placed


def _copies(phi: Phi, block: str, body: Body) -> list[tuple[str, str, Reader]]:
    if block not in phi.values:
        raise NotExecuted(f"phi without a value from {block}")
    value = Tokens(phi.values[block], body.named, body.symbols).value(phi.kinds)
    return [(name, kind, p.read) for name, kind, p in zip(phi.names, phi.kinds, value, strict=True)]


def _copy(copies: list[tuple[str, str, Reader]]) -> Callable[[Machine, Active], None]:
    """All phis of a block at once: each may be the source of another."""

    def effect(machine: Machine, active: Active) -> None:
        values = [read(machine) for _, _, read in copies]
        for (name, kind, _), value in zip(copies, values, strict=True):
            if active is not None and name not in machine.registers:
                machine.write(name, _blank(machine, kind), None)
            machine.write(name, value, active)

    return effect


def _blank(machine: Machine, kind: str) -> Array:
    return unspecified(machine, kind)
