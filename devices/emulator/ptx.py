"""PTX text to a program of the engine. What is not known is refused, never guessed."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.devices.emulator.engine import Instruction, Machine, Program
from narrowgauge.devices.emulator.memory import Active, Region
from narrowgauge.devices.emulator.ptx_opcodes import OPCODES
from narrowgauge.devices.emulator.ptx_operands import Build, Operand

_ENTRY = re.compile(r"\.entry\s+(?P<name>[\w$]+)\s*\((?P<parameters>.*?)\)(?P<directives>.*?)\{(?P<body>.*)", re.S)
_PARAMETER = re.compile(r"\.param\s+\.(?P<type>\w+)(?P<rest>[^,]*?)\s(?P<name>[\w$]+)\s*(?:,|$)")
_THREADS = re.compile(r"\.(?:reqntid|maxntid)\s+(\d+)")
_FILE = re.compile(r'^[ \t]*\.file[ \t]+(\d+)[ \t]+"([^"]*)"(?:[ \t]+"([^"]+)")?', re.M)
_SHARED = re.compile(r"\.shared\s+(?:\.align\s+\d+\s+)?\.\w+\s+([\w$]+)\s*\[(\d*)\]")
_LOCAL = re.compile(r"\.local\s+(?:\.align\s+\d+\s+)?\.b8\s+([\w$]+)\s*\[(\d+)\]")
_TABLE = re.compile(r"\.(?:global|const)\s+\.align\s+\d+\s+\.([busf]\d+)\s+([\w$]+)\[(\d+)\]\s*=\s*\{([^}]*)\}")
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)")
_LABEL = re.compile(r"^([$\w]+):\s*")
_GUARD = re.compile(r"^@(!?)([%\w$]+)\s+")
_DECLARED = re.compile(r"^\.reg\s+\.(\w+)\s+(.*)$", re.S)
_ADDRESS = re.compile(r"^\[\s*([%\w$]+)\s*(?:\+\s*(-?\w+))?\s*\]$")
_BITS = {"f16": "b16", "f32": "b32", "f64": "b64"}


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel: its name in the text, and its type."""

    name: str
    type: str

    @property
    def size(self) -> int:
        return int(self.type[1:]) // 8


@dataclass
class _Body:
    """What is known while the statements of a kernel are read."""

    scopes: list[dict[str, tuple[str, str]]] = field(default_factory=lambda: [{}])  #: names to type and own name
    labels: dict[str, int] = field(default_factory=dict)
    scoped: int = 0

    def declare(self, type: str, names: str) -> None:
        for name in (n.strip() for n in names.split(",")):
            stem, counted, _ = name.partition("<")
            own = f"{stem}" if len(self.scopes) == 1 else f"{self.scoped}:{stem}"
            self.scopes[-1][f"{stem}<" if counted else stem] = (_BITS.get(type, type), own)

    def find(self, name: str) -> tuple[str, str] | None:
        """Type and full name of a register; None if there is none of that name."""
        stem = name.rstrip("0123456789")
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
            if stem != name and f"{stem}<" in scope:
                type, own = scope[f"{stem}<"]
                return type, own + name[len(stem) :]
        return None


def parse(text: str) -> tuple[Program, tuple[Parameter, ...]]:
    """The one kernel of a PTX module. Raises ``NotExecuted`` for what the emulator does not know."""
    found = _ENTRY.search(text)
    if (
        found is None
        or len(_ENTRY.findall(text)) != 1
        or re.search(r"^\s*\.(?:visible\s+|weak\s+)?\.?func\b", text, re.M)
    ):
        raise NotExecuted("PTX without exactly one kernel, or with a function")
    declared = [_PARAMETER.search(line) for line in found["parameters"].split(",") if line.strip()]
    parameters = tuple(Parameter(p["name"], p["type"]) for p in declared if p is not None)
    if len(parameters) != len(declared) or any(not re.fullmatch(r"[usbf]\d+", p.type) for p in parameters):
        raise NotExecuted(f"parameters of {found['name']}: {found['parameters'].strip()}")
    threads = _THREADS.search(found["directives"])
    if threads is None:
        raise NotExecuted(f"{found['name']} has no .reqntid: its threads are not known")
    files = {number: (name or folder).rpartition("/")[2] for number, folder, name in _FILE.findall(text)}
    symbols, local = _symbols(text)
    constants = tuple(_constants(text))
    symbols |= {region.name: region.address for region in constants}
    instructions = list(_instructions(found["body"], files, symbols, {p.name for p in parameters}))
    return Program(found["name"], tuple(instructions), int(threads[1]), local, constants), parameters


