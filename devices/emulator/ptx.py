"""PTX text to a program of the engine. What is not known is refused, never guessed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.devices.emulator.engine import Instruction, Machine, Program
from narrowgauge.devices.emulator.memory import Active, Fault, Region
from narrowgauge.devices.emulator.ptx_opcodes import OPCODES
from narrowgauge.devices.emulator.ptx_operands import TYPES, Build, Operand
from narrowgauge.devices.emulator.ptx_text import Function, Names, functions, line_of, split, statements

_ENTRY = re.compile(r"\.entry\s+(?P<name>[\w$]+)\s*\((?P<parameters>.*?)\)(?P<directives>.*?)\{(?P<body>.*)", re.S)
_PARAMETER = re.compile(r"\.param\s+\.(?P<type>\w+)(?P<rest>[^,]*?)\s(?P<name>[\w$]+)\s*(?:,|$)")
_THREADS = re.compile(r"\.(?:reqntid|maxntid)\s+(\d+)")
_FILE = re.compile(r'^[ \t]*\.file[ \t]+(\d+)[ \t]+"([^"]*)"(?:[ \t]+"([^"]+)")?', re.M)
_SHARED = re.compile(r"\.shared\s+(?:\.align\s+\d+\s+)?\.\w+\s+([\w$]+)\s*\[(\d*)\]")
_LOCAL = re.compile(r"\.local\s+(?:\.align\s+\d+\s+)?\.b8\s+([\w$]+)\s*\[(\d+)\]")
_TABLE = re.compile(r"\.(?:global|const)\s+\.align\s+\d+\s+\.([busf]\d+)\s+([\w$]+)\[(\d+)\]\s*=\s*\{([^}]*)\}")
_DECLARED = re.compile(r"^\.reg\s+\.(\w+)\s+(.*)$", re.S)
_CALL = re.compile(r"^call(?:\.uni)?\s+(?:\(([^)]*)\)\s*,\s*)?([\w$]+)\s*(?:,\s*\(([^)]*)\))?$")
#: functions that call each other so deep are taken to call themselves
DEEPEST = 16


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel: its name in the text, and its type."""

    name: str
    type: str

    @property
    def size(self) -> int:
        return int(self.type[1:]) // 8


@dataclass(frozen=True)
class _Read:
    """A statement that was read; labels count within ``part``, the call that it was written out for."""

    text: str
    where: str
    guard: Operand | None
    build: Build
    part: str


def parse(text: str) -> tuple[Program, tuple[Parameter, ...]]:
    """The one kernel of a PTX module. Raises ``NotExecuted`` for what the emulator does not know."""
    found = _ENTRY.search(text)
    if found is None or len(_ENTRY.findall(text)) != 1:
        raise NotExecuted("PTX without exactly one kernel")
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
    reader = _Reader(files, symbols, {p.name for p in parameters}, functions(text))
    reader.read(found["body"], "")
    instructions = reader.instructions()
    return Program(found["name"], tuple(instructions), int(threads[1]), local, constants), parameters


