"""LLVM IR of Triton's AMD targets to a program of the engine. What is not known is refused, never guessed.

The IR is what the code generator gets. Where it fuses a product and a sum is settled in llvm_fusion.py.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.devices.emulator import llvm_amdgcn, llvm_convert, llvm_float, llvm_integer, llvm_memory, llvm_narrow
from narrowgauge.devices.emulator.engine import Instruction, Machine, Program
from narrowgauge.devices.emulator.llvm_build import Build, Builder, Effect, nothing
from narrowgauge.devices.emulator.llvm_fusion import PACKED, THROUGH, Products
from narrowgauge.devices.emulator.llvm_text import (
    HELD,
    Kinds,
    Part,
    Reader,
    Tokens,
    Value,
    attached,
    source_lines,
    unspecified,
)
from narrowgauge.devices.emulator.memory import Active, Array
from narrowgauge.devices.emulator.ptx import Parameter

_ROOMS = (llvm_integer, llvm_float, llvm_convert, llvm_memory, llvm_amdgcn, llvm_narrow)
OPCODES: dict[str, Builder] = {name: made for room in _ROOMS for name, made in getattr(room, "OPCODES", {}).items()}
CALLS: dict[str, Builder] = {name: made for room in _ROOMS for name, made in room.CALLS.items()}
#: functions that give one of their operands: what a flag promises is open in the sign of a zero alone, and kept
_CHOOSING = ("llvm.minnum", "llvm.maxnum", "llvm.minimum", "llvm.maximum", "llvm.fabs", "llvm.copysign")
#: functions that make the fill where a promise breaks
_PROMISING = ("llvm.fma.", "llvm.fmuladd.", "llvm.exp", "llvm.log")
BARRIERS = ("llvm.amdgcn.s.barrier", "llvm.amdgcn.s.barrier.wait")
_DEFINE = re.compile(r"^define amdgpu_kernel void @(?P<name>[\w$.]+)\((?P<parameters>.*)\)(?P<rest>[^()]*)\{$", re.M)
_LABEL = re.compile(r'^(?P<name>[-\w$.]+|"[^"]*"):')
_NAMED = re.compile(r'^\s*(?P<name>%(?:"[^"]*"|[-\w$.]+)) = (?P<rest>.*)$')
_SHARED = re.compile(r"^@([\w$.]+) = .*addrspace\(3\) global \[(\d+) x i8\]", re.M)
_SWITCH = re.compile(r"switch [^\[\n]*\[.*?\]", re.S)
_SUFFIX = re.compile(r"(?:v\d+)?(?:i\d+|f\d+|bf16|p\d+)")


@dataclass(frozen=True)
class _Phi:
    """A phi: its registers, and the text of its values by block."""

    names: tuple[str, ...]
    kinds: Kinds
    values: dict[str, str]
    where: str


@dataclass
class _Draft:
    """An instruction whose branch, if it is one, still names a block."""

    instruction: Instruction
    block: str = ""


@dataclass
class _Body:
    """What is known while a kernel is read."""

    target: str
    symbols: dict[str, int]
    lines: dict[str, str]
    fusion: bool
    named: dict[str, Value] = field(default_factory=dict)
    products: Products = field(default_factory=lambda: Products({}))
    phis: dict[str, list[_Phi]] = field(default_factory=dict)
    edges: list[tuple[int, str, str]] = field(default_factory=list)
    drafts: list[_Draft] = field(default_factory=list)
    starts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Kernel:
    """A kernel that was read."""

    program: Program
    parameters: tuple[Parameter, ...]
    products: Products


def parse(text: str, target: str, threads: int, fusion: bool = True) -> Kernel:
    """The one kernel of a module. ``threads`` of a block; ``fusion``: whether the code generator fuses.

    Raises ``NotExecuted`` for what the emulator does not know.
    """
    found = _DEFINE.search(text)
    if found is None or len(re.findall(r"^define ", text, re.M)) != 1:
        raise NotExecuted("LLVM IR without exactly one kernel, or with a function")
    for kind, mode in re.findall(r'"(denormal-fp-math[\w-]*)"="([^"]*)"', text):
        if set(mode.split(",")) != {"ieee"}:
            raise NotExecuted(f"{kind} {mode}")
    body = _Body(target, _symbols(text), source_lines(text), fusion)
    body.products = Products(_uses(text[found.end() :].partition("\n}")[0]), target == "gfx1250")
    parameters = _parameters(found["parameters"], body)
    inside = text[found.end() :].partition("\n}")[0]
    lines = _SWITCH.sub(lambda cases: " ".join(cases[0].split()), inside).splitlines()
    unnamed = sum(p.name[1:].isdigit() for p in parameters)
    _read(lines, str(unnamed), body)
    return Kernel(Program(found["name"], tuple(_placed(body)), threads), parameters, body.products)


def _uses(text: str) -> dict[str, int]:
    """How often each name is used."""
    counts = Counter(re.findall(r'%(?:"[^"]*"|[-\w$.]+)', text))
    return {name: count - 1 for name, count in counts.items()}


def _symbols(text: str) -> dict[str, int]:
    """Addresses of the variables in shared memory."""
    found = _SHARED.findall(text)
    if len(found) > 1:
        raise NotExecuted("shared memory in several variables")
    return {name: 0 for name, _ in found}


def _parameters(text: str, body: _Body) -> tuple[Parameter, ...]:
    parameters = []
    for said in re.split(r",\s*(?![^(]*\))", text) if text.strip() else []:
        tokens = Tokens(said, {}, {})
        kinds, name = tokens.type(), said.split()[-1]
        if len(kinds) != 1 or name[0] != "%" or kinds[0] not in ("p1", "i8", "i16", "i32", "i64", "float", "double"):
            raise NotExecuted(f"parameter {said}")
        size = 8 * HELD[kinds[0]].itemsize
        parameters.append(Parameter(name, f"{'f' if kinds[0] in ('float', 'double') else 'u'}{size}"))
        body.named[name] = (Part(kinds[0], _parameter(name, kinds[0])),)
    return tuple(parameters)


def _parameter(name: str, kind: str) -> Reader:
    return lambda machine: np.frombuffer(machine.parameters[name], HELD[kind])


def _read(lines: list[str], entry: str, body: _Body) -> None:
    block = entry
    body.starts[block] = 0
    for raw in lines:
        line = raw.strip()
        if not line or line[0] == ";" or line.startswith("#dbg_"):
            continue
        if label := _LABEL.match(raw):
            if not (len(body.starts) == 1 and not body.drafts):
                block = label["name"].strip('"')
            else:
                block = label["name"].strip('"')
                body.starts.clear()
            body.starts[block] = len(body.drafts)
            continue
        line, said = attached(line)
        if "fpmath" in said:
            raise NotExecuted("!fpmath, which allows other results")
        _one(line, body.lines.get(said.get("dbg", ""), ""), block, body)


def _one(line: str, where: str, block: str, body: _Body) -> None:
    """One line of a block."""
    found = _NAMED.match(line)
    name, rest = (found["name"], found["rest"]) if found else ("", line)
    tokens = Tokens(rest, body.named, body.symbols)
    opcode = tokens.take()
    if opcode in ("tail", "musttail", "notail"):
        opcode = tokens.take()
    if opcode == "phi":
        return _phi(name, tokens, where, block, body)
    if opcode == "br":
        return _branch(line, tokens, where, block, body)
    if opcode == "switch":
        return _switch(line, tokens, where, block, body)
    if opcode == "ret":
        body.drafts.append(_Draft(Instruction(line, where, nothing, "exit")))
        return None
    build = Build(opcode, name, tokens, body.named, body.target)
    if opcode == "call":
        builder = _call(build)
        body.products.called(build.opcode, len(build.kinds))
        if build.opcode in BARRIERS:
            body.drafts.append(_Draft(Instruction(line, where, nothing, "barrier")))
            return None
    elif opcode in OPCODES:
        builder = OPCODES[opcode]
        _written_out(build, body.products)
        if (fused := _contraction(build, block, body)) is not None:
            body.drafts.append(_Draft(Instruction(line, where, fused)))
            return None
    else:
        raise build.refuse()
    effect: Effect | None = builder(build)
    if tokens.left:
        raise NotExecuted(f"opcode {build.opcode}: '{' '.join(tokens.left)}' in '{line}'")
    if effect is not None:
        body.drafts.append(_Draft(Instruction(line, where, effect)))
    return None


def _written_out(build: Build, products: Products) -> None:
    """Note an opcode that the code generator may write out with additions."""
    if build.opcode not in ("frem", "fdiv", "sitofp", "uitofp"):
        return
    ahead = replace(build, tokens=build.tokens.ahead(), flags=set())
    llvm_float.flags(ahead, "nnan", "ninf")
    ahead.tokens.accept("nneg")
    kinds = ahead.tokens.type()
    name, parts = f"{build.opcode} {kinds[0]}", ahead.tokens.value(kinds)
    if build.opcode.endswith("fp"):
        ahead.tokens.expect("to")
        name = f"{name} {ahead.tokens.type()[0]}"
    products.called(name, sum(name != "fdiv half" or part.constant not in llvm_float.UNITS for part in parts))


def _contraction(build: Build, block: str, body: _Body) -> Effect | None:
    """Note a product; the effect of a sum that the code generator fuses with one, or None."""
    if build.opcode in THROUGH:
        _through(build, block, body.products)
    if build.opcode not in ("fmul", "fadd", "fsub"):
        return None
    ahead = Build(build.opcode, build.name, build.tokens.ahead(), body.named, body.target)
    llvm_float.flags(ahead, "nnan", "ninf")
    kinds = ahead.tokens.type()
    names, values = [], []
    for _ in range(2):
        names.append(ahead.tokens.peek())
        values.append(ahead.tokens.value(kinds))
        ahead.tokens.accept(",")
    if build.opcode == "fmul":
        body.products.product(build.name, block, (values[0], values[1]))
        return None
    fused = body.products.sum(build.opcode, block, (names[0], names[1]), (values[0], values[1]))
    if fused is not None and not body.fusion and "contract" in ahead.flags:
        raise NotExecuted(f"opcode {build.opcode} contract of a product")
    if fused is None or not body.fusion:
        return None
    build.tokens.left.clear()
    return llvm_float.fused_sum(build, kinds, replace(fused, promised=ahead.flags & {"nnan", "ninf"}))


def _through(build: Build, block: str, products: Products) -> None:
    """What becomes of a product that is negated, or moved about."""
    names = [token for token in build.tokens.left if token[0] == "%"]
    for name in names:
        if name in products.known or name in products.near:
            products.near[build.name] = block
    source = products.known.get(names[0]) if names else None
    if source is None:
        return
    if build.opcode == "fneg":
        products.known[build.name] = replace(source, negative=not source.negative)
    elif build.opcode == "extractelement" and build.target not in PACKED and build.tokens.left[-1].isdigit():
        at = int(build.tokens.left[-1])
        parts = replace(source, first=(source.first[at],), second=(source.second[at],))
        products.known[build.name] = parts


def _call(build: Build) -> Builder:
    """Read a call's result, name and arguments; its builder."""
    tokens = build.tokens
    llvm_float.flags(build, "nsz", "nnan", "ninf")
    promised, called = build.flags - {"contract"}, tokens.line.partition("@")[2]
    if promised and not called.startswith(_CHOOSING) and ("nsz" in promised or not called.startswith(_PROMISING)):
        raise NotExecuted(f"opcode call {' '.join(sorted(promised))}")
    tokens.skip_said()
    build.kinds = tokens.type()
    called = tokens.take()
    if called[0] != "@":
        raise NotExecuted(f"opcode call {called}")
    build.opcode = called[1:]
    arguments: list[Value] = []
    tokens.expect("(")
    if called[1:] not in BARRIERS and _builder(called[1:]) is None:
        raise build.refuse()
    while not tokens.accept(")"):
        arguments.append(tokens.typed())
        tokens.accept(",")
    build.arguments = arguments
    return _builder(called[1:]) or (lambda b: nothing)