def _symbols(text: str) -> tuple[dict[str, int], int]:
    """Addresses of the variables in shared memory, and of one in local memory, with its size."""
    names = _SHARED.findall(text)
    if len(names) > 1 or any(size for _, size in names):
        raise NotExecuted("shared memory of a fixed size, or in several variables")
    depots = _LOCAL.findall(text)
    if len(depots) > 1:
        raise NotExecuted("local memory in several variables")
    return {name: 0 for name, _ in (*names, *depots)}, int(depots[0][1]) if depots else 0


def _constants(text: str) -> Iterator[Region]:
    """Tables of whole numbers in global memory, which the code reads."""
    for kind, name, count, numbers in _TABLE.findall(text):
        held = np.dtype(f"u{int(kind[1:]) // 8}")
        words = [_word(n.strip()) for n in numbers.split(",") if n.strip()]
        data = np.zeros(int(count), held)  # what is not said is zero
        data[: len(words)] = [w & (1 << 8 * held.itemsize) - 1 for w in words]
        yield Region(name, data.ctypes.data, data.view(np.uint8))


def _word(text: str) -> int:
    """A whole number, or the pattern of a float."""
    if re.fullmatch(r"0[fFdD][0-9A-Fa-f]+", text):
        return int(text[2:], 16)
    if not re.fullmatch(r"-?(0[xX][0-9A-Fa-f]+|\d+)U?", text):
        raise NotExecuted(f"'{text}' in a table")
    return int(text.rstrip("U"), 0)


def _statements(body: str) -> Iterator[tuple[str, str, bool]]:
    """Each statement of a kernel without its ';', its last .loc, and whether it is a brace."""
    where, pending, inline, depth = "", "", False, 1
    for raw in body.splitlines():
        if "begin inline asm" in raw:
            inline, fresh = True, True
        elif "end inline asm" in raw:
            inline = False
        line = raw.partition("//")[0].strip()
        if line.startswith(".loc"):
            if not inline or fresh:  # within inline assembly lines are counted on, past the source's own
                where, fresh = line, False
            continue
        pending = f"{pending} {line}".strip()
        while pending:
            if pending[0] in "{}":
                depth += 1 if pending[0] == "{" else -1
                yield pending[0], where, True
                pending = pending[1:].strip()
                if not depth:
                    return
            elif label := _LABEL.match(pending):
                yield label[0].strip(), where, False
                pending = pending[label.end() :]
            elif ";" in pending:
                statement, _, pending = pending.partition(";")
                pending = pending.strip()
                if statement.strip():
                    yield statement.strip(), where, False
            else:
                break


def _instructions(
    body: str, files: dict[str, str], symbols: dict[str, int], parameters: set[str]
) -> Iterator[Instruction]:
    state = _Body()
    kept: list[tuple[str, str, tuple[Operand | None, Build]]] = []
    for statement, loc, brace in _statements(body):
        if brace:
            if statement == "{":
                state.scoped += 1
                state.scopes.append({})
            else:
                state.scopes.pop()
        elif statement.endswith(":"):
            state.labels[statement[:-1]] = len(kept)
        elif declared := _DECLARED.match(statement):
            state.declare(declared[1], declared[2])
        elif statement.startswith("."):
            if statement.split()[0] not in (".pragma", ".local"):
                raise NotExecuted(f"directive {statement.split()[0]}")
        else:
            kept.append((statement, _line(loc, files), _split(statement, state, symbols, parameters)))
    for text, where, (guard, build) in kept:
        yield _instruction(text, where, guard, build, state.labels)


def _line(loc: str, files: dict[str, str]) -> str:
    found = _LOC.search(loc)
    return f"{files.get(found[1], '?')}:{found[2]}" if found else ""