def _symbols(text: str) -> tuple[dict[str, int], int]:
    """Addresses of the variables in shared and in local memory, and the size of local memory."""
    names = _SHARED.findall(text)
    if len(names) > 1 or any(size for _, size in names):
        raise NotExecuted("shared memory of a fixed size, or in several variables")
    found, size = {name: 0 for name, _ in names}, 0
    for name, of in _LOCAL.findall(text):
        found[name] = size
        size += -(-int(of) // 16) * 16
    return found, size


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


class _Reader:
    """Reads the statements of a kernel; functions are written out where they are called."""

    def __init__(
        self, files: dict[str, str], symbols: dict[str, int], parameters: set[str],
        known: Mapping[str, Function | None],
    ) -> None:  # fmt: skip
        self.files, self.symbols, self.parameters, self.known = files, symbols, parameters, known
        self.names = Names()
        self.kept: list[_Read] = []
        self.labels: dict[str, int] = {}

    def read(self, body: str, part: str) -> None:
        """The statements of a body up to its closing brace. ``part`` is "" for the kernel itself."""
        for statement, loc, brace in statements(body):
            if brace:
                if statement == "{":
                    self.names.scoped += 1
                    self.names.scopes.append({})
                else:
                    self.names.scopes.pop()
            elif statement.endswith(":"):
                self.labels[part + statement[:-1]] = len(self.kept)
            elif declared := _DECLARED.match(statement):
                self.names.declare(declared[1], declared[2])
            elif statement.startswith(".param"):
                self.names.parameter(statement)
            elif statement.startswith("."):
                if statement.split()[0] not in (".pragma", ".local"):
                    raise NotExecuted(f"directive {statement.split()[0]}")
            elif call := _CALL.match(statement):
                self._call(call, part)
            else:
                self._keep(statement, line_of(loc, self.files), part)

    def _keep(self, statement: str, where: str, part: str) -> None:
        guard, build = split(statement, self.names, self.symbols, self.parameters)
        for each in self._passing(build) if build.base in ("ld", "st") else [build]:
            self.kept.append(_Read(statement, where, guard, each, part))

    def _passing(self, build: Build) -> Sequence[Build]:
        """An access to what a call passes, as moves between registers; any other as it is."""
        place = 1 if build.base == "ld" else 0
        of = build.operands[place] if len(build.operands) == 2 else Operand()
        if "param" not in build.modifiers or of.type != "param":
            return [build]
        kind = build.modifiers[-1]
        if kind not in TYPES:
            raise build.refuse()
        width, found = TYPES[kind].itemsize, []
        other = build.operands[1 - place]
        for i, value in enumerate(other.vector or (other,)):
            passed = Operand(register=f"{of.register}+{of.offset + i * width}", type=f"b{8 * width}")
            if place == 0:
                self.names.passed.add((passed.register, passed.type))
            elif (passed.register, passed.type) not in self.names.passed:
                raise NotExecuted(f"'{build.text}' of what was passed in other parts")
            pair = (passed, value) if place == 0 else (value, passed)
            found.append(Build(build.text, "mov", [f"b{8 * width}"], pair, self.symbols))
        return found

    def _call(self, call: re.Match[str], part: str) -> None:
        function = self.known.get(call[2])
        if function is None:
            raise NotExecuted(f"a call of {call[2]}")
        if part.count("/") >= DEEPEST:
            raise NotExecuted(f"{call[2]} calls itself")
        given: dict[str, tuple[str, str]] = {}
        for formal, actual in ((function.returns, call[1]), (function.parameters, call[3])):
            passed = [name.strip() for name in (actual or "").split(",") if name.strip()]
            for name, own in zip(formal, passed, strict=True):
                given[name] = self.names.find(own) or ("", "")
        outer, self.names.scopes = self.names.scopes, [given, {}]
        self.names.scoped += 1
        inner = f"{part}{self.names.scoped}/"
        self.read(function.body, inner)
        self.names.scopes = outer
        self.labels[f"{inner}return"] = len(self.kept)

    def instructions(self) -> tuple[Instruction, ...]:
        """What was read, built."""
        return tuple(self._instruction(read) for read in self.kept)

    def _instruction(self, read: _Read) -> Instruction:
        build = read.build
        taken = None if read.guard is None else build.read(read.guard, "pred")
        plain = Instruction(read.text, read.where, _nothing, guard=taken)
        name = build.opcode
        if name in ("bra", "bra.uni"):
            label = build.operands[0].symbol
            if read.part + label not in self.labels:
                raise NotExecuted(f"branch to {label}")
            return replace(plain, kind="branch", target=self.labels[read.part + label])
        if name in ("ret", "ret.uni") and read.part:
            return replace(plain, kind="branch", target=self.labels[f"{read.part}return"])
        if name in ("ret", "ret.uni", "exit"):
            return replace(plain, kind="exit")
        if name in ("bar.sync", "barrier.sync", "barrier.sync.aligned"):
            if len(build.operands) != 1 or build.operands[0].value is None:
                raise NotExecuted(f"{name} for some of the threads")
            return replace(plain, kind="barrier")
        if name == "trap":
            return replace(plain, run=_trap)
        if build.base not in OPCODES:
            raise build.refuse()
        effect = OPCODES[build.base](build)
        if build.modifiers:
            raise build.refuse()
        return replace(plain, run=effect)


def _nothing(machine: Machine, active: Active) -> None:
    """A branch, a barrier and an end are the engine's own."""


def _trap(machine: Machine, active: Active) -> None:
    raise Fault("the kernel stops itself")


def parameter_bytes(parameter: Parameter, value: int | float) -> bytes:
    """A parameter's bytes. Floats are float32 or float64 by the parameter's type."""
    if parameter.type[0] == "f" or isinstance(value, float):
        return np.array(value, f"f{parameter.size}").tobytes()
    return (int(value) & (1 << 8 * parameter.size) - 1).to_bytes(parameter.size, "little")