def _builder(name: str) -> Builder | None:
    """By the name, without the types at its end where it has none of its own."""
    while name not in CALLS:
        stem, _, last = name.rpartition(".")
        if not _SUFFIX.fullmatch(last):
            return None
        name = stem
    return CALLS[name]


# --- control flow ----------------------------------------------------------------------------------------------------


def _phi(name: str, tokens: Tokens, where: str, block: str, body: _Body) -> None:
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
    body.phis.setdefault(block, []).append(_Phi(names, kinds, values, where))


def _branch(line: str, tokens: Tokens, where: str, block: str, body: _Body) -> None:
    """br. Each edge with phis at its end gets a place of its own for the copies; see ``_placed``."""
    if tokens.accept("label"):
        return _edge(line, where, block, tokens.take(), body)
    (condition,) = tokens.typed()
    tokens.expect(",")
    tokens.expect("label")
    yes = tokens.take()
    tokens.expect(",")
    tokens.expect("label")
    no = tokens.take()
    stub = f"{block} to {yes}"
    body.drafts.append(_Draft(Instruction(line, where, nothing, "branch", condition.read), stub))
    _edge(line, where, block, no, body)
    body.starts[stub] = len(body.drafts)
    return _edge(line, where, block, yes, body)


def _switch(line: str, tokens: Tokens, where: str, block: str, body: _Body) -> None:
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
        body.drafts.append(_Draft(Instruction(line, where, nothing, "branch", guard), labels[-1][0]))
    _edge(line, where, block, other, body)
    for stub, label in labels:
        body.starts[stub] = len(body.drafts)
        _edge(line, where, block, label, body)


def _equal(one: Reader, other: Reader) -> Reader:
    return lambda machine: np.asarray(one(machine) == other(machine))


def _edge(line: str, where: str, block: str, label: str, body: _Body) -> None:
    to = label.strip('%"')
    body.edges.append((len(body.drafts), block, to))
    body.drafts.append(_Draft(Instruction(line, where, nothing)))  # the copies
    body.drafts.append(_Draft(Instruction(line, where, nothing, "branch"), to))


def _placed(body: _Body) -> list[Instruction]:
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


def _copies(phi: _Phi, block: str, body: _Body) -> list[tuple[str, str, Reader]]:
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