def _split(statement: str, state: _Body, symbols: dict[str, int], parameters: set[str]) -> tuple[Operand | None, Build]:
    guard = None
    if found := _GUARD.match(statement):
        register = state.find(found[2])
        if register is None or register[0] != "pred":
            raise NotExecuted(f"guard of '{statement}'")
        guard = Operand(register=register[1], type="pred", negated=bool(found[1]))
        statement = statement[found.end() :]
    opcode, _, rest = statement.partition(" ") if " " in statement else statement.partition("\t")
    opcode, _, tail = opcode.partition("\t")
    base, *modifiers = opcode.replace("::", "_").split(".")
    operands = tuple(_operand(o, state, symbols, parameters) for o in _commas(f"{tail} {rest}"))
    return guard, Build(statement, base, modifiers, operands, symbols)


def _commas(text: str) -> list[str]:
    """Parts between the commas that no brace holds; 'p|q' is two parts."""
    parts, depth, last = [], 0, ""
    for sign in text:
        depth += (sign in "{[") - (sign in "}]")
        if sign in ",|" and not depth:
            parts.append(last)
            last = ""
        else:
            last += sign
    return [p.strip() for p in [*parts, last] if p.strip()]


def _operand(text: str, state: _Body, symbols: dict[str, int], parameters: set[str]) -> Operand:
    if text[0] == "{":
        return Operand(vector=tuple(_operand(o, state, symbols, parameters) for o in _commas(text.strip("{} "))))
    if text[0] == "[":
        found = _ADDRESS.match(text)
        if found is None:
            raise NotExecuted(f"address {text}")
        of = _operand(found[1], state, symbols, parameters)
        offset = int(found[2], 0) if found[2] else 0
        return Operand(of.register, of.type, of.value, symbol=of.symbol, offset=offset, address=True)
    negated, name = text[0] == "!", text.lstrip("!")
    if register := state.find(name):
        return Operand(register=register[1], type=register[0], negated=negated)
    if name == "_":
        return Operand(register="_")
    if name in symbols or name in parameters or name.startswith("$L"):
        return Operand(symbol=name)
    if name[0] == "%":
        return Operand(special=name[1:])
    if re.fullmatch(r"0[fF][0-9A-Fa-f]{8}", name) or re.fullmatch(r"0[dD][0-9A-Fa-f]{16}", name):
        return Operand(value=int(name[2:], 16))
    if re.fullmatch(r"-?(0[xX][0-9A-Fa-f]+|\d+)U?", name):
        return Operand(value=int(name.rstrip("U"), 0))
    if re.fullmatch(r"-?\d+\.\d*(e[+-]?\d+)?", name):
        return Operand(value=int.from_bytes(struct.pack("<d", float(name)), "little"))
    return Operand(symbol=name)


def _nothing(machine: Machine, active: Active) -> None:
    """A branch, a barrier and an end are the engine's own."""


def _instruction(text: str, where: str, guard: Operand | None, build: Build, labels: dict[str, int]) -> Instruction:
    taken = None if guard is None else build.read(guard, "pred")
    name = build.opcode
    if name in ("bra", "bra.uni"):
        label = build.operands[0].symbol
        if label not in labels:
            raise NotExecuted(f"branch to {label}")
        return Instruction(text, where, _nothing, "branch", taken, labels[label])
    if name in ("ret", "exit"):
        return Instruction(text, where, _nothing, "exit", taken)
    if name in ("bar.sync", "barrier.sync", "barrier.sync.aligned"):
        if len(build.operands) != 1 or build.operands[0].value is None:
            raise NotExecuted(f"{name} for some of the threads")
        return Instruction(text, where, _nothing, "barrier", taken)
    if build.base not in OPCODES:
        raise build.refuse()
    effect = OPCODES[build.base](build)
    if build.modifiers:
        raise build.refuse()
    return Instruction(text, where, effect, "straight", taken)


def parameter_bytes(parameter: Parameter, value: int | float) -> bytes:
    """A parameter's bytes. Floats are float32 or float64 by the parameter's type."""
    if parameter.type[0] == "f" or isinstance(value, float):
        return np.array(value, f"f{parameter.size}").tobytes()
    return (int(value) & (1 << 8 * parameter.size) - 1).to_bytes(parameter.size, "little")
