"""LLVM IR of Triton's AMD targets to a program of the engine. What is not known is refused, never guessed.

The IR is what the code generator gets. Where it fuses a product and a sum is settled in llvm_fusion.py.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.devices.emulator import (
    llvm_amdgcn,
    llvm_convert,
    llvm_float,
    llvm_flow,
    llvm_integer,
    llvm_memory,
    llvm_narrow,
)
from narrowgauge.devices.emulator.engine import Instruction, Program
from narrowgauge.devices.emulator.llvm_build import Build, Builder, Effect, nothing
from narrowgauge.devices.emulator.llvm_flow import Body, Draft
from narrowgauge.devices.emulator.llvm_functions import Function, functions
from narrowgauge.devices.emulator.llvm_fusion import PACKED, THROUGH, Products
from narrowgauge.devices.emulator.llvm_text import (
    HELD,
    Part,
    Reader,
    Tokens,
    Value,
    attached,
    source_lines,
)
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
class Kernel:
    """A kernel that was read."""

    program: Program
    parameters: tuple[Parameter, ...]
    products: Products


def parse(text: str, target: str, threads: int, fusion: bool = True, right: bool = False) -> Kernel:
    """The one kernel of a module. ``threads`` of a block; ``fusion``: whether the code generator fuses,
    ``right``: of two products that it may take, the right one.

    Raises ``NotExecuted`` for what the emulator does not know.
    """
    found, others = _DEFINE.search(text), functions(text)
    if found is None or len(re.findall(r"^define ", text, re.M)) != 1 + len(others):
        raise NotExecuted("LLVM IR without exactly one kernel, or with a function that others may call")
    for kind, mode in re.findall(r'"(denormal-fp-math[\w-]*)"="([^"]*)"', text):
        if set(mode.split(",")) != {"ieee"}:
            raise NotExecuted(f"{kind} {mode}")
    body = Body(target, _symbols(text), source_lines(text), fusion, others)
    body.products = Products(_uses(text[found.end() :].partition("\n}")[0]), target == "gfx1250", right=right)
    parameters = _parameters(found["parameters"], body)
    inside = text[found.end() :].partition("\n}")[0]
    unnamed = sum(p.name[1:].isdigit() for p in parameters)
    _read(inside, str(unnamed), body)
    return Kernel(Program(found["name"], tuple(llvm_flow.placed(body)), threads), parameters, body.products)


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


def _parameters(text: str, body: Body) -> tuple[Parameter, ...]:
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


def _read(text: str, entry: str, body: Body) -> None:
    block = entry
    body.starts[block] = len(body.drafts)
    for raw in _SWITCH.sub(lambda cases: " ".join(cases[0].split()), text).splitlines():
        line = raw.strip()
        if not line or line[0] == ";" or line.startswith("#dbg_"):
            continue
        if label := _LABEL.match(raw):
            block = label["name"].strip('"')
            body.starts[block] = len(body.drafts)
            continue
        line, said = attached(line)
        if "fpmath" in said:
            raise NotExecuted("!fpmath, which allows other results")
        _one(line, body.lines.get(said.get("dbg", ""), ""), block, body)


def _one(line: str, where: str, block: str, body: Body) -> None:
    """One line of a block."""
    found = _NAMED.match(line)
    name, rest = (found["name"], found["rest"]) if found else ("", line)
    tokens = Tokens(rest, body.named, body.symbols)
    opcode = tokens.take()
    if opcode in ("tail", "musttail", "notail"):
        opcode = tokens.take()
    if opcode == "phi":
        return llvm_flow.phi(name, tokens, where, block, body)
    if opcode == "br":
        return llvm_flow.branch(line, tokens, where, block, body)
    if opcode == "switch":
        return llvm_flow.switch(line, tokens, where, block, body)
    if opcode == "ret":
        return llvm_flow.leave(line, rest, where, block, body)
    build = Build(opcode, name, tokens, body.named, body.target)
    if opcode == "call" and (function := body.functions.get(_called(rest))):
        return _function(function, build, body)
    if opcode == "call":
        builder = _call(build)
        body.products.called(build.opcode, len(build.kinds))
        if build.opcode in BARRIERS:
            body.drafts.append(Draft(Instruction(line, where, nothing, "barrier")))
            return None
    elif opcode in OPCODES:
        builder = OPCODES[opcode]
        _written_out(build, body.products)
        if (fused := _contraction(build, block, body)) is not None:
            body.drafts.append(Draft(Instruction(line, where, fused)))
            return None
    else:
        raise build.refuse()
    effect: Effect | None = builder(build)
    if tokens.left:
        raise NotExecuted(f"opcode {build.opcode}: '{' '.join(tokens.left)}' in '{line}'")
    if effect is not None:
        body.drafts.append(Draft(Instruction(line, where, effect)))
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


def _contraction(build: Build, block: str, body: Body) -> Effect | None:
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


def _called(rest: str) -> str:
    return rest[rest.find("@") :].partition("(")[0]


def _function(function: Function, build: Build, body: Body) -> None:
    """A call of a function: its text, read here. The code generator has it once, so its additions are counted once."""
    if function.name in (back.function for back in body.returns):
        raise NotExecuted(f"{function.name}, which calls itself")
    tokens = build.tokens
    llvm_float.flags(build)
    tokens.accept("fastcc")
    tokens.skip_said()
    build.kinds = tokens.type()
    tokens.expect(function.name)
    made = function.renamed(f"call{len(body.calls)}$")
    for parameter, value in zip(made.parameters, _arguments(tokens), strict=True):
        body.named[parameter] = value
    names = tuple(build.registers(build.kinds)) if build.kinds else ()
    body.products.uses.update(_uses(made.body))
    before = copy.deepcopy((body.products.separate, body.products.doubled))
    again = function.name in body.calls
    body.calls.append(function.name)
    body.returns.append(llvm_flow.Return(f"{made.entry} returns", names, build.kinds, function.name))
    _read(made.body, made.entry, body)
    body.starts[body.returns.pop().label] = len(body.drafts)
    if again:
        body.products.separate, body.products.doubled = before


def _arguments(tokens: Tokens) -> list[Value]:
    arguments: list[Value] = []
    tokens.expect("(")
    while not tokens.accept(")"):
        arguments.append(tokens.typed())
        tokens.accept(",")
    return arguments


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
    if called[1:] not in BARRIERS and _builder(called[1:]) is None:
        raise build.refuse()
    build.arguments = _arguments(tokens)
    return _builder(called[1:]) or (lambda b: nothing)


def _builder(name: str) -> Builder | None:
    """By the name, without the types at its end where it has none of its own."""
    while name not in CALLS:
        stem, _, last = name.rpartition(".")
        if not _SUFFIX.fullmatch(last):
            return None
        name = stem
    return CALLS[name]
